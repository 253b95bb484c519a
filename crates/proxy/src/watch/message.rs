//! What clients are told.

use api::etcdserverpb::{ResponseHeader, WatchResponse};
use api::mvccpb::Event;
use bytes::Bytes;
use prost::Message as _;

use super::picked::Selection;
use super::{NO_WATCH, WatchId};

/// A fragment is cut off before it is larger than this, as in etcd: what a request may have, and what gRPC may add.
const FRAGMENT_BYTES_MAX: usize = api::limits::REQUEST_BYTES_MAX + api::limits::GRPC_OVERHEAD_BYTES;

/// One thing that a client is told.
#[derive(Clone, Debug)]
pub(crate) enum Telling {
    /// Anything but events.
    Plain(WatchResponse),
    /// Events for one of its watches.
    Events {
        watch: WatchId,
        /// The first revision that the watch had not been sent before.
        from: i64,
        /// Whether they may come in several messages.
        fragment: bool,
        selection: Selection,
    },
}

impl Telling {
    /// Whether it says how far watches are, and so nothing that must not be left out.
    pub(crate) fn is_progress(&self) -> bool {
        matches!(self, Telling::Plain(response) if !response.created && !response.canceled)
    }

    /// Whether it is progress that no client has asked for: that of one watch.
    pub(crate) fn is_unasked(&self) -> bool {
        self.is_progress() && matches!(self, Telling::Plain(response) if response.watch_id != NO_WATCH)
    }

    /// About what it takes until it is sent. A batch counts for everybody who waits for it.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Telling::Plain(_) => 128,
            Telling::Events { selection, .. } => selection.bytes().saturating_add(128),
        }
    }
}

/// The messages of it.
pub(crate) fn encode(telling: Telling) -> Vec<Bytes> {
    match telling {
        Telling::Plain(response) => vec![response.encode_to_vec().into()],
        Telling::Events { watch, fragment, selection, .. } => {
            let (header, mut events) = (&selection.batch.header, selection.events().peekable());
            if !fragment || selection.batch.bytes < FRAGMENT_BYTES_MAX {
                return vec![events_message(header, watch, false, events)];
            }
            let mut messages = Vec::new();
            while let Some(first) = events.next() {
                // One that is too large goes alone.
                let (mut bytes, mut part) = (first.encoded_len(), vec![first]);
                let mut fits = |event: &&Event| {
                    bytes = bytes.saturating_add(event.encoded_len());
                    bytes < FRAGMENT_BYTES_MAX
                };
                while let Some(event) = events.next_if(&mut fits) {
                    part.push(event);
                }
                messages.push(events_message(header, watch, events.peek().is_some(), part.into_iter()));
            }
            messages
        }
    }
}

fn events_message<'a>(
    header: &ResponseHeader,
    watch: WatchId,
    fragment: bool,
    events: impl Iterator<Item = &'a Event>,
) -> Bytes {
    let head = WatchResponse { header: Some(*header), watch_id: watch, fragment, ..WatchResponse::default() };
    // The last field of the message: what was encoded before stays valid.
    let mut message = head.encode_to_vec();
    for event in events {
        prost::encoding::message::encode(11, event, &mut message);
    }
    message.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::watch::feed::{Batch, Live};
    use crate::watch::picked::Wants;
    use api::mvccpb::KeyValue;
    use std::sync::Arc;

    #[test]
    fn fragments_are_cut_between_events() {
        let event = |revision: i64, bytes: usize| Event {
            kv: Some(KeyValue { mod_revision: revision, value: vec![7; bytes].into(), ..KeyValue::default() }),
            ..Event::default()
        };
        let events = vec![event(5, 10), event(5, 1 << 20), event(5, 1 << 20), event(6, 3 << 20), event(6, 10)];
        let header = ResponseHeader { revision: 9, ..ResponseHeader::default() };
        let batch = Arc::new(Batch::new(header, events.clone(), 0, &Live::default()).expect("events"));
        let told = |fragment| {
            let selection = Selection { batch: batch.clone(), about: None, wants: Wants::default() };
            let telling = Telling::Events { watch: 3, from: 1, fragment, selection };
            let read = |message: Bytes| WatchResponse::decode(message).expect("a response");
            encode(telling).into_iter().map(read).collect::<Vec<_>>()
        };
        let whole = told(false);
        assert_eq!((whole.len(), &whole[0].events, whole[0].fragment), (1, &events, false));
        let parts = told(true);
        assert_eq!(parts.iter().map(|part| part.events.len()).collect::<Vec<_>>(), [2, 1, 1, 1]);
        assert_eq!(parts.iter().map(|part| part.fragment).collect::<Vec<_>>(), [true, true, true, false]);
        assert!(parts.iter().all(|part| part.watch_id == 3 && part.header == Some(header)));
        assert_eq!(parts.into_iter().flat_map(|part| part.events).collect::<Vec<_>>(), events);
    }
}
