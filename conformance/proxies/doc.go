// Package proxies starts what stands between clients and members, `gateway
// start` and `grpc-proxy start` under the name `etcd`, and uses members through
// it.
package proxies
