//! Between messages and the transport.

use super::parts;
use crate::node::{Node, Outcome};
use api::etcdserverpb::ResponseHeader;
use api::unread;
use api::{Code, Error, Message, limits};
use bytes::Bytes;
use contain::contain;
use rpc::{Reply, Responder, Status};
use store::{Response, Unread};

/// Decodes a request, or fails with gRPC's error.
pub(super) fn decode<M: Message + Default>(message: Bytes) -> Result<M, Status> {
    unread::decode(message).map_err(|unread| match unread {
        unread::Unread::Malformed(error) => unreadable(&error),
        unread::Unread::Panicked(panicked) => panicked.into(),
    })
}

/// gRPC's error for a message that does not decode.
pub(super) fn unreadable(error: &impl std::fmt::Display) -> Status {
    Status::new(Code::Internal, format!("grpc: error unmarshalling request: {error}"))
}

/// The status of a read that ends without an answer. Counts a read that was given up.
pub(super) fn unanswered(node: &Node, unread: Unread) -> Status {
    match unread {
        Unread::Refused(error) => error.into(),
        Unread::Unwanted => {
            node.slow.count_canceled();
            Status::new(Code::Canceled, "context canceled")
        }
        Unread::TooMuch => Error::TooManyRequests.into(),
    }
}

/// Encodes a reply.
pub(super) fn encode(message: &impl Message) -> Result<Reply, Status> {
    contain(|| match message.encoded_len() {
        len if len > limits::SEND_BYTES_MAX => Err(Status::too_large_to_send(len)),
        _ => {
            let encoded = message.encode_to_vec();
            #[cfg(test)]
            crate::planted::panic_over_answer(&encoded);
            Ok(Reply::Whole(encoded.into()))
        }
    })?
}

/// A responder's reply to `error`.
pub(super) fn refuse(responder: Responder, error: impl Into<Status>) {
    responder.send(Err(error.into()));
}

/// Fills in the fields of a header that the store does not know: the cluster, the member and the term.
pub(super) fn complete(node: &Node, header: &mut Option<ResponseHeader>) {
    let revision = header.as_ref().map_or(0, |header| header.revision);
    *header = Some(node.header(revision));
}

/// Whether an answer is encoded while it is sent.
fn is_long(len: usize) -> bool {
    (limits::TURN_BYTES_MAX..=limits::SEND_BYTES_MAX).contains(&len)
}

/// The reply to a proposal's outcome.
pub(super) fn outcome(node: &Node, outcome: Outcome) -> Result<Reply, Status> {
    let mut response = outcome?;
    match &mut response {
        Response::Put(put) => {
            complete(node, &mut put.header);
            encode(put)
        }
        Response::DeleteRange(deleted) => {
            complete(node, &mut deleted.header);
            match deleted.encoded_len() {
                len if is_long(len) => Ok(parts::deletion(len, std::mem::take(deleted))),
                _ => encode(deleted),
            }
        }
        Response::Txn(txn) => {
            complete(node, &mut txn.header);
            encode(txn)
        }
        Response::Range(range) => {
            complete(node, &mut range.header);
            encode(range)
        }
        Response::Compaction(compaction) => {
            complete(node, &mut compaction.header);
            encode(compaction)
        }
        Response::LeaseGrant(grant) => {
            complete(node, &mut grant.header);
            encode(grant)
        }
        Response::LeaseRevoke(_, revoke) => {
            complete(node, &mut revoke.header);
            encode(revoke)
        }
        Response::LeaseCheckpoint(checkpoint) => {
            complete(node, &mut checkpoint.header);
            encode(checkpoint)
        }
        Response::Alarm(alarm) => {
            complete(node, &mut alarm.header);
            encode(alarm)
        }
        Response::Auth(answer, _) => {
            complete(node, &mut answer.header);
            encode(answer)
        }
        Response::None => Ok(Reply::Whole(Bytes::new())),
    }
}
