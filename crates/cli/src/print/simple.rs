//! The simple form: key and value on a line each, and little else.

use super::Printer;
use super::go::hex;
use api::etcdserverpb::*;
use api::mvccpb::{Event, KeyValue};

impl Printer {
    /// A pair; keys are left out with `--print-value-only`.
    pub(crate) fn pair(self, out: &mut Vec<u8>, kv: &KeyValue) {
        if !self.values_only {
            self.text(out, &kv.key);
        }
        self.text(out, &kv.value);
    }

    fn text(self, out: &mut Vec<u8>, bytes: &[u8]) {
        if self.hex {
            out.extend_from_slice(hex(bytes).as_bytes())
        } else {
            out.extend_from_slice(bytes)
        }
        out.push(b'\n');
    }

    pub(crate) fn simple_range(self, answer: &RangeResponse) -> Vec<u8> {
        let mut out = Vec::new();
        answer.kvs.iter().for_each(|kv| self.pair(&mut out, kv));
        out
    }

    pub(crate) fn simple_put(self, answer: &PutResponse) -> Vec<u8> {
        let mut out = b"OK\n".to_vec();
        if let Some(before) = &answer.prev_kv {
            self.pair(&mut out, before);
        }
        out
    }

    pub(crate) fn simple_delete(self, answer: &DeleteRangeResponse) -> Vec<u8> {
        let mut out = format!("{}\n", answer.deleted).into_bytes();
        answer.prev_kvs.iter().for_each(|kv| self.pair(&mut out, kv));
        out
    }

    pub(crate) fn simple_txn(self, answer: &TxnResponse) -> Vec<u8> {
        use response_op::Response;
        let mut out = if answer.succeeded { b"SUCCESS\n".to_vec() } else { b"FAILURE\n".to_vec() };
        for response in &answer.responses {
            out.push(b'\n');
            match &response.response {
                Some(Response::ResponseRange(answer)) => out.extend(self.simple_range(answer)),
                Some(Response::ResponsePut(answer)) => out.extend(self.simple_put(answer)),
                Some(Response::ResponseDeleteRange(answer)) => out.extend(self.simple_delete(answer)),
                Some(Response::ResponseTxn(answer)) => out.extend(self.simple_txn(answer)),
                None => {}
            }
        }
        out
    }

    /// An event: its kind, the pair before it if that was asked for, and the pair.
    pub(crate) fn simple_event(self, event: &Event) -> Vec<u8> {
        let mut out = format!("{}\n", event.r#type().as_str_name()).into_bytes();
        if let Some(before) = &event.prev_kv {
            self.pair(&mut out, before);
        }
        if let Some(kv) = &event.kv {
            self.pair(&mut out, kv);
        }
        out
    }
}
