//! What is sent.

use super::numbered::DIGITS;

/// A kind of request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Writes a key.
    Put,
    /// Reads a key.
    Range { serializable: bool },
    /// Reads all keys with a prefix: this number of keys, a power of ten.
    List { keys: u64 },
    /// Writes a key in a transaction, whether the key exists or not.
    Txn,
    /// Logs in.
    Authenticate,
}

/// Requests about `keys` keys: a prefix and a number from 0 on. A value consists of letters and the key's number.
#[derive(Clone, Debug)]
pub(crate) struct Load {
    pub(crate) kind: Kind,
    pub(crate) key_prefix: Vec<u8>,
    pub(crate) value_bytes: usize,
    pub(crate) keys: u64,
    /// Whether the keys are used one after the other instead of at random.
    pub(crate) is_sequential: bool,
    /// Name and password.
    pub(crate) user: (String, String),
}

impl Load {
    pub(crate) fn new(kind: Kind, key_prefix: Vec<u8>, value_bytes: usize, keys: u64) -> Load {
        let user = Default::default();
        Load { kind, key_prefix, value_bytes, keys, is_sequential: false, user }
    }

    /// This load with the keys one after the other.
    pub(crate) fn sequential(self) -> Load {
        Load { is_sequential: true, ..self }
    }

    /// A load that writes the same keys one after the other.
    pub(crate) fn fill(&self) -> Load {
        Load { kind: Kind::Put, is_sequential: true, ..self.clone() }
    }

    /// Approximate bytes of each put in a store, with its history.
    pub(crate) fn put_bytes(&self) -> u64 {
        /// Revisions, version, lease, and the store's overhead per record.
        const RECORD_BYTES: usize = 100;
        (self.key_prefix.len() + DIGITS + self.value_bytes + RECORD_BYTES) as u64
    }

    /// Approximate bytes of an answer.
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
