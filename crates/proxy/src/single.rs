//! Calls with one request and one answer.

use api::Message as _;
use api::etcdserverpb::RangeRequest;
use budget::Claim;
use bytes::Bytes;
use rpc::client::Room;
use rpc::{Address, Metadata, Status};
use std::sync::Arc;
use std::time::Duration;

use crate::held::{Held, Kept};
use crate::identity::Identity;
use crate::leasing::Leasing;
use crate::methods::Way;
use crate::namespace::Namespace;
use crate::order::{Order, revision_of};
use crate::reads::{Failure, Given, Reads, Written};
use crate::upstream::{Upstream, tell_unreached};

/// A call as its client has made it.
pub(crate) struct Asked {
    pub(crate) path: &'static str,
    pub(crate) way: Way,
    pub(crate) message: Bytes,
    /// What members are sent of its metadata.
    pub(crate) metadata: Metadata,
    pub(crate) timeout: Option<Duration>,
    pub(crate) client: Address,
    /// What it takes, if there was room at once.
    pub(crate) claim: Option<Claim>,
}

/// The method whose serializable answers are shared.
pub(crate) const RANGE: &str = "/etcdserverpb.KV/Range";
/// What the methods begin with that change who may read.
const AUTH: &str = "/etcdserverpb.Auth/";
pub(crate) const TXN: &str = "/etcdserverpb.KV/Txn";

/// Answers single calls.
#[derive(Clone, Debug)]
pub(crate) struct Singles {
    pub(crate) upstream: Arc<Upstream>,
    pub(crate) namespace: Namespace,
    pub(crate) held: Held,
    pub(crate) reads: Arc<Reads>,
    /// With `--experimental-serializable-ordering`.
    pub(crate) order: Option<Arc<Order>>,
    /// With `--experimental-leasing-prefix`.
    pub(crate) leasing: Option<Arc<Leasing>>,
}

impl Singles {
    /// Answers a call.
    ///
    /// # Errors
    /// What a member says; that there is no room.
    pub(crate) async fn answer(self, mut asked: Asked) -> Result<Bytes, Status> {
        let max = self.upstream.request_bytes_max();
        if asked.message.len() > max {
            let text = format!("trying to send message larger than max ({} vs. {max})", asked.message.len());
            return Err(Status::new(api::Code::ResourceExhausted, text));
        }
        let bytes = asked.message.len().saturating_add(asked.metadata.held_bytes());
        let claim = match asked.claim.take() {
            Some(claim) => claim,
            None => self.held.call_later(bytes, asked.client).await?,
        };
        let answer = match asked.way {
            Way::KeysRead => self.read(asked).await,
            Way::Read | Way::Members => self.forward(&asked).await,
            _ => self.write(&asked).await,
        };
        drop(claim);
        // A member's text and code are all that a client gets of its status.
        answer.map_err(|status| Status::new(status.code, status.message))
    }

    /// Reads keys. Serializable reads may be answered by what others have asked.
    async fn read(self, asked: Asked) -> Result<Bytes, Status> {
        if asked.path != RANGE {
            return self.forward(&asked).await;
        }
        if let Some(answer) = self.read_leased(&asked).await {
            return answer;
        }
        if let Some(order) = &self.order {
            return order.keep(self.upstream.members(), || self.forward(&asked)).await;
        }
        // What cannot be read is for the member to refuse.
        let request = RangeRequest::decode(asked.message.clone()).ok().filter(|request| request.serializable);
        let Some(request) = request else { return self.forward(&asked).await };
        let (reads, identity, message) = (self.reads.clone(), Identity::of(&asked.metadata), asked.message.clone());
        // Each client waits as long as it likes itself.
        let asked = Arc::new(Asked { timeout: None, ..asked });
        let ask = || {
            let (singles, asked) = (self.clone(), asked.clone());
            async move {
                let (room, kept) = singles.room(&asked);
                match singles.ask_within(&room, &asked, asked.path, asked.message.clone(), None, true).await {
                    Ok(answer) => Ok((answer, kept)),
                    Err(status) => Err(Failure { status, is_own: kept.was_refused() }),
                }
            }
        };
        match reads.answer(identity, message, &request, ask).await? {
            // Others may have it too: each on its own account.
            Given::Shared(answer) => self.held.again(answer, asked.client),
            Given::Own(answer, kept) => Ok(kept.hold(answer)),
        }
    }

    async fn write(&self, asked: &Asked) -> Result<Bytes, Status> {
        let written = self.reads.writes(asked.path, &asked.message);
        if let (Some(order), None, TXN) = (&self.order, &self.leasing, asked.path)
            && written.is_nothing()
        {
            // It reads. One that may write is made once, however old its answer is: members may have gone back.
            return order.keep(self.upstream.members(), || self.forward(asked)).await;
        }
        let leasing = self.leasing.as_deref().filter(|_| asked.path.starts_with(AUTH));
        // Also afterwards, even if its client does not wait for the answer.
        let after = After { reads: &self.reads, written, leasing };
        after.note();
        let answer = match &self.leasing {
            Some(leasing) => self.write_leased(leasing, asked).await,
            None => self.forward(asked).await,
        };
        if let (Some(order), Ok(answer)) = (&self.order, &answer) {
            order.shows(answer);
        }
        answer
    }

    /// Passes a call on as it is.
    pub(crate) async fn forward(&self, asked: &Asked) -> Result<Bytes, Status> {
        let is_read = matches!(asked.way, Way::Read | Way::KeysRead | Way::Members);
        self.ask(asked, asked.path, asked.message.clone(), asked.timeout, is_read).await
    }

    /// Asks members something on behalf of a call.
    pub(crate) async fn ask(
        &self,
        asked: &Asked,
        path: &'static str,
        message: Bytes,
        timeout: Option<Duration>,
        is_read: bool,
    ) -> Result<Bytes, Status> {
        let (room, kept) = self.room(asked);
        Ok(kept.hold(self.ask_within(&room, asked, path, message, timeout, is_read).await?))
    }

    /// Whether a member is asked about other keys than the client.
    fn is_rewritten(&self, asked: &Asked) -> bool {
        matches!(asked.way, Way::KeysRead | Way::KeysWrite) && !self.namespace.is_empty()
    }

    /// Room for the answer to a call, and its claim. One that is written anew is there twice meanwhile.
    fn room(&self, asked: &Asked) -> (Room, Kept) {
        self.held.apart(if self.is_rewritten(asked) { 2 } else { 1 }, asked.client)
    }

    /// The same as [`Singles::ask`], with a claim that is kept apart from the answer.
    async fn ask_within(
        &self,
        room: &Room,
        asked: &Asked,
        path: &'static str,
        message: Bytes,
        timeout: Option<Duration>,
        is_read: bool,
    ) -> Result<Bytes, Status> {
        let has_keys = matches!(asked.way, Way::KeysRead | Way::KeysWrite);
        let is_rewritten = self.is_rewritten(asked);
        let message = if is_rewritten { self.namespace.request(path, message)? } else { message };
        let upstream = self.upstream.client()?;
        let answer = upstream.forward(path, &asked.metadata, message, timeout, is_read, Some(room)).await;
        let answer = answer.inspect_err(tell_unreached)?;
        if let (Some(leasing), true) = (&self.leasing, has_keys) {
            leasing.saw(revision_of(&answer));
        }
        if is_rewritten { self.namespace.response(path, answer) } else { Ok(answer) }
    }
}

/// Notes a write before it is asked for, and when it is over.
struct After<'a> {
    reads: &'a Reads,
    written: Written,
    /// If it changes who may read.
    leasing: Option<&'a Leasing>,
}

impl After<'_> {
    fn note(&self) {
        self.reads.wrote(&self.written);
        self.leasing.into_iter().for_each(Leasing::doubt);
    }
}

impl Drop for After<'_> {
    fn drop(&mut self) {
        self.note();
    }
}
