//! How many operations were applied, as etcd counts them for its metrics.

/// Operations applied. Each counts, those inside transactions too; a failed request counts what it did before it failed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Puts.
    pub puts: u64,
    /// Bytes of the keys and values put.
    pub put_bytes: u64,
    /// Deletions of a range. The end of a lease has one for each of its keys.
    pub deletes: u64,
    /// Ranges read: those asked for, those that a put or a deletion reads the previous pairs with (in a transaction
    /// a put reads them twice), the conditions of transactions, and one for a compaction.
    pub ranges: u64,
    /// Steps that had more than one of these operations. A transaction that writes has two: its conditions, and what it does then.
    pub txns: u64,
    /// Operations of the present step.
    step: u64,
}

impl Counts {
    pub(super) fn put(&mut self, key: &[u8], value: &[u8]) {
        self.puts += 1;
        self.put_bytes += (key.len() + value.len()) as u64;
        self.step += 1;
    }

    pub(super) fn delete(&mut self) {
        self.deletes += 1;
        self.step += 1;
    }

    pub(super) fn range(&mut self) {
        self.ranges_read(1);
    }

    pub(super) fn ranges_read(&mut self, count: u64) {
        self.ranges += count;
        self.step += count;
    }

    /// The next operations are another step's.
    pub(super) fn end_step(&mut self) {
        self.txns += u64::from(std::mem::take(&mut self.step) > 1);
    }
}
