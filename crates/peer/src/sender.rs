//! The sender of a request, by its headers.

use crate::answers::{Refusal, refusal};
use crate::identity::{self, CLUSTER_ID, PEER_URLS, SERVER_VERSION};
use crate::shared::Shared;
use http::{HeaderMap, StatusCode};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use telemetry::logging::{self, Pace, Value};

/// The member of this cluster, or the observer that follows this process, that a request names as its sender.
pub(crate) fn member(shared: &Shared, headers: &HeaderMap) -> Option<u64> {
    let from = identity::sender(headers).filter(|_| shared.identity.check(headers).is_ok())?;
    let is_member = shared.peer(from).is_some_and(|peer| peer.is_dialled.load(Ordering::SeqCst));
    (is_member || shared.followers.has(from)).then_some(from)
}

/// Refuses senders of other clusters and of incompatible versions.
pub(crate) fn check(shared: &Shared, headers: &HeaderMap) -> Result<(), Refusal> {
    shared.identity.check(headers).map_err(|mismatch| {
        static PACE: Pace = Pace::new();
        if let Some(left_out) = PACE.line() {
            let show = |name| identity::text(headers, &name).unwrap_or_default();
            logging::warn(
                "refused a request of a peer",
                &[
                    ("error", Value::Shown(&mismatch)),
                    ("remote-peer-server-name", show(identity::SERVER_FROM).into()),
                    ("remote-peer-server-version", show(SERVER_VERSION).into()),
                    ("remote-peer-server-minimum-cluster-version", show(identity::MIN_CLUSTER_VERSION).into()),
                    ("remote-peer-cluster-id", show(CLUSTER_ID).into()),
                    ("lines-left-out", left_out.into()),
                    ("local-member-cluster-id", Value::Shown(&format_args!("{:x}", shared.identity.cluster_id))),
                ],
            );
        }
        Refusal::from(refusal(StatusCode::PRECONDITION_FAILED, mismatch))
    })
}

/// Remembers where a sender that this member does not know can be reached.
pub(crate) fn note_sender(shared: &Arc<Shared>, headers: &HeaderMap) {
    if let (Some(from), Some(urls)) = (identity::sender(headers), identity::text(headers, &PEER_URLS)) {
        shared.set_remote(from, urls);
    }
}
