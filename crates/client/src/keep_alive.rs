//! Keeps leases alive: those of one client over one stream.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use api::etcdserverpb::{LeaseKeepAliveRequest, LeaseKeepAliveResponse};
use api::limits::LEASE_TTL_SECONDS_MAX;
use api::{Code, Message};
use parking_lot::Mutex;
use rpc::Status;
use rpc::client::StreamingCall;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::call::read;
use crate::client::Client;
use crate::{Error, retry};

/// The path of the method.
const KEEP_ALIVE: &str = "/etcdserverpb.Lease/LeaseKeepAlive";
/// How soon a lease is kept alive again when no member answered.
const RETRY: Duration = Duration::from_millis(500);
/// A lease of which nothing is known yet is given so long.
const FIRST: Duration = Duration::from_secs(5);

/// The leases of a client that are kept alive, and whether a task does so.
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
    /// The last answer.
    answer: watch::Sender<Option<LeaseKeepAliveResponse>>,
    due: Instant,
    expires: Instant,
}

/// A lease that is kept alive until this is dropped. Dropping it does not revoke the lease: it ends when its time is over.
pub struct KeepAlive {
    id: i64,
    client: Client,
    answer: watch::Receiver<Option<LeaseKeepAliveResponse>>,
}

impl Client {
    /// Keeps the lease `id` alive: asks for more time after each third of it.
    pub fn keep_alive(&self, id: i64) -> KeepAlive {
        let mut leases = self.inner.keep_alives.leases.lock();
        let now = Instant::now();
        let kept = leases.by_id.entry(id).or_insert_with(|| Kept {
            answer: watch::Sender::new(None),
            due: now,
            expires: now + FIRST,
        });
        let answer = kept.answer.subscribe();
        if !leases.has_task {
            leases.has_task = true;
            let (own, client) = (self.inner.keep_alives.leases.clone(), self.clone());
            // Ends when the last lease is dropped, so it does not keep the client for ever.
            tokio::spawn(async move { run(&own, &client).await });
        }
        leases.changed.notify_one();
        drop(leases);
        KeepAlive { id, client: self.clone(), answer }
    }

    /// Keeps the lease `id` alive once; returns the seconds it has from now on. Waits for a member as long as a call may take.
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
                if !retry::is_passing(&status) && !self.can_ask_elsewhere(&status, attempt) {
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
        Ok(self.next_answer().await?.ttl)
    }

    /// [`KeepAlive::next`] with all that the member has answered.
    ///
    /// # Errors
    /// The same.
    pub async fn next_answer(&mut self) -> Result<LeaseKeepAliveResponse, Error> {
        if self.answer.changed().await.is_err() {
            return Err(Error::LeaseGone(self.id));
        }
        match *self.answer.borrow_and_update() {
            Some(answer) if answer.ttl > 0 => Ok(answer),
            _ => Err(Error::LeaseGone(self.id)),
        }
    }

    /// Waits until the lease has ended.
    pub async fn gone(&mut self) {
        while self.next().await.is_ok() {}
    }
}

impl Drop for KeepAlive {
    fn drop(&mut self) {
        let mut leases = self.client.inner.keep_alives.leases.lock();
        // This one still counts itself. The lease may have ended, and be kept alive again by others: that is none of its business.
        let is_last =
            |kept: &Kept| kept.answer.receiver_count() <= 1 && self.answer.same_channel(&kept.answer.subscribe());
        if leases.by_id.get(&self.id).is_some_and(is_last) {
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
            let ticket = client.ticket(refused.as_ref()).await?;
            let (member, call) = client.open(KEEP_ALIVE, &ticket).await.map_err(|failure| failure.status)?;
            Ok::<_, Status>((ticket, member, call))
        };
        let status = match meanwhile(leases, opened).await {
            None => return,
            Some(Err(status)) => status,
            Some(Ok((ticket, _member, call))) => {
                let Some(status) = speak(leases, call).await else { return };
                refused = Some(ticket).filter(|_| retry::wants_another_token(&status));
                status
            }
        };
        attempt += 1;
        let pause = async {
            client.pause(attempt, &status).await;
            tokio::time::sleep(RETRY).await;
        };
        if meanwhile(leases, pause).await.is_none() {
            return;
        }
        // The new stream repeats all keep-alives that the old one did not answer.
        let now = Instant::now();
        leases.lock().by_id.values_mut().for_each(|kept| kept.due = kept.due.min(now + RETRY));
    }
}

/// Keeps the leases alive over one stream, and returns how that ended. None, and the task must end, if no lease is left.
async fn speak(leases: &Mutex<Leases>, mut call: StreamingCall) -> Option<Status> {
    let changed = leases.lock().changed.clone();
    loop {
        for id in due(leases) {
            let sent = call.send(LeaseKeepAliveRequest { id }.encode_to_vec().into());
            if meanwhile(leases, sent).await?.is_err() {
                // Reading tells how it ended.
                break;
            }
        }
        let (wake_at, _) = next_due(leases)?;
        tokio::select! {
            answer = call.next() => match answer {
                Ok(Some(message)) => take(leases, message),
                Ok(None) => return Some(Status::new(Code::Unavailable, "the member ended the stream")),
                Err(status) => return Some(status),
            },
            () = tokio::time::sleep_until(wake_at) => {}
            () = changed.notified() => {}
        }
    }
}

/// Waits for `work`, and meanwhile drops leases whose time is over, however long it takes: their holders must learn that they have lost
/// them. None, and the task must end, if no lease is left.
async fn meanwhile<T>(leases: &Mutex<Leases>, work: impl Future<Output = T>) -> Option<T> {
    let mut work = std::pin::pin!(work);
    let changed = leases.lock().changed.clone();
    loop {
        let (_, expires) = next_due(leases)?;
        tokio::select! {
            done = &mut work => return Some(done),
            () = tokio::time::sleep_until(expires) => {}
            () = changed.notified() => {}
        }
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

/// Lets go of leases whose time is over; when there is something to do for the others, and when the time of the next one is over. None,
/// and the task is to end, if there are no others: whoever comes later starts another, which is why all of it is done under one lock.
fn next_due(leases: &Mutex<Leases>) -> Option<(Instant, Instant)> {
    let now = Instant::now();
    let mut leases = leases.lock();
    leases.by_id.retain(|_, kept| kept.expires > now);
    let expires = leases.by_id.values().map(|kept| kept.expires).min();
    let due = leases.by_id.values().map(|kept| kept.due.min(kept.expires)).min();
    let next = due.zip(expires);
    leases.has_task = next.is_some();
    next
}

fn take(leases: &Mutex<Leases>, message: bytes::Bytes) {
    let Ok(answer) = read::<LeaseKeepAliveResponse>(KEEP_ALIVE, message) else { return };
    let mut leases = leases.lock();
    if answer.ttl <= 0 {
        // Waiting tasks learn of it by the end of the sender.
        leases.by_id.remove(&answer.id);
        return;
    }
    if let Some(kept) = leases.by_id.get_mut(&answer.id) {
        // None is longer, and a clock could not be set by one that is.
        let (now, ttl) = (Instant::now(), Duration::from_secs(answer.ttl.min(LEASE_TTL_SECONDS_MAX).unsigned_abs()));
        kept.due = now + ttl / 3;
        kept.expires = now + ttl;
        kept.answer.send_replace(Some(answer));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client() -> Client {
        // No member can be reached: the leases get no answer.
        Client::connect("127.0.0.1:1").expect("a client")
    }

    fn kept(expires: Instant) -> Kept {
        Kept { answer: watch::Sender::new(None), due: expires, expires }
    }

    #[test]
    fn no_time_that_a_server_names_is_too_long() {
        let leases = Mutex::new(Leases::default());
        leases.lock().by_id.insert(1, kept(Instant::now()));
        let answer = LeaseKeepAliveResponse { id: 1, ttl: i64::MAX, ..Default::default() };
        take(&leases, answer.encode_to_vec().into());
        assert!(next_due(&leases).is_some());
    }

    #[test]
    fn a_task_that_ends_has_said_so() {
        let later = Instant::now() + Duration::from_secs(3600);
        for _ in 0..500 {
            let leases = Mutex::new(Leases { has_task: true, ..Leases::default() });
            leases.lock().by_id.insert(1, kept(later));
            std::thread::scope(|scope| {
                // The last handle is dropped at any moment.
                scope.spawn(|| leases.lock().by_id.remove(&1));
                while next_due(&leases).is_some() {}
            });
            assert!(!leases.lock().has_task, "the next lease would find no task");
        }
    }

    #[tokio::test]
    async fn an_old_handle_leaves_what_is_kept_alive_anew() {
        let client = client();
        let old = client.keep_alive(7);
        // The lease has ended, and there is another of the same ID.
        client.inner.keep_alives.leases.lock().by_id.remove(&7);
        let new = client.keep_alive(7);
        drop(old);
        assert!(client.inner.keep_alives.leases.lock().by_id.contains_key(&7));
        drop(new);
        assert!(client.inner.keep_alives.leases.lock().by_id.is_empty());
    }

    #[tokio::test]
    async fn leases_end_in_time_whatever_is_waited_for() {
        let leases = Arc::new(Mutex::new(Leases { has_task: true, ..Leases::default() }));
        leases.lock().by_id.insert(1, kept(Instant::now() + Duration::from_secs(3600)));
        let own = leases.clone();
        let task = tokio::spawn(async move { meanwhile(&own, std::future::pending::<()>()).await });
        tokio::task::yield_now().await;
        // A second one comes while the task waits: its time is over first.
        let kept = kept(Instant::now() + Duration::from_millis(20));
        let mut told = kept.answer.subscribe();
        leases.lock().by_id.insert(2, kept);
        leases.lock().changed.notify_one();
        assert!(told.changed().await.is_err(), "its holder is told");
        {
            let mut leases = leases.lock();
            assert!(leases.has_task && leases.by_id.contains_key(&1));
            leases.by_id.clear();
            leases.changed.notify_one();
        }
        assert_eq!(task.await.expect("the task ends"), None);
        assert!(!leases.lock().has_task);
    }
}
