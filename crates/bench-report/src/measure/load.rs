//! What is sent.

use super::numbered::DIGITS;

/// A kind of request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Writes a key.
    Put,
    /// Reads a key.
    Range { serializable: bool },
    /// Reads all keys with a prefix: so many, a power of ten.
    List { keys: u64 },
    /// Writes a key if it is there, and if not as well.
    Txn,
    /// Logs in.
    Authenticate,
}

/// Requests about `keys` keys: a prefix and a number from 0 on. Values are as many letters and the key's number.
#[derive(Clone, Debug)]
pub(crate) struct Load {
    pub(crate) kind: Kind,
    pub(crate) key_prefix: Vec<u8>,
    pub(crate) value_bytes: usize,
    pub(crate) keys: u64,
    /// One key after the other instead of any.
    pub(crate) is_sequential: bool,
    /// Name and password.
    pub(crate) user: (String, String),
}

impl Load {
    pub(crate) fn new(kind: Kind, key_prefix: Vec<u8>, value_bytes: usize, keys: u64) -> Load {
        let user = Default::default();
        Load { kind, key_prefix, value_bytes, keys, is_sequential: false, user }
    }

    /// One key after the other.
    pub(crate) fn sequential(self) -> Load {
        Load { is_sequential: true, ..self }
    }

    /// The same keys, written one after the other.
    pub(crate) fn fill(&self) -> Load {
        Load { kind: Kind::Put, is_sequential: true, ..self.clone() }
    }

    /// About how much each put takes up in a store, history and all.
    pub(crate) fn put_bytes(&self) -> u64 {
        /// Revisions, version, lease, and what the store itself needs for a record.
        const RECORD_BYTES: usize = 100;
        (self.key_prefix.len() + DIGITS + self.value_bytes + RECORD_BYTES) as u64
    }

    /// About how large an answer is.
    pub(crate) fn answer_bytes(&self) -> u64 {
        /// Revisions, version and lengths of a key in an answer.
        const FIELDS_BYTES: usize = 24;
        let each = (self.key_prefix.len() + DIGITS + self.value_bytes + FIELDS_BYTES) as u64;
        match self.kind {
            Kind::List { keys } => keys * each,
            Kind::Range { .. } => each,
            Kind::Put | Kind::Txn | Kind::Authenticate => FIELDS_BYTES as u64,
        }
    }
}
