//! Keeps leases alive: those of one client over one stream.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use api::etcdserverpb::{LeaseKeepAliveRequest, LeaseKeepAliveResponse};
use api::{Code, Message};
use parking_lot::Mutex;
use rpc::Status;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::call::read;
use crate::client::Client;
use crate::{Error, retry};

/// The path of the method.
const KEEP_ALIVE: &str = "/etcdserverpb.Lease/LeaseKeepAlive";
/// How soon a lease is kept alive again when nobody answered.
const RETRY: Duration = Duration::from_millis(500);
/// A lease of which nothing is known yet is given so long.
const FIRST: Duration = Duration::from_secs(5);

/// The leases of a client that are kept alive, and whether somebody does.
#[derive(Default)]
pub(crate) struct KeepAlives {
    leases: Arc<Mutex<Leases>>,
}

#[derive(Default)]
struct Leases {
    by_id: HashMap<i64, Kept>,
    has_task: bool,
    changed: Arc<tokio::sync::Notify>,
}

struct Kept {
    /// Seconds granted by the last answer; 0: the lease is no more.
    ttl: watch::Sender<Option<i64>>,
    due: Instant,
    expires: Instant,
}

/// A lease that is kept alive until this is dropped. Dropping it does not revoke the lease: it ends when its time is over.
pub struct KeepAlive {
    id: i64,
    client: Client,
    ttl: watch::Receiver<Option<i64>>,
}

impl Client {
    /// Keeps the lease `id` alive: asks for more time after each third of it.
    pub fn keep_alive(&self, id: i64) -> KeepAlive {
        let mut leases = self.inner.keep_alives.leases.lock();
        let now = Instant::now();
        let kept = leases.by_id.entry(id).or_insert_with(|| Kept {
            ttl: watch::Sender::new(None),
            due: now,
            expires: now + FIRST,
        });
        let ttl = kept.ttl.subscribe();
        if !leases.has_task {
            leases.has_task = true;
            let (own, client) = (self.inner.keep_alives.leases.clone(), self.clone());
            // Ends when the last lease is let go of, so it does not keep the client for ever.
            tokio::spawn(async move { run(&own, &client).await });
        }
        leases.changed.notify_one();
        drop(leases);
        KeepAlive { id, client: self.clone(), ttl }
    }

    /// Keeps the lease `id` alive once; returns the seconds it has from now on.
    ///
    /// # Errors
    /// [`Error::LeaseGone`], or what the members answered.
    pub async fn keep_alive_once(&self, id: i64) -> Result<LeaseKeepAliveResponse, Error> {
        let patience = self.inner.options.call_timeout;
        let mut attempt = 0;
        let asked = async {
            loop {
                let status = match ask_once(self, id).await {
                    Ok(answer) => return Ok(answer),
                    Err(status) => status,
                };
                attempt += 1;
                if !retry::is_passing(&status) || attempt >= retry::ATTEMPTS_MAX {
                    return Err(status);
                }
                self.pause(attempt, &status).await;
            }
        };
        let answer = self.within(patience, asked).await?;
        if answer.ttl <= 0 { Err(Error::LeaseGone(id)) } else { Ok(answer) }
    }
}

impl KeepAlive {
    /// The lease.
    pub fn id(&self) -> i64 {
        self.id
    }

    /// Waits for the next answer; returns the seconds that the lease has from now on.
    ///
    /// # Errors
    /// [`Error::LeaseGone`] once the lease has expired or was revoked.
    pub async fn next(&mut self) -> Result<i64, Error> {
        if self.ttl.changed().await.is_err() {
            return Err(Error::LeaseGone(self.id));
        }
        match *self.ttl.borrow_and_update() {
            Some(ttl) if ttl > 0 => Ok(ttl),
            _ => Err(Error::LeaseGone(self.id)),
        }
    }

    /// Waits until the lease is no more.
    pub async fn gone(&mut self) {
        while self.next().await.is_ok() {}
    }
}

impl Drop for KeepAlive {
    fn drop(&mut self) {
        let mut leases = self.client.inner.keep_alives.leases.lock();
        // This one still counts itself.
        if leases.by_id.get(&self.id).is_some_and(|kept| kept.ttl.receiver_count() <= 1) {
            leases.by_id.remove(&self.id);
            leases.changed.notify_one();
        }
    }
}

async fn ask_once(client: &Client, id: i64) -> Result<LeaseKeepAliveResponse, Status> {
    let ticket = client.ticket(None).await?;
    let (_member, mut call) = client.open(KEEP_ALIVE, &ticket).await.map_err(|failure| failure.status)?;
    let _ = call.send(LeaseKeepAliveRequest { id }.encode_to_vec().into()).await;
    call.finish();
    match call.next().await? {
        Some(message) => LeaseKeepAliveResponse::decode(message)
            .map_err(|error| Status::new(Code::Internal, format!("a keep-alive's answer cannot be read: {error}"))),
        None => Err(Status::new(Code::Unavailable, "the member ended the stream without an answer")),
    }
}

/// Speaks on one stream after the other, until there is nothing to keep alive any more.
async fn run(leases: &Mutex<Leases>, client: &Client) {
    let mut refused = None;
    let mut attempt = 0;
    loop {
        let opened = async {
            let ticket = client.ticket(refused.take().as_ref()).await?;
            let (member, call) = client.open(KEEP_ALIVE, &ticket).await.map_err(|failure| failure.status)?;
            Ok::<_, Status>((ticket, member, call))
        };
        let (ticket, _member, mut call) = match opened.await {
            Ok(opened) => opened,
            Err(status) => {
                attempt += 1;
                client.pause(attempt, &status).await;
                tokio::time::sleep(RETRY).await;
                if !tidy(leases) {
                    return;
                }
                continue;
            }
        };
        let changed = leases.lock().changed.clone();
        let status = loop {
            for id in due(leases) {
                if let Err(status) = call.send(LeaseKeepAliveRequest { id }.encode_to_vec().into()).await {
                    // How it ended is told when it is read.
                    drop(status);
                    break;
                }
            }
            let Some(wake_at) = next_due(leases) else { return };
            tokio::select! {
                answer = call.next() => match answer {
                    Ok(Some(message)) => take(leases, message),
                    Ok(None) => break Status::new(Code::Unavailable, "the member ended the stream"),
                    Err(status) => break status,
                },
                () = tokio::time::sleep_until(wake_at) => {}
                () = changed.notified() => {}
            }
        };
        if retry::wants_another_token(&status) {
            refused = Some(ticket);
        }
        attempt += 1;
        client.pause(attempt, &status).await;
        tokio::time::sleep(RETRY).await;
        if !tidy(leases) {
            return;
        }
        // The new stream is to hear of all that the old one did not answer.
        let now = Instant::now();
        leases.lock().by_id.values_mut().for_each(|kept| kept.due = kept.due.min(now + RETRY));
    }
}

/// The leases that are to be asked for now; they are due again soon if no answer comes.
fn due(leases: &Mutex<Leases>) -> Vec<i64> {
    let now = Instant::now();
    let mut leases = leases.lock();
    let due = leases.by_id.iter_mut().filter(|(_, kept)| kept.due <= now);
    due.map(|(id, kept)| {
        kept.due = now + RETRY;
        *id
    })
    .collect()
}

/// When there is something to do next. None, and the task is to end, if nothing is kept alive any more.
fn next_due(leases: &Mutex<Leases>) -> Option<Instant> {
    if !tidy(leases) {
        return None;
    }
    leases.lock().by_id.values().map(|kept| kept.due.min(kept.expires)).min()
}

/// Lets go of leases whose time is over. False if none is left: then the task has ended.
fn tidy(leases: &Mutex<Leases>) -> bool {
    let now = Instant::now();
    let mut leases = leases.lock();
    leases.by_id.retain(|_, kept| kept.expires > now);
    if leases.by_id.is_empty() {
        leases.has_task = false;
    }
    leases.has_task
}

fn take(leases: &Mutex<Leases>, message: bytes::Bytes) {
    let Ok(answer) = read::<LeaseKeepAliveResponse>(KEEP_ALIVE, message) else { return };
    let mut leases = leases.lock();
    if answer.ttl <= 0 {
        // Those who wait learn of it by the sender's end.
        leases.by_id.remove(&answer.id);
        return;
    }
    if let Some(kept) = leases.by_id.get_mut(&answer.id) {
        let (now, ttl) = (Instant::now(), Duration::from_secs(answer.ttl.unsigned_abs()));
        kept.due = now + ttl / 3;
        kept.expires = now + ttl;
        kept.ttl.send_replace(Some(answer.ttl));
    }
}
