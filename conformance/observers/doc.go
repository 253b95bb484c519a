// Package observers tests processes that follow a cluster without belonging
// to it: what they serve, what they refuse, and that the members do not notice
// them.
package observers
