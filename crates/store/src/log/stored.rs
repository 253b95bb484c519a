//! Stored bytes as messages.

use super::KvView;
use api::mvccpb::KeyValue;
use bytes::Bytes;

/// Takes stored bytes apart. They were checked when the log was opened.
pub(crate) fn parse(stored: &[u8]) -> KvView<'_> {
    let Some(view) = KvView::parse(stored) else {
        panic!(
            "stored bytes are no `KeyValue`: they were when the log was opened, so its file has changed under the mapping"
        )
    };
    view
}

/// The message, whose bytes are parts of these.
pub(crate) fn shared_message(stored: &Bytes) -> KeyValue {
    let view = parse(stored);
    KeyValue {
        key: stored.slice_ref(view.key),
        create_revision: view.create,
        mod_revision: view.modified,
        version: view.version,
        value: stored.slice_ref(view.value),
        lease: view.lease,
    }
}

/// The message, its bytes copied.
pub(crate) fn to_message(stored: &[u8]) -> KeyValue {
    let view = parse(stored);
    KeyValue {
        key: Bytes::copy_from_slice(view.key),
        create_revision: view.create,
        mod_revision: view.modified,
        version: view.version,
        value: Bytes::copy_from_slice(view.value),
        lease: view.lease,
    }
}
