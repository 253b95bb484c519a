// Package kubernetes runs a Kubernetes control plane on Cairn: API server,
// controllers and scheduler of a release, used through client-go while members
// of the store are killed, cut off and replaced.
package kubernetes
