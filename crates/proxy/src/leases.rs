//! Lease keep-alives: those of clients with the same identity share one stream to a member.
//!
//! Every request of a client is a request to the member, and every answer goes to the client whose request it answers: nothing is kept
//! alive that its client has stopped keeping alive.

mod circle;
mod client;

pub(crate) use client::KeepingAlive;

use parking_lot::Mutex;
use rpc::{Status, StreamWaker};
use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::identity::Identity;
use crate::upstream::Upstream;
use circle::keep_circle;
use client::Mailbox;

/// A stream of a client.
type ClientId = u64;
/// Identities that may keep leases alive at a time.
const CIRCLES_MAX: usize = 4_096;

/// What a client's stream tells its circle.
enum Command {
    Open(ClientId, Arc<Mailbox>),
    /// A lease that is to be kept alive.
    Ask(ClientId, i64),
    /// The client asks for nothing more.
    HalfClose(ClientId),
    Close(ClientId),
}

/// The circles of all identities.
type Circles = Mutex<HashMap<Identity, UnboundedSender<Command>>>;

/// Keeps leases alive for all clients.
#[derive(Clone, Debug)]
pub(crate) struct Leases(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    circles: Circles,
    /// Circles that begin, for the thread.
    begin: UnboundedSender<(Identity, UnboundedReceiver<Command>)>,
    last: AtomicU64,
}

impl Leases {
    /// Starts the thread that has the streams to members.
    ///
    /// # Errors
    /// If there can be none.
    pub(crate) fn start(upstream: Arc<Upstream>) -> io::Result<Leases> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (begin, mut beginning) = unbounded_channel::<(Identity, UnboundedReceiver<Command>)>();
        let shared = Arc::new(Shared { circles: Mutex::default(), begin, last: AtomicU64::new(0) });
        let of_thread = Arc::downgrade(&shared);
        std::thread::Builder::new().name("leases".into()).spawn(move || {
            runtime.block_on(async {
                while let Some((identity, commands)) = beginning.recv().await {
                    let Some(shared) = of_thread.upgrade() else { return };
                    tokio::spawn(keep_circle(upstream.clone(), identity, commands, shared));
                }
            });
        })?;
        Ok(Leases(shared))
    }

    /// A stream of a client begins.
    ///
    /// # Errors
    /// If there are too many identities.
    pub(crate) fn open(
        &self,
        identity: Identity,
        waker: StreamWaker,
        claim: budget::Claim,
    ) -> Result<KeepingAlive, Status> {
        let id = self.0.last.fetch_add(1, Ordering::Relaxed);
        let mailbox = Arc::new(Mailbox::new(move || waker.wake()));
        let mut circles = self.0.circles.lock();
        let commands = match circles.get(&identity) {
            Some(commands) => commands.clone(),
            None if circles.len() >= CIRCLES_MAX => return Err(api::Error::TooManyRequests.into()),
            None => {
                let (commands, queue) = unbounded_channel();
                circles.insert(identity.clone(), commands.clone());
                // The thread never ends before the process.
                let _ = self.0.begin.send((identity, queue));
                commands
            }
        };
        // Under the lock: a circle ends only if nothing was sent to it.
        let _ = commands.send(Command::Open(id, mailbox.clone()));
        Ok(KeepingAlive::new(id, mailbox, commands, claim))
    }
}

impl Shared {
    /// Ends a circle, unless something was sent to it meanwhile: that is returned.
    fn end(&self, identity: &Identity, commands: &mut UnboundedReceiver<Command>) -> Option<Command> {
        let mut circles = self.circles.lock();
        let more = commands.try_recv().ok();
        if more.is_none() {
            circles.remove(identity);
        }
        more
    }
}
