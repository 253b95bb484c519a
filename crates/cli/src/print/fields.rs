//! Lines of `"Name" : value`.

use super::go::{put, quote};
use api::etcdserverpb::*;
use api::mvccpb::KeyValue;

/// Collects the lines of one answer.
pub(crate) struct Lines {
    out: String,
    /// IDs in hexadecimal.
    hex_ids: bool,
}

impl Lines {
    pub(crate) fn new() -> Lines {
        Lines { out: String::new(), hex_ids: false }
    }

    /// IDs in hexadecimal, if `hex`.
    pub(crate) fn with_hex_ids(hex: bool) -> Lines {
        Lines { out: String::new(), hex_ids: hex }
    }

    pub(crate) fn line(&mut self, name: &str, value: impl std::fmt::Display) -> &mut Lines {
        put(&mut self.out, format_args!("\"{name}\" : {value}\n"));
        self
    }

    pub(crate) fn quoted(&mut self, name: &str, value: &[u8]) -> &mut Lines {
        let value = quote(value);
        self.line(name, value)
    }

    pub(crate) fn id(&mut self, name: &str, id: u64) -> &mut Lines {
        if self.hex_ids { self.line(name, format_args!("{id:x}")) } else { self.line(name, id) }
    }

    /// An answer without a header has one of zeros.
    pub(crate) fn header(&mut self, header: Option<&ResponseHeader>) -> &mut Lines {
        let header = header.cloned().unwrap_or_default();
        self.id("ClusterID", header.cluster_id).id("MemberID", header.member_id);
        if header.revision > 0 {
            self.line("Revision", header.revision);
        }
        self.line("RaftTerm", header.raft_term)
    }

    pub(crate) fn pair(&mut self, prefix: &str, kv: &KeyValue) -> &mut Lines {
        self.quoted(&format!("{prefix}Key"), &kv.key);
        self.line(&format!("{prefix}CreateRevision"), kv.create_revision);
        self.line(&format!("{prefix}ModRevision"), kv.mod_revision);
        self.line(&format!("{prefix}Version"), kv.version);
        self.quoted(&format!("{prefix}Value"), &kv.value);
        let name = format!("{prefix}Lease");
        if self.hex_ids { self.line(&name, format_args!("{:016x}", kv.lease)) } else { self.line(&name, kv.lease) }
    }

    pub(crate) fn text(&mut self, text: &str) -> &mut Lines {
        self.out.push_str(text);
        self
    }

    /// An answer without contents: its header alone.
    pub(crate) fn of_header(hex: bool, header: Option<&ResponseHeader>) -> String {
        let mut lines = Lines::with_hex_ids(hex);
        lines.header(header);
        lines.end()
    }

    pub(crate) fn empty(&mut self) -> &mut Lines {
        self.out.push('\n');
        self
    }

    pub(crate) fn end(self) -> String {
        self.out
    }
}

impl Lines {
    pub(crate) fn range(&mut self, answer: &RangeResponse) -> &mut Lines {
        self.header(answer.header.as_ref());
        for kv in &answer.kvs {
            self.pair("", kv);
        }
        self.line("More", answer.more).line("Count", answer.count)
    }

    pub(crate) fn put(&mut self, answer: &PutResponse) -> &mut Lines {
        self.header(answer.header.as_ref());
        if let Some(before) = &answer.prev_kv {
            self.pair("Prev", before);
        }
        self
    }

    pub(crate) fn delete(&mut self, answer: &DeleteRangeResponse) -> &mut Lines {
        self.header(answer.header.as_ref()).line("Deleted", answer.deleted);
        for before in &answer.prev_kvs {
            self.pair("Prev", before);
        }
        self
    }

    pub(crate) fn txn(&mut self, answer: &TxnResponse) -> &mut Lines {
        use response_op::Response;
        self.header(answer.header.as_ref()).line("Succeeded", answer.succeeded);
        for response in &answer.responses {
            match &response.response {
                Some(Response::ResponseRange(answer)) => self.range(answer),
                Some(Response::ResponsePut(answer)) => self.put(answer),
                Some(Response::ResponseDeleteRange(answer)) => self.delete(answer),
                Some(Response::ResponseTxn(answer)) => self.txn(answer),
                None => self,
            };
        }
        self
    }
}
