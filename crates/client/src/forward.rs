//! Calls that are passed on as they came: for a proxy, whose clients have their own metadata.

use bytes::Bytes;
use rpc::client::{Room, StreamingCall};
use rpc::{Metadata, Status};
use std::pin::pin;
use std::time::Duration;

use crate::client::Client;
use crate::retry::{ATTEMPTS_MAX, Failure, Repeat};

impl Client {
    /// A call with this metadata and no other, on whichever member is next. It is made again where that does no harm: if it was
    /// certainly not sent, or if `is_read` and a member was unavailable. The answer is taken in only if `room` has room for it.
    ///
    /// # Errors
    /// What the member says; that none can be reached ([`is_unreached`](crate::is_unreached)); that `timeout` is over; that there is no room.
    pub async fn forward(
        &self,
        path: &str,
        metadata: &Metadata,
        message: Bytes,
        timeout: Option<Duration>,
        is_read: bool,
        room: Option<&Room>,
    ) -> Result<Bytes, Status> {
        let repeat = if is_read { Repeat::Always } else { Repeat::Unsent };
        // Pinned here: a proxy moves the state of each call that it passes on, and it shall be small.
        let calls = pin!(async {
            let mut attempt = 0;
            loop {
                let member = self.inner.balancer.pick_soon().await?;
                let status =
                    match member.channel.unary_within(path, metadata, message.clone(), timeout, room.cloned()).await {
                        Ok(answer) => return Ok(answer),
                        Err(status) => status,
                    };
                attempt += 1;
                let failure = Failure { is_unsent: status.is_unsent(), status };
                let can_repeat = repeat.allows(&failure) || self.can_ask_elsewhere(&failure.status, attempt);
                if !can_repeat || (attempt >= ATTEMPTS_MAX && !failure.is_unsent) {
                    return Err(failure.status);
                }
                self.pause(attempt, &failure.status).await;
            }
        });
        self.within(timeout, calls).await
    }

    /// A call with messages both ways and this metadata, on whichever member is next.
    ///
    /// # Errors
    /// If none can be reached ([`is_unreached`](crate::is_unreached)), or the member cannot be any more.
    pub async fn forward_stream(
        &self,
        path: &str,
        metadata: &Metadata,
        timeout: Option<Duration>,
    ) -> Result<StreamingCall, Status> {
        let opened = async {
            let member = self.inner.balancer.pick_soon().await?;
            member.channel.stream(path, metadata, timeout).await
        };
        self.within(timeout, opened).await
    }
}
