//! Random histories against the naive model: results of entries, reads at random revisions, hashes, compactions at random points,
//! restarts from the disk.
#![allow(clippy::unwrap_used)]

use crate::support::model::Model;
use crate::support::requests::*;
use crate::support::{Node, Told};
use api::etcdserverpb::compare::TargetUnion;
use api::etcdserverpb::request_op::Request;
use api::etcdserverpb::*;
use api::limits::TXN_OPS_MAX;
use api::{Error, check};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

const KEYS: [&str; 8] = ["a", "aa", "ab", "b", "bb", "c", "d", "\u{7f}"];
const ENDS: [&str; 10] = ["", "", "\0", "aa", "b", "ba", "c", "d", "z", "a"];
const LEASES: [i64; 6] = [0, 0, 1, 2, -3, i64::MAX];

#[derive(Clone, Debug)]
enum Step {
    Apply(Vec<InternalRaftRequest>),
    /// Compacts to a revision this far (in percent) between the last compaction and now.
    Compact(i64),
    Range(RangeRequest),
    ReadTxn(TxnRequest),
    Hash(i64),
    Maintain(u64),
    Settle,
    Checkpoint,
    Reopen,
}

fn key() -> impl Strategy<Value = bytes::Bytes> {
    select(&KEYS).prop_map(bytes::Bytes::from)
}

fn end() -> impl Strategy<Value = bytes::Bytes> {
    select(&ENDS).prop_map(bytes::Bytes::from)
}

fn revision() -> impl Strategy<Value = i64> {
    prop_oneof![6 => Just(0), 6 => 1..60_i64, 1 => select(vec![-1, -2, i64::MIN, i64::MAX])]
}

fn bound() -> impl Strategy<Value = i64> {
    prop_oneof![8 => Just(0), 4 => 1..40_i64, 1 => select(vec![-1, i64::MIN, i64::MAX])]
}

fn any_range() -> impl Strategy<Value = RangeRequest> {
    let limit = prop_oneof![4 => Just(0), 6 => 1..5_i64, 1 => select(vec![-1, i64::MIN, i64::MAX, i64::MAX - 1])];
    let shape = (limit, revision(), 0..3, 0..5, any::<bool>(), prop::bool::weighted(0.15));
    (key(), end(), shape, (bound(), bound(), bound(), bound())).prop_map(|(key, range_end, shape, bounds)| {
        let (limit, revision, sort_order, sort_target, keys_only, count_only) = shape;
        RangeRequest {
            key,
            range_end,
            limit,
            revision,
            sort_order,
            sort_target,
            keys_only,
            count_only,
            min_mod_revision: bounds.0,
            max_mod_revision: bounds.1,
            min_create_revision: bounds.2,
            max_create_revision: bounds.3,
            serializable: false,
        }
    })
}

fn any_put() -> impl Strategy<Value = PutRequest> {
    let flags = (any::<bool>(), prop::bool::weighted(0.1), prop::bool::weighted(0.1));
    (key(), "[xyz]{0,3}|[w]{400}", select(&LEASES), flags).prop_map(|(key, value, lease, flags)| {
        let (prev_kv, ignore_value, ignore_lease) = flags;
        PutRequest {
            key,
            value: if ignore_value { Default::default() } else { value.into() },
            lease: if ignore_lease { 0 } else { lease },
            prev_kv,
            ignore_value,
            ignore_lease,
        }
    })
}

fn any_delete() -> impl Strategy<Value = DeleteRangeRequest> {
    (key(), end(), any::<bool>()).prop_map(|(key, range_end, prev_kv)| DeleteRangeRequest { key, range_end, prev_kv })
}

fn any_compare() -> impl Strategy<Value = Compare> {
    let number = || prop_oneof![3 => 0..5_i64, 3 => 0..60_i64, 1 => select(vec![i64::MIN, i64::MAX])];
    let union = prop_oneof![
        Just(None),
        number().prop_map(|n| Some(TargetUnion::Version(n))),
        number().prop_map(|n| Some(TargetUnion::CreateRevision(n))),
        number().prop_map(|n| Some(TargetUnion::ModRevision(n))),
        number().prop_map(|n| Some(TargetUnion::Lease(n))),
        "[xyz]{0,2}".prop_map(|value| Some(TargetUnion::Value(value.into()))),
    ];
    (0..4, 0..5, key(), end(), union).prop_map(|(result, target, key, range_end, target_union)| Compare {
        result,
        target,
        key,
        range_end,
        target_union,
    })
}

fn any_txn() -> impl Strategy<Value = TxnRequest> {
    let leaf = prop_oneof![
        any_put().prop_map(Request::RequestPut),
        any_delete().prop_map(Request::RequestDeleteRange),
        any_range().prop_map(Request::RequestRange),
    ];
    let op = leaf.prop_recursive(2, 12, 4, |inner| {
        let ops = || vec(inner.clone().prop_map(op), 0..4);
        (vec(any_compare(), 0..2), ops(), ops())
            .prop_map(|(compare, success, failure)| Request::RequestTxn(TxnRequest { compare, success, failure }))
    });
    let ops = || vec(op.clone().prop_map(crate::support::requests::op), 0..4);
    (vec(any_compare(), 0..2), ops(), ops())
        .prop_map(|(compare, success, failure)| TxnRequest { compare, success, failure })
        .prop_filter("the API layer refuses it", |txn| check::txn(txn, TXN_OPS_MAX).is_ok())
}

fn any_request() -> impl Strategy<Value = InternalRaftRequest> {
    let lease = || select(vec![1, 2, -3, i64::MAX, 0, 77]);
    prop_oneof![
        8 => any_put().prop_map(Raft::raft),
        3 => any_delete().prop_map(Raft::raft),
        6 => any_txn().prop_map(Raft::raft),
        1 => any_range().prop_map(Raft::raft),
        2 => (lease(), select(vec![1, 60, -5, 9_000_000_000, 9_000_000_001, i64::MAX])).prop_map(|(id, ttl)| grant(id, ttl)),
        1 => lease().prop_map(revoke),
        1 => (lease(), 0..50_i64).prop_map(|(id, remaining_ttl)| {
            LeaseCheckpointRequest { checkpoints: vec![LeaseCheckpoint { id, remaining_ttl }] }.raft()
        }),
        1 => select(vec![-7, 0, 1, 3, i64::MAX, i64::MIN]).prop_map(compact),
    ]
}

fn any_read_txn() -> impl Strategy<Value = TxnRequest> {
    let ops = || vec(any_range().prop_map(|range| op(Request::RequestRange(range))), 0..3);
    (vec(any_compare(), 0..2), ops(), ops()).prop_map(|(compare, success, failure)| TxnRequest {
        compare,
        success,
        failure,
    })
}

fn any_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        10 => vec(any_request(), 1..12).prop_map(Step::Apply),
        2 => (0..=100_i64).prop_map(Step::Compact),
        8 => any_range().prop_map(Step::Range),
        3 => any_read_txn().prop_map(Step::ReadTxn),
        3 => revision().prop_map(Step::Hash),
        2 => (1..200_000_u64).prop_map(Step::Maintain),
        1 => Just(Step::Settle),
        1 => Just(Step::Checkpoint),
        1 => Just(Step::Reopen),
    ]
}

fn run(steps: Vec<Step>) {
    let mut node = Node::new();
    let mut model = Model::default();
    // The last checkpoint was written within a compaction.
    let mut resumes = false;
    for step in steps {
        match step {
            Step::Apply(requests) => apply(&mut node, &mut model, requests),
            Step::Compact(percent) => {
                let from = model.compact_revision.max(0);
                let to = from + (model.revision - from) * percent / 100;
                apply(&mut node, &mut model, vec![compact(to)]);
            }
            Step::Range(request) => {
                let (found, expected) = (node.range(&request), model.range(&request));
                assert_eq!(found, expected, "{request:?}");
                stream(&node, &model, request);
            }
            Step::ReadTxn(request) => {
                assert_eq!(node.store.read_txn(&request), model.txn(&request), "{request:?}");
            }
            Step::Hash(revision) => hash(&node, &model, revision),
            Step::Maintain(budget) => {
                node.store.maintain(budget).unwrap();
            }
            Step::Settle => node.settle(),
            Step::Checkpoint => {
                resumes = node.store.compacted() < node.store.compact_revision();
                node.checkpoint();
            }
            Step::Reopen => {
                let applied = node.reopen();
                model.restart(applied, resumes);
            }
        }
        assert_eq!(node.store.revision(), model.revision);
        assert_eq!(node.store.compact_revision(), model.compact_revision);
    }
    audit(&node, &model);
    node.settle();
    hash(&node, &model, 0);
    hash(&node, &model, model.compact_revision);
    node.checkpoint();
    node.checkpoint();
    node.settle();
    let live = node.store.usage().live_bytes;
    model.restart(node.reopen(), false);
    assert_eq!(node.store.usage().live_bytes, live);
    audit(&node, &model);
    for revision in model.compact_revision.max(1)..=model.revision {
        hash(&node, &model, revision);
        let request = RangeRequest { revision, ..all() };
        assert_eq!(node.range(&request), model.range(&request));
    }
}

fn apply(node: &mut Node, model: &mut Model, requests: Vec<InternalRaftRequest>) {
    // Compactions that wait together leave one hash (`housekeeping.rs`). Here each is to leave its own.
    let parts = requests.chunk_by(|_, next| next.compaction.is_none());
    for part in parts.map(<[_]>::to_vec) {
        if part.iter().any(|request| request.compaction.is_some()) {
            node.settle();
        }
        apply_part(node, model, part);
    }
}

fn apply_part(node: &mut Node, model: &mut Model, requests: Vec<InternalRaftRequest>) {
    let first = node.entries.len() as u64 + 1;
    let Told { results, .. } = node.apply_all(requests.clone());
    assert_eq!(results.len(), requests.len());
    for (at, (request, (id, result))) in requests.iter().zip(results).enumerate() {
        assert_eq!(id, first + at as u64);
        assert_eq!(result, model.apply(id, request), "{request:?}");
    }
}

/// Streams what was just read, if it can be streamed.
fn stream(node: &Node, model: &Model, request: RangeRequest) {
    let mut stream = match node.store.range_stream(request.clone()) {
        Err(Error::StreamSort | Error::StreamFilter) => return,
        Err(error) => return assert_eq!(model.range(&request), Err(error)),
        Ok(stream) => stream,
    };
    let expected = model.range(&request).unwrap();
    let mut kvs = vec![];
    loop {
        let chunk = stream.next().unwrap().unwrap();
        kvs.extend(chunk.kvs.to_messages());
        let Some(end) = chunk.end else { continue };
        assert_eq!((end.count, end.more, end.revision), (expected.count, expected.more, model.revision));
        break;
    }
    assert!(stream.next().is_none());
    let lease_aside = |kvs: Vec<api::mvccpb::KeyValue>| {
        kvs.into_iter().map(|kv| api::mvccpb::KeyValue { lease: 0, ..kv }).collect::<Vec<_>>()
    };
    // A stream of several chunks ignores what may have ordered the range.
    if request.sort_target == 0 || kvs.len() <= 10 && !expected.more {
        assert_eq!(lease_aside(kvs), lease_aside(expected.kvs), "{request:?}");
    }
}

fn hash(node: &Node, model: &Model, revision: i64) {
    if node.store.compacted() != node.store.compact_revision() {
        // Hashes of compactions are known once these are finished.
        node.settle();
    }
    let found = node.store.hash_kv(revision).map(|hash| (hash.hash, hash.compact_revision, hash.hash_revision));
    assert_eq!(found, model.hash_kv(revision), "hash at {revision} of {}", model.revision);
}

/// Compares everything that can be asked.
fn audit(node: &Node, model: &Model) {
    assert_eq!(node.range(&all()), model.range(&all()));
    let mut leases: Vec<_> = node.store.leases().list().iter().map(|l| (l.id, (l.ttl, l.remaining_ttl))).collect();
    leases.sort_unstable();
    assert!(leases.iter().copied().eq(model.leases.iter().map(|(id, lease)| (*id, *lease))), "{leases:?}");
    for id in model.leases.keys() {
        assert_eq!(node.store.leases().keys(*id), model.keys_of_lease(*id));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, max_shrink_iters: 20_000, ..ProptestConfig::default() })]
    #[test]
    fn the_store_is_its_model(steps in vec(any_step(), 1..40)) {
        run(steps);
    }
}
