//! The clients: each does one operation after the other, at members drawn at random.

use crate::admin;
use crate::env::Env;
use crate::operation::Request;
use api::Message;
use api::etcdserverpb::compare::{CompareResult, CompareTarget, TargetUnion};
use api::etcdserverpb::request_op;
use api::etcdserverpb::*;
use bytes::Bytes;

/// The state of a client.
#[derive(Default)]
pub(crate) struct Client {
    /// The client's lease, once it was granted.
    pub(crate) lease: i64,
    /// The key that the client read or wrote last, and its mod revision.
    pub(crate) seen: Option<(Bytes, i64)>,
    /// The operation it waits for.
    pub(crate) waits_for: Option<usize>,
    /// The token of its last login, until a request is refused.
    token: Option<String>,
    /// The token before that.
    old_token: Option<String>,
}

fn key(env: &mut Env) -> Bytes {
    format!("k{}", env.random.below(env.plan.keys)).into()
}

/// Every value is written once.
fn value(env: &mut Env, id: u64) -> Bytes {
    let mut value = format!("v{id}.").into_bytes();
    let length = env.random.below(env.plan.value_bytes_max) as usize;
    value.resize(value.len().max(length), b'.');
    value.into()
}

fn put(env: &mut Env, id: u64, lease: i64) -> PutRequest {
    let put = PutRequest { key: key(env), value: value(env, id), lease, ..Default::default() };
    if !env.plan.extras.is_varied {
        return put;
    }
    // With users it would take another permission.
    let put = PutRequest { prev_kv: env.random.chance(20) && !env.plan.extras.has_users, ..put };
    match env.random.below(6) {
        0 => PutRequest { ignore_lease: true, lease: 0, ..put },
        1 => PutRequest { ignore_value: true, value: Bytes::new(), ..put },
        _ => put,
    }
}

impl Client {
    /// The client's next request, with its id.
    pub(crate) fn next(&mut self, env: &mut Env, number: usize) -> (u64, Request) {
        let id = env.request_id();
        let header = Some(RequestHeader { id, ..Default::default() });
        let empty = InternalRaftRequest { header, ..Default::default() };
        let write = |request: InternalRaftRequest| Request::Write(request.encode_to_vec().into());
        if self.logs_in(env) {
            let authenticate = Some(InternalAuthenticateRequest {
                name: admin::user_of(Some(number)),
                simple_token: format!("t{id}."),
                ..Default::default()
            });
            return (id, write(InternalRaftRequest { authenticate, ..empty }));
        }
        let request = match env.random.below(100) {
            0..30 => write(InternalRaftRequest { put: Some(put(env, id, 0)), ..empty }),
            30..50 => self.read(env, true),
            50..60 => self.read(env, false),
            60..75 => write(InternalRaftRequest { txn: Some(self.txn(env, id)), ..empty }),
            75..82 => {
                let (key, range_end) = if env.random.chance(20) { ("k", "l") } else { ("", "") };
                let key = if key.is_empty() { self::key(env) } else { key.into() };
                let request = DeleteRangeRequest { key, range_end: range_end.into(), prev_kv: false };
                write(InternalRaftRequest { delete_range: Some(request), ..empty })
            }
            82..86 => {
                // Long ones outlive the leader that wrote their remaining time to the log, and the next.
                let extras = &env.plan.extras;
                let ttl_max = if extras.checkpoints_leases && extras.is_varied { 12 } else { 4 };
                let ttl = 1 + env.random.below(ttl_max) as i64;
                self.lease = 0;
                let request = LeaseGrantRequest { id: (id * 16) as i64 + number as i64, ttl };
                write(InternalRaftRequest { lease_grant: Some(request), ..empty })
            }
            86..91 => write(InternalRaftRequest { put: Some(put(env, id, self.lease)), ..empty }),
            91..96 if self.lease != 0 => Request::KeepAlive { lease: self.lease },
            96..98 if self.lease != 0 => {
                write(InternalRaftRequest { lease_revoke: Some(LeaseRevokeRequest { id: self.lease }), ..empty })
            }
            98 => {
                let back = env.random.below(50) as i64;
                let revision = (env.history.model().revision() - back).max(1);
                let deletion = env.history.model().deletion_before(revision).filter(|_| env.plan.extras.reads_old);
                let revision = deletion.unwrap_or(revision);
                let request = CompactionRequest { revision, physical: false };
                write(InternalRaftRequest { compaction: Some(request), ..empty })
            }
            _ => self.read(env, true),
        };
        (id, request)
    }

    /// Whether it needs a token, or another one.
    fn logs_in(&self, env: &mut Env) -> bool {
        env.plan.extras.has_tokens
            && env.history.model().has_enabled_users()
            && (self.token.is_none() || env.random.chance(3))
    }

    /// The token of the next request. Now and then an old one, which is valid unless it was taken away.
    pub(crate) fn token(&self, env: &mut Env) -> Option<String> {
        let token = if env.plan.extras.has_tokens && env.random.chance(10) { &self.old_token } else { &self.token };
        token.clone()
    }

    fn read(&self, env: &mut Env, linearizable: bool) -> Request {
        let (key, range_end) = if env.random.chance(25) { ("k".into(), "l".into()) } else { (key(env), Bytes::new()) };
        let range = RangeRequest { key, range_end, serializable: !linearizable, ..Default::default() };
        Request::Read { range, linearizable }
    }

    /// A compare-and-swap on the version that the client saw last, or on whether a key exists.
    fn txn(&self, env: &mut Env, id: u64) -> TxnRequest {
        let (key, revision) = match &self.seen {
            Some(seen) if env.random.chance(70) => seen.clone(),
            _ => (self::key(env), 0),
        };
        let condition = Compare {
            result: CompareResult::Equal as i32,
            target: CompareTarget::Mod as i32,
            key: key.clone(),
            target_union: Some(TargetUnion::ModRevision(revision)),
            ..Default::default()
        };
        let read = RequestOp {
            request: Some(request_op::Request::RequestRange(RangeRequest { key: key.clone(), ..Default::default() })),
        };
        let swap = PutRequest { key, value: value(env, id), ..Default::default() };
        let mut success = vec![RequestOp { request: Some(request_op::Request::RequestPut(swap)) }];
        if env.plan.extras.reads_old && env.random.chance(40) {
            success.insert(0, self.old_read(env));
        }
        if env.random.chance(30) {
            let other = DeleteRangeRequest { key: self::key(env), ..Default::default() };
            let clashes =
                matches!(&success[0].request, Some(request_op::Request::RequestPut(put)) if put.key == other.key);
            let clashes = clashes || success.len() > 1;
            if !clashes {
                success.push(RequestOp { request: Some(request_op::Request::RequestDeleteRange(other)) });
            }
        }
        TxnRequest { compare: vec![condition], success, failure: vec![read] }
    }

    /// A read of a transaction at a revision that may be compacted, or not there yet.
    fn old_read(&self, env: &mut Env) -> RequestOp {
        let newest = env.history.model().revision() + 2;
        let back = if env.random.chance(50) { 6 } else { 60 };
        let revision = (newest - env.random.below(back) as i64).max(1);
        let range = RangeRequest { key: "k".into(), range_end: "l".into(), revision, ..Default::default() };
        RequestOp { request: Some(request_op::Request::RequestRange(range)) }
    }

    /// Learns from an answer.
    pub(crate) fn learn(&mut self, request: &Request, answer: &crate::operation::Answer) {
        use crate::operation::Answer;
        match answer {
            Answer::Refused if self.token.is_some() => self.old_token = self.token.take(),
            Answer::Read { kvs, .. } => {
                if let Some(kv) = kvs.first() {
                    self.seen = Some((kv.key.clone(), kv.mod_revision));
                }
            }
            Answer::Applied { result: Ok(response), .. } => match (&**response, request) {
                (store::Response::LeaseGrant(grant), _) => self.lease = grant.id,
                (store::Response::Auth(answer, _), _) => self.token = Some(answer.token.clone()),
                (store::Response::Put(response), Request::Write(data)) => {
                    let put = InternalRaftRequest::decode(data.clone()).ok().and_then(|request| request.put);
                    let revision = response.header.map_or(0, |header| header.revision);
                    self.seen = put.map(|put| (put.key, revision));
                }
                _ => {}
            },
            Answer::Applied { result: Err(api::Error::LeaseNotFound), .. } => self.lease = 0,
            _ => {}
        }
    }
}
