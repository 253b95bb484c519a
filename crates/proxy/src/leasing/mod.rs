//! `--experimental-leasing-prefix`: linearizable reads of single keys from memory.
//!
//! The protocol is that of etcd's leasing client, so that proxies of both kinds may have the same prefix. A proxy that keeps `key` in memory
//! owns the *lease key*, the prefix followed by `key`, which hangs on a lease of the proxy. A write through any proxy is a transaction that
//! takes place only if nobody else owns the lease keys of what it changes. Where somebody does, the writer puts `REVOKE` into the lease key;
//! its owner forgets what it keeps and deletes the lease key. The lease key of an owner that is gone ends with its lease.
//!
//! `book` decides what is served, acquired and given back, and does no I/O. `change` is a write as the transactions that guard it, `claim`
//! the transaction that acquires a lease key. `calls` makes both for clients, `keeper` has the lease of the proxy, follows the lease keys,
//! and proves again and again that what is kept may be served. `mistake` is for tests.

mod book;
mod calls;
mod change;
mod claim;
mod keeper;
mod mistake;
#[cfg(test)]
mod tests;

#[cfg(test)]
pub(crate) use book::{BYTES_MAX, KEYS_MAX};
pub(crate) use calls::Leasing;
#[cfg(test)]
pub(crate) use change::Change;
pub(crate) use keeper::start;

/// What a lease key says once its owner shall give it back.
const REVOKE: &[u8] = b"REVOKE";
