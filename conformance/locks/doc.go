// Package locks tests the Lock and Election services, and etcd's own locks on
// top of the client library, with many clients at once.
package locks
