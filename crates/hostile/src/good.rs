//! The good client, which does no harm and waits as long as a person would.

use api::Code;
use api::Message;
use bytes::Bytes;
use rpc::client::{Channel, Options};
use rpc::{Metadata, Status};
use std::net::SocketAddr;
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;

/// A member that has not answered by then never will: no machine is that busy.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);
/// How long one attempt may take.
const ATTEMPT: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(10);

pub(crate) struct Good {
    runtime: Runtime,
    channel: Channel,
    token: Metadata,
}

impl Good {
    pub(crate) fn new(address: SocketAddr) -> std::io::Result<Good> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build()?;
        let options = Options { connect_timeout: PATIENCE, ..Options::default() };
        let channel = Channel::new(&address.to_string(), options);
        Ok(Good { runtime, channel, token: Metadata::default() })
    }

    /// Calls are made with this token from now on.
    pub(crate) fn take_token(&mut self, token: &str) {
        self.token = [("token", token)].into_iter().collect();
    }

    /// One call, one attempt.
    pub(crate) fn call<A: Message + Default>(&self, path: &str, request: &impl Message) -> Result<A, Status> {
        let bytes = Bytes::from(request.encode_to_vec());
        let answer = self.runtime.block_on(self.channel.unary(path, &self.token, bytes, Some(ATTEMPT)))?;
        A::decode(answer).map_err(|error| Status::new(Code::Internal, error.to_string()))
    }

    /// The same until something else comes than that the member is busy or without a leader.
    pub(crate) fn insist<A: Message + Default>(&self, path: &str, request: &impl Message) -> Result<A, Status> {
        let until = Instant::now() + PATIENCE;
        loop {
            let answer = self.call(path, request);
            let is_passing = |status: &Status| {
                matches!(status.code, Code::Unavailable | Code::DeadlineExceeded | Code::Canceled | Code::Unknown)
                    || (status.code == Code::ResourceExhausted && status.message.contains("too many requests"))
            };
            match answer {
                Err(status) if is_passing(&status) && Instant::now() < until => std::thread::sleep(PAUSE),
                answer => return answer,
            }
        }
    }
}
