//! The lease of this proxy and its lease keys, kept on a thread of their own.

use api::etcdserverpb::{LeaseGrantRequest, LeaseRevokeRequest, RangeRequest, RangeResponse, WatchCreateRequest};
use api::mvccpb::Event;
use api::mvccpb::event::EventType;
use api::{Code, Message};
use bytes::Bytes;
use client::{Client, Error};
use rpc::{Metadata, Status};
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};
use telemetry::logging::{self, Pace};
use tokio::sync::Semaphore;

use super::REVOKE;
use super::book::{News, Release};
use super::calls::Leasing;
use super::claim;
use crate::namespace::Namespace;
use crate::reads::Written;
use crate::service::Common;
use crate::single::{RANGE, TXN};
use crate::upstream::Upstream;

/// The lease, as etcd's client has it.
const TTL: Duration = Duration::from_secs(60);
/// The part of the lease's time after which it is kept alive again.
const KEPT_ALIVE_AFTER: f64 = 1.0 / 3.0;
/// The part for which keys are served after it was kept alive. The rest is for clocks that go wrong, and for a leader that does not know yet
/// that it is none.
const SERVED_FOR: f64 = 0.75;
/// How long a call of the proxy's own may take.
const PATIENCE: Duration = Duration::from_secs(5);
/// The pause before something that failed is tried again.
const RETRY: Duration = Duration::from_secs(1);
/// The pause before something that somebody waits for is looked at or tried again.
const SHORT_RETRY: Duration = Duration::from_millis(100);
/// How often members are asked whether everybody may read, and for how long that holds.
const PROOF: Duration = Duration::from_secs(1);
const PROOF_MAX: Duration = Duration::from_secs(5);
/// How often the watch of lease keys has to show that it has come as far as members are, and how long it may take to.
const PROGRESS: Duration = Duration::from_secs(2);
const PROGRESS_MAX: Duration = Duration::from_secs(5);
/// Keys of one page of a list. A client may have put large values under the prefix.
const PAGE_KEYS: i64 = 32;
/// Lease keys that are given back at a time.
const RELEASES_MAX: usize = 64;

/// What the tasks share.
#[derive(Clone)]
struct Keeper {
    leasing: Arc<Leasing>,
    common: Common,
    /// The prefix as members know it.
    root: Bytes,
}

/// Starts the thread.
///
/// # Errors
/// If there can be none.
pub(crate) fn start(leasing: Arc<Leasing>, common: &Common) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let root = common.namespace.inside(&leasing.prefix);
    let keeper = Keeper { leasing, common: common.clone(), root };
    std::thread::Builder::new().name("leasing".into()).spawn(move || {
        runtime.block_on(async {
            tokio::join!(keeper.prove(), keeper.keep_sessions(), keeper.follow(), keeper.give_back());
        });
    })?;
    Ok(())
}

impl Keeper {
    fn upstream(&self) -> &Upstream {
        &self.common.upstream
    }

    fn namespace(&self) -> &Namespace {
        &self.common.namespace
    }

    /// A call of the proxy itself, which has no token.
    async fn call(&self, path: &str, message: Bytes, is_read: bool) -> Result<Bytes, Status> {
        let client = self.upstream().client()?;
        client.forward(path, &Metadata::default(), message, Some(PATIENCE), is_read, None).await
    }

    async fn range(&self, request: &RangeRequest) -> Result<RangeResponse, Status> {
        let answer = self.call(RANGE, request.encode_to_vec().into(), true).await?;
        RangeResponse::decode(answer).map_err(|error| Status::new(Code::Internal, error.to_string()))
    }

    /// Reads from members again and again, as nobody: what is kept is for everybody, and only as long as that is permitted.
    async fn prove(&self) {
        static PACE: Pace = Pace::new();
        let (mut was_open, mut cluster) = (true, None);
        loop {
            let (sent_ms, newest) = (self.leasing.now_ms(), self.leasing.book.lock().newest());
            let request = RangeRequest { key: self.root.clone(), keys_only: true, ..RangeRequest::default() };
            match self.range(&request).await {
                Ok(answer) => {
                    let header = answer.header.unwrap_or_default();
                    let revision = header.revision;
                    let is_another =
                        cluster.replace(header.cluster_id).is_some_and(|cluster| cluster != header.cluster_id);
                    if is_another || revision < newest {
                        self.gone_back(newest, revision);
                    } else {
                        let until_ms = sent_ms.saturating_add(millis(PROOF_MAX));
                        self.leasing.with(|book, _| {
                            book.saw(revision);
                            book.prove(sent_ms, until_ms);
                        });
                    }
                    was_open = true;
                }
                Err(status) if !is_refusal(status.code) => {
                    if let Some(left_out) = PACE.line() {
                        let fields = [("error", (&*status.message).into()), ("lines-left-out", left_out.into())];
                        logging::warn("cannot prove that leased keys may be served", &fields);
                    }
                }
                Err(status) => {
                    if std::mem::replace(&mut was_open, false) {
                        let fields = [("error", (&*status.message).into())];
                        logging::warn("not everybody may read: leased keys are not served from memory", &fields);
                    }
                    self.leasing.doubt();
                    self.give_up_session();
                }
            }
            self.leasing.with(|book, now_ms| book.look(now_ms));
            tokio::time::sleep(PROOF).await;
        }
    }

    /// The data of members is older than before.
    fn gone_back(&self, newest: i64, revision: i64) {
        let fields = [("seen", newest.into()), ("revision", revision.into())];
        logging::error("the members' data went back; nothing that was kept is served any more", &fields);
        self.common.reads.wrote(&Written::Everything);
        self.give_up_session();
        self.leasing.with(|book, now_ms| {
            book.doubt(now_ms);
            book.go_back(revision);
        });
    }

    /// Ends the session, and its lease if members let the proxy.
    fn give_up_session(&self) {
        let lease = {
            let mut book = self.leasing.book.lock();
            let lease = book.lease();
            book.end_session();
            lease
        };
        if let (Some(id), Ok(client)) = (lease, self.upstream().client()) {
            tokio::spawn(async move {
                // Otherwise it ends by itself.
                let _ = tokio::time::timeout(PATIENCE, client.lease_revoke(LeaseRevokeRequest { id })).await;
            });
        }
    }

    /// Keeps a lease alive, and gets another one when it is lost.
    async fn keep_sessions(&self) {
        static PACE: Pace = Pace::new();
        loop {
            let now_ms = self.leasing.now_ms();
            if self.leasing.book.lock().is_proved(now_ms) {
                if let Err(why) = self.keep_session().await
                    && let Some(left_out) = PACE.line()
                {
                    let fields = [("error", (&why).into()), ("lines-left-out", left_out.into())];
                    logging::warn("has no lease for leased keys; getting another one", &fields);
                }
                tokio::time::sleep(RETRY).await;
            } else {
                tokio::time::sleep(SHORT_RETRY).await;
            }
        }
    }

    /// Gets a lease, and keeps it alive until it is lost, or given up.
    async fn keep_session(&self) -> Result<(), String> {
        let client = || self.upstream().client().map_err(|status| status.message.to_string());
        let ttl = i64::try_from(TTL.as_secs()).unwrap_or(i64::MAX);
        let mut sent_ms = self.leasing.now_ms();
        let lease = within(client()?.lease_grant(LeaseGrantRequest { ttl, id: 0 })).await?;
        let mut ttl = seconds(lease.ttl);
        self.leasing.book.lock().begin_session(lease.id, served_until(sent_ms, ttl));
        logging::info("has a lease for leased keys", &[("lease-ttl", ttl.as_secs().into())]);
        let mut pause = ttl.mul_f64(KEPT_ALIVE_AFTER);
        loop {
            self.while_current(lease.id, pause).await;
            if self.leasing.book.lock().lease() != Some(lease.id) {
                return Ok(());
            }
            let asked_ms = self.leasing.now_ms();
            let kept = tokio::time::timeout(PATIENCE, client()?.keep_alive_once(lease.id)).await;
            match kept {
                Ok(Ok(answer)) => {
                    (sent_ms, ttl) = (asked_ms, seconds(answer.ttl));
                    self.leasing.with(|book, _| {
                        if book.lease() == Some(lease.id) {
                            book.prolong_session(served_until(sent_ms, ttl));
                        }
                    });
                    pause = ttl.mul_f64(KEPT_ALIVE_AFTER);
                    continue;
                }
                Ok(Err(Error::LeaseGone(_))) => {
                    self.leasing.book.lock().end_session();
                    return Err("the lease is gone".into());
                }
                Ok(Err(_)) | Err(_) => pause = RETRY,
            }
            if self.leasing.now_ms() >= sent_ms.saturating_add(millis(ttl)) {
                self.leasing.book.lock().end_session();
                return Err("members were silent for as long as the lease was".into());
            }
        }
    }

    /// Waits, but not longer than this is the lease.
    async fn while_current(&self, lease: i64, pause: Duration) {
        let until = Instant::now().checked_add(pause);
        while until.is_some_and(|until| Instant::now() < until) && self.leasing.book.lock().lease() == Some(lease) {
            tokio::time::sleep(RETRY.min(pause)).await;
        }
    }

    /// Follows the lease keys while there is a session.
    async fn follow(&self) {
        static PACE: Pace = Pace::new();
        loop {
            if self.leasing.book.lock().lease().is_none() {
                tokio::time::sleep(SHORT_RETRY).await;
                continue;
            }
            if let Err(why) = self.follow_once().await
                && let Some(left_out) = PACE.line()
            {
                let fields = [("error", (&why).into()), ("lines-left-out", left_out.into())];
                logging::warn("lost the watch of lease keys; starting another one", &fields);
            }
            tokio::time::sleep(SHORT_RETRY).await;
        }
    }

    /// Compares all lease keys with those of this proxy, and follows them from there.
    async fn follow_once(&self) -> Result<(), String> {
        // Another session begins anew: the revisions of members may have gone back in between.
        let session = self.leasing.book.lock().session();
        let revision = self.list().await.map_err(|status| status.message.to_string())?;
        let client: Client = self.upstream().client().map_err(|status| status.message.to_string())?;
        let (key, range_end) = (self.root.clone(), client::prefix_end(&self.root));
        let start_revision = revision.saturating_add(1);
        let mut watcher = client.watch(WatchCreateRequest { key, range_end, start_revision, ..Default::default() });
        // The revision that it has to come to, and since when.
        let mut behind: Option<(i64, Instant)> = None;
        let mut asked = Instant::now();
        while session.is_some() && self.leasing.book.lock().session() == session {
            match tokio::time::timeout(PROGRESS, watcher.next()).await {
                Ok(Ok(watched)) => self.learn(&watched.events),
                Ok(Err(error)) => return Err(error.to_string()),
                Err(_) => {}
            }
            if behind.is_some_and(|(target, _)| watcher.next_revision() > target) {
                behind = None;
            }
            match behind {
                Some((target, since)) if since.elapsed() >= PROGRESS_MAX => {
                    return Err(format!("the watch has not come to revision {target} within {PROGRESS_MAX:?}"));
                }
                None if asked.elapsed() >= PROGRESS => {
                    asked = Instant::now();
                    behind = Some((self.leasing.book.lock().newest(), asked));
                    within(watcher.request_progress()).await?;
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Lists the lease keys; the revision at which they were so.
    async fn list(&self) -> Result<i64, Status> {
        let lease = self.leasing.book.lock().lease();
        let mut own = BTreeMap::new();
        let (mut key, range_end) = (self.root.clone(), client::prefix_end(&self.root));
        let mut revision = 0;
        loop {
            let (key_now, end) = (key.clone(), range_end.clone());
            let request =
                RangeRequest { key: key_now, range_end: end, limit: PAGE_KEYS, revision, ..Default::default() };
            let page = self.range(&request).await?;
            if revision == 0 {
                revision = page.header.map_or(0, |header| header.revision);
            }
            let last = page.kvs.last().map(|kv| kv.key.clone());
            let of_this = page.kvs.into_iter().filter(|kv| Some(kv.lease) == lease);
            own.extend(of_this.map(|kv| (self.key_of(&kv.key), (kv.create_revision, kv.value == REVOKE))));
            match last {
                Some(last) if page.more => key = [&last[..], b"\0"].concat().into(),
                _ => break,
            }
        }
        self.leasing.with(|book, now_ms| {
            // A session that began meanwhile has nothing that this could have missed.
            if book.lease() == lease {
                book.compare(&own, revision, now_ms);
            }
        });
        Ok(revision)
    }

    /// The key that a lease key is about.
    fn key_of(&self, lease_key: &Bytes) -> Bytes {
        Bytes::copy_from_slice(lease_key.get(self.root.len()..).unwrap_or_default())
    }

    fn learn(&self, events: &[Event]) {
        let mut has_deleted = false;
        self.leasing.with(|book, now_ms| {
            for event in events {
                let Some(kv) = &event.kv else { continue };
                let revision = kv.mod_revision;
                let news = if event.r#type == EventType::Delete as i32 {
                    has_deleted = true;
                    News::Deleted { revision }
                } else {
                    let (created, is_revoked) = (kv.create_revision, kv.value == REVOKE);
                    News::Put { lease: kv.lease, created, revision, is_revoked }
                };
                book.learn(&self.key_of(&kv.key), news, now_ms);
            }
        });
        if has_deleted {
            self.leasing.deleted.notify_waiters();
        }
    }

    /// Deletes the lease keys that are to be given back.
    async fn give_back(&self) {
        let room = Arc::new(Semaphore::new(RELEASES_MAX));
        loop {
            self.leasing.work.notified().await;
            let (releases, lease) = {
                let mut book = self.leasing.book.lock();
                (book.take_releases(), book.lease())
            };
            for release in releases {
                let Ok(permit) = room.clone().acquire_owned().await else { return };
                let keeper = self.clone();
                tokio::spawn(async move {
                    keeper.release(&release, lease).await;
                    drop(permit);
                });
            }
        }
    }

    /// Deletes a lease key, as long as the lease lives on which it hangs.
    async fn release(&self, release: &Release, lease: Option<i64>) {
        let txn = claim::encoded(&claim::releasing(&self.leasing.prefix, release));
        while self.leasing.book.lock().lease() == lease {
            let asked = async { self.call(TXN, self.namespace().request(TXN, txn.clone())?, false).await };
            if asked.await.is_ok() {
                // Those who wait here need not wait for the watch.
                self.leasing.deleted.notify_waiters();
                return;
            }
            tokio::time::sleep(SHORT_RETRY).await;
        }
    }
}

/// Whether members say with this that they want a user.
fn is_refusal(code: Code) -> bool {
    matches!(code, Code::InvalidArgument | Code::PermissionDenied | Code::Unauthenticated)
}

/// Until when keys may be served after the lease was kept alive.
fn served_until(sent_ms: u64, ttl: Duration) -> u64 {
    sent_ms.saturating_add(millis(ttl.mul_f64(SERVED_FOR)))
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

fn seconds(ttl: i64) -> Duration {
    Duration::from_secs(u64::try_from(ttl).unwrap_or_default()).clamp(Duration::from_secs(1), TTL)
}

async fn within<T>(call: impl Future<Output = Result<T, Error>>) -> Result<T, String> {
    match tokio::time::timeout(PATIENCE, call).await {
        Ok(done) => done.map_err(|error| error.to_string()),
        Err(_) => Err(format!("no answer within {PATIENCE:?}")),
    }
}
