//! A change, as the applier publishes it.

use bytes::Bytes;

use crate::types::{Loc, Revision};

/// What happened to the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It was written.
    Put,
    /// It was deleted.
    Delete,
}

/// One change of one key. Bytes stay in the log; this says where.
#[derive(Clone, Debug)]
pub struct Event {
    /// What happened.
    pub kind: Kind,
    /// The key.
    pub key: Bytes,
    /// When.
    pub rev: Revision,
    /// The stored `KeyValue` (of a tombstone: the key alone). Flushed, so readable, when the event is published.
    pub loc: Loc,
    /// What the key held at revision `rev.main - 1`; `None` when it did not exist then.
    pub prev: Option<Loc>,
}
