// Package config holds what an operator says to a member, in flags, files and
// variables, and what the member does about it: logs, service managers,
// downgrades, comparisons of data.
package config
