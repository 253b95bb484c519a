// Package utl runs our `etcdutl` beside the genuine one: what they say of
// database files, what a server makes of a restored snapshot, and what is left
// of a member of etcd that is taken over.
package utl
