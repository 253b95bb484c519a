// Package integration runs integration tests of Kubernetes' API server, as its release has them, on the genuine etcd and on Cairn.
package integration
