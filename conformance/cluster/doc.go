// Package cluster tests several members together: how they come to a cluster,
// how its members change, and what is served while some of them are gone.
package cluster
