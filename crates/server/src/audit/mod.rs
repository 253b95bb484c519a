//! The audit log: who asked for what, from where, and how it ended. One JSON object a line (docs/operations.md has the fields).
//!
//! [`class`] says which methods are recorded, [`request`] what of a request is named, [`record`] writes the line. Passwords, tokens and
//! values are never read here: a request is taken apart field by field, and only names, keys and numbers are taken.

#![deny(clippy::indexing_slicing, clippy::string_slice, clippy::arithmetic_side_effects, clippy::expect_used)]
#![cfg_attr(
    test,
    allow(clippy::indexing_slicing, clippy::string_slice, clippy::arithmetic_side_effects, clippy::expect_used)
)]

mod class;
mod record;
mod request;
mod text;

pub(crate) use class::Class;
pub(crate) use record::Record;
pub(crate) use request::Named;

use crate::config;
use bytes::Bytes;
#[cfg(test)]
use request::of_message;
use rpc::Peer;
use telemetry::audit::Trail;
use telemetry::metrics::Page;

/// The audit log of a member.
#[derive(Debug)]
pub(crate) struct Audit {
    trail: Trail,
    /// Reads are recorded too.
    reads: bool,
    /// Operations of a transaction that is taken, with all that are nested in it.
    txn_ops_max: usize,
}

impl Audit {
    /// Opens the file of the configuration.
    pub(crate) fn open(options: &config::Audit, txn_ops_max: usize) -> Result<Audit, String> {
        Ok(Audit { trail: Trail::open(options.target.clone())?, reads: options.reads, txn_ops_max })
    }

    /// Whether requests of this class are recorded.
    pub(crate) fn wants(&self, class: Class) -> bool {
        match class {
            Class::Unrecorded => false,
            Class::Read => self.reads,
            Class::Write | Class::Auth | Class::Login | Class::Cluster | Class::Maintenance => true,
        }
    }

    /// The class of a request, and what it names.
    pub(crate) fn names(&self, path: &str, message: &Bytes) -> (Class, Named) {
        request::of_message(path, message, self.reads, self.txn_ops_max)
    }

    /// Begins the record of a request that has just arrived.
    pub(crate) fn begin(&self, member_id: u64, peer: &Peer, path: &str, class: Class, named: &Named) -> Record {
        Record::begin(member_id, peer, path, class, named)
    }

    /// Writes a record. Never waits.
    pub(crate) fn write(&self, line: String) {
        self.trail.record(line);
    }

    /// Opens the file anew.
    pub(crate) fn reopen(&self) -> Result<(), String> {
        self.trail.reopen()
    }

    /// Waits a moment for the last lines.
    pub(crate) fn flush(&self) {
        self.trail.flush();
    }

    /// Appends the metrics.
    pub(crate) fn render(&self, page: &mut Page) {
        let [written, dropped] = self.trail.counts();
        let name = "cairn_audit_records_total";
        page.family(
            name,
            "counter",
            "Records of the audit log: written, or dropped because the queue or the disk was full.",
        );
        for (outcome, count) in [("written", written), ("dropped", dropped)] {
            page.labelled(name, &[("outcome", outcome)], count);
        }
    }
}
