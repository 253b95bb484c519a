// Package takeover moves running clusters of the genuine etcd to Cairn, and
// back, by `cairn takeover`, beside clients that must not notice.
package takeover
