//! Calls of one message and one answer.

use crate::decode;
use crate::encode::{Encoder, Run};
use crate::limits::Limits;
use crate::status::failure;
use crate::table::Target;
use crate::values::{Value, Values};
use api::Code;
use bytes::Bytes;
use http::{HeaderValue, Response, header};
use rpc::{HttpResponder, LocalCall, Reply, Service, Source, Status};

/// JSON made at once. Shorter answers are sent whole.
pub(crate) const CHUNK_BYTES: usize = 64 * 1024;

/// The message that `body` says. As with etcd, an empty body is an empty message, and what stands after the first value is not
/// looked at.
pub(crate) fn message(body: &[u8], target: &Target, limits: &Limits) -> Result<Bytes, Status> {
    let mut values = Values::new(limits.json_bytes_max());
    values.push(body);
    let invalid = |text| Status::new(Code::InvalidArgument, text);
    match values.next(true).map_err(invalid)? {
        None => Ok(Bytes::new()),
        Some(value) => decoded(&value, target, limits),
    }
}

/// The message that one JSON value says.
pub(crate) fn decoded(value: &Value, target: &Target, limits: &Limits) -> Result<Bytes, Status> {
    let message = decode::message(value, target.request).map_err(|text| Status::new(Code::InvalidArgument, text))?;
    let (len, max) = (message.len(), limits.message_bytes_max);
    if len > max {
        let text = format!("grpc: received message larger than max ({len} vs. {max})");
        return Err(Status::new(Code::ResourceExhausted, text));
    }
    Ok(message.into())
}

/// A response without its body.
pub(crate) fn head() -> Response<()> {
    let mut head = Response::new(());
    let headers = head.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert("grpc-metadata-content-type", HeaderValue::from_static("application/grpc"));
    head
}

/// Makes the call and sends its answer.
pub(crate) async fn answer(
    service: &dyn Service,
    target: Target,
    call: LocalCall,
    message: Bytes,
    mut responder: HttpResponder,
) {
    let answered = tokio::select! {
        answered = call.unary(service, message) => answered,
        () = responder.gone() => return,
    };
    match answered {
        Ok(reply) => send(Json::new(reply, &target), responder).await,
        Err(status) => responder.send(failure(&status)),
    }
}

async fn send(mut json: Json, responder: HttpResponder) {
    let broken = |responder: HttpResponder| {
        let mut response = failure(&Status::new(Code::Internal, "the answer is not what it says"));
        // As after every other slip.
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
        responder.send(response);
    };
    let first = match json.next() {
        Ok(first) => first.unwrap_or_default(),
        Err(Broken) => return broken(responder),
    };
    if first.len() < CHUNK_BYTES {
        return responder.send(head().map(|()| first));
    }
    let mut body = responder.begin(head());
    let mut chunk = first;
    loop {
        if body.send(chunk).await.is_err() {
            return;
        }
        // Others want to use the thread.
        tokio::task::yield_now().await;
        chunk = match json.next() {
            Ok(Some(chunk)) => chunk,
            Ok(None) => return body.finish(),
            // Dropping the body says that it is not whole.
            Err(Broken) => return,
        };
    }
}

/// An answer that is not what it says, or ends before its length.
pub(crate) struct Broken;

/// A reply on its way to JSON, which is made of its pieces as they are: it takes no memory that would have to be claimed.
pub(crate) struct Json {
    encoder: Encoder,
    source: Option<Box<dyn Source>>,
    /// Bytes of the message that the source has yet to bring.
    left: usize,
    done: bool,
}

impl Json {
    pub(crate) fn new(reply: Reply, target: &Target) -> Json {
        let (encoder, source, left) = match reply {
            Reply::Whole(message) => (Encoder::whole(target.response, message), None, 0),
            Reply::Parts { len, source } => (Encoder::new(target.response), Some(source), len),
        };
        Json { encoder, source, left, done: false }
    }

    /// The next piece of the text, of [`CHUNK_BYTES`] or a little more except the last; none after it.
    pub(crate) fn next(&mut self) -> Result<Option<Bytes>, Broken> {
        let mut out = Vec::new();
        while !self.done {
            match self.encoder.run(&mut out, CHUNK_BYTES).map_err(|_| Broken)? {
                Run::Full => break,
                Run::Done => self.done = true,
                Run::Hungry => match self.source.as_mut().and_then(|source| source.next(CHUNK_BYTES)) {
                    Some(piece) => {
                        self.left = self.left.checked_sub(piece.len()).ok_or(Broken)?;
                        self.encoder.push(piece);
                    }
                    // Between two fields the text would look whole.
                    None if self.left > 0 => return Err(Broken),
                    None => self.encoder.finish(),
                },
            }
        }
        Ok(Some(Bytes::from(out)).filter(|out| !out.is_empty()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::Table;
    use rpc::{Chunks, Kind};

    #[test]
    fn an_answer_that_ends_between_two_fields_is_not_whole() {
        let target = Table::of("/etcdserverpb.KV/Range", Kind::Unary).find("/v3/kv/range").expect("a method");
        // `more`, then `count`.
        let fields = [Bytes::from_static(&[0x18, 1]), Bytes::from_static(&[0x20, 5])];
        let text = |fields: &[Bytes]| {
            let source: Chunks = fields.iter().cloned().collect();
            let next = Json::new(Reply::Parts { len: 4, source: Box::new(source) }, &target).next();
            next.map(|text| text.unwrap_or_default()).ok()
        };
        assert_eq!(text(&fields).as_deref(), Some(&br#"{"more":true,"count":"5"}"#[..]));
        for broken in [&fields[..1], &[], &[fields.clone(), fields.clone()].concat()] {
            assert_eq!(text(broken), None);
        }
    }
}
