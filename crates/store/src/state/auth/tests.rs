//! The decision against a model that asks for every key on its own.

use super::state::AuthState;
use super::{Ask, Auth, Author, Change, Permissions, ROOT};
use crate::state::{Lease, Leases};
use crate::test_support::least_time;
use api::authpb::{Permission, UserAddOptions};
use api::etcdserverpb::*;
use api::{Error, KeyRange};
use proptest::prelude::*;
use request_op::Request;
use std::time::Duration;

/// Every key there can be: up to two letters of three.
fn all_keys() -> Vec<Vec<u8>> {
    let letters = [&b"a"[..], b"b", b"c"];
    let pairs = letters.iter().flat_map(|one| letters.iter().map(move |other| [*one, other].concat()));
    letters.iter().map(|one| one.to_vec()).chain(pairs).collect()
}

/// A key or the end of a range.
fn text() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![4 => prop::sample::select(all_keys()), 1 => Just(vec![0]), 1 => Just(vec![])]
}

fn key() -> impl Strategy<Value = Vec<u8>> {
    prop::sample::select(all_keys())
}

fn granted() -> impl Strategy<Value = Vec<(i32, Vec<u8>, Vec<u8>)>> {
    prop::collection::vec((0..4, key(), text()), 0..6)
}

/// A request as a tree: what it reads and writes, leaf by leaf.
fn op() -> impl Strategy<Value = RequestOp> {
    let range = (key(), text()).prop_map(|(key, range_end)| {
        Request::RequestRange(RangeRequest { key: key.into(), range_end: range_end.into(), ..Default::default() })
    });
    let put = (key(), any::<bool>(), 0..4i64).prop_map(|(key, prev_kv, lease)| {
        Request::RequestPut(PutRequest { key: key.into(), prev_kv, lease, ..Default::default() })
    });
    let delete = (key(), text(), any::<bool>()).prop_map(|(key, range_end, prev_kv)| {
        Request::RequestDeleteRange(DeleteRangeRequest { key: key.into(), range_end: range_end.into(), prev_kv })
    });
    let leaf = prop_oneof![range, put, delete].prop_map(|request| RequestOp { request: Some(request) });
    leaf.prop_recursive(4, 12, 3, |inner| {
        let ops = prop::collection::vec(inner, 0..3);
        let compares = prop::collection::vec((key(), text()), 0..2);
        (compares, ops.clone(), ops).prop_map(|(compares, success, failure)| {
            let compare = compares
                .into_iter()
                .map(|(key, end)| Compare { key: key.into(), range_end: end.into(), ..Default::default() })
                .collect();
            RequestOp { request: Some(Request::RequestTxn(TxnRequest { compare, success, failure })) }
        })
    })
}

/// What the leaves of a tree need: a range, and whether it is written.
fn needs(op: &RequestOp, leases: &Leases, all: &mut Vec<(Vec<u8>, Vec<u8>, bool)>) {
    match op.request.as_ref().unwrap() {
        Request::RequestRange(range) => all.push((range.key.to_vec(), range.range_end.to_vec(), false)),
        Request::RequestPut(put) => {
            all.push((put.key.to_vec(), vec![], true));
            if put.prev_kv {
                all.push((put.key.to_vec(), vec![], false));
            }
            all.extend(leases.keys(put.lease).into_iter().map(|key| (key.to_vec(), vec![], true)));
        }
        Request::RequestDeleteRange(delete) => {
            all.push((delete.key.to_vec(), delete.range_end.to_vec(), true));
            if delete.prev_kv {
                all.push((delete.key.to_vec(), delete.range_end.to_vec(), false));
            }
        }
        Request::RequestTxn(txn) => {
            all.extend(txn.compare.iter().map(|compare| (compare.key.to_vec(), compare.range_end.to_vec(), false)));
            txn.success.iter().chain(&txn.failure).for_each(|op| needs(op, leases, all));
        }
    }
}

/// Whether some permission has the key. Keys with a zero byte stand for those between two others.
fn has(granted: &[(i32, Vec<u8>, Vec<u8>)], key: &[u8], writes: bool) -> bool {
    granted.iter().any(|(kind, from, to)| {
        let fits = matches!((kind, writes), (0, false) | (1, true) | (2, _));
        fits && KeyRange::new(from, to).contains(key)
    })
}

/// Probes: every key, one right after each, and one far after all.
fn probes() -> Vec<Vec<u8>> {
    let keys = all_keys();
    let behind = keys.iter().map(|key| [&key[..], &[0]].concat());
    keys.iter().cloned().chain(behind).chain([vec![0], vec![0xff; 4]]).collect()
}

fn auth(granted: &[(i32, Vec<u8>, Vec<u8>)]) -> Auth {
    let auth = Auth::new(AuthState::default());
    let user = |name: &str| AuthUserAddRequest { name: name.into(), ..Default::default() };
    let mut changes = vec![Change::UserAdd(user("ann")), Change::UserAdd(user(ROOT))];
    for (number, (kind, key, end)) in granted.iter().enumerate() {
        let name = format!("r{}", number % 2);
        let perm = Permission { perm_type: *kind, key: key.clone().into(), range_end: end.clone().into() };
        changes.push(Change::RoleAdd(AuthRoleAddRequest { name: name.clone() }));
        let grant = AuthRoleGrantPermissionRequest { name: name.clone(), perm: Some(perm) };
        changes.push(Change::RoleGrantPermission(grant));
        changes.push(Change::UserGrantRole(AuthUserGrantRoleRequest { user: "ann".into(), role: name }));
    }
    changes.push(Change::UserGrantRole(AuthUserGrantRoleRequest { user: ROOT.into(), role: ROOT.into() }));
    changes.push(Change::Enable);
    for change in changes {
        // Roles are added twice, and some ranges are refused.
        auth.change(1, change).ok();
    }
    auth
}

fn leases() -> Leases {
    let leases = Leases::new([1, 2, 3].map(|id| Lease { id, ttl: 9, remaining_ttl: 0 }));
    leases.attach(b"a", 1);
    leases.attach(b"ab", 2);
    leases.attach(b"c", 2);
    leases
}

proptest! {
    #[test]
    fn agrees_with_the_model(granted in granted(), op in op()) {
        let is_valid = |(_, from, to): &&(i32, Vec<u8>, Vec<u8>)| !KeyRange::new(from, to).is_empty();
        // The same range again in the same role takes the new kind, if it is the first one that begins there.
        type Permission = (i32, Vec<u8>, Vec<u8>);
        let mut kept: [Vec<Permission>; 2] = [Vec::new(), Vec::new()];
        for (number, one) in granted.iter().enumerate().filter(|(_, one)| is_valid(one)) {
            let role = &mut kept[number % 2];
            match role.iter_mut().find(|other| other.1 == one.1) {
                Some(first) if first.2 == one.2 => first.0 = one.0,
                _ => role.push(one.clone()),
            }
        }
        let valid = kept.concat();
        let (auth, leases) = (auth(&granted), leases());
        let txn = TxnRequest { success: vec![op.clone()], ..Default::default() };
        let author = Author { user: "ann".into(), revision: auth.revision() };
        let decided = auth.decide(&author, Ask::Txn(&txn), &leases);
        let mut all = Vec::new();
        needs(&op, &leases, &mut all);
        let probes = probes();
        let allowed = all.iter().all(|(from, to, writes)| {
            let range = KeyRange::new(from, to);
            if range.is_empty() {
                // No key is inside: it is judged by where it begins, and by where it ends if that is behind.
                return has(&valid, from, *writes);
            }
            probes.iter().filter(|key| range.contains(key)).all(|key| has(&valid, key, *writes))
        });
        prop_assert_eq!(decided, if allowed { Ok(()) } else { Err(Error::PermissionDenied) });
        let member = Author::member();
        prop_assert_eq!(auth.decide(&member, Ask::Txn(&txn), &leases), Ok(()));
        let old = Author { revision: author.revision - 1, ..author };
        prop_assert_eq!(auth.decide(&old, Ask::Txn(&txn), &leases), Err(Error::AuthOldRevision));
        if !all.is_empty() {
            prop_assert_eq!(auth.decide(&Author::nobody(), Ask::Txn(&txn), &leases), Err(Error::UserEmpty));
        }
    }
}

fn permissions(granted: &[(i32, &str, &str)]) -> std::sync::Arc<Permissions> {
    let granted: Vec<_> =
        granted.iter().map(|(kind, from, to)| (*kind, from.as_bytes().to_vec(), to.as_bytes().to_vec())).collect();
    auth(&granted).permissions("ann").unwrap()
}

#[test]
fn watches_beyond_the_permission_are_refused() {
    let ann = permissions(&[(0, "b", "c"), (0, "c", "d")]);
    let watch = |key: &'static str, range_end: &'static str| {
        let request = WatchCreateRequest { key: key.into(), range_end: range_end.into(), ..Default::default() };
        ann.decide(Ask::Watch(&request), &leases())
    };
    for (key, end) in [("b", ""), ("b", "d"), ("bb", "ca"), ("c", "b")] {
        assert_eq!(watch(key, end), Ok(()), "{key} {end}");
    }
    for (key, end) in
        [("a", ""), ("b", "da"), ("b", "\0"), ("\0", "\0"), ("", "\0"), ("", ""), ("d", ""), ("a", "c"), ("d", "b")]
    {
        assert_eq!(watch(key, end), Err(Error::PermissionDenied), "{key} {end}");
    }
}

#[test]
fn leases_are_judged_by_all_their_keys() {
    // `a` is on the first, `ab` and `c` are on the second, nothing is on the third.
    let leases = leases();
    let may = |granted: &[(i32, &str, &str)], ask| permissions(granted).decide(ask, &leases).is_ok();
    let (reads, writes) = (0, 1);
    let (first, all) = ([(reads, "a", "b")], [(reads, "a", "b"), (reads, "c", "")]);
    assert!(may(&first, Ask::LeaseKeys(1)) && !may(&first, Ask::LeaseKeys(2)) && !may(&first, Ask::AllLeases));
    assert!(may(&all, Ask::LeaseKeys(2)) && may(&all, Ask::AllLeases) && !may(&all, Ask::Lease(2)));
    assert!(may(&[(writes, "ab", "\0")], Ask::Lease(2)) && !may(&[(writes, "ab", "\0")], Ask::Lease(1)));
    assert!(!may(&[(writes, "ab", "c")], Ask::Lease(2)) && !may(&[(writes, "ab", "\0")], Ask::LeaseKeys(2)));
    assert!(may(&[], Ask::LeaseKeys(3)) && may(&[], Ask::Lease(3)) && !may(&[], Ask::AllLeases));
}

#[test]
fn a_lease_is_looked_at_once_for_a_transaction() {
    let keys: Vec<String> = (0..300).map(|key| format!("k{key:03}")).collect();
    let granted: Vec<_> = keys.iter().map(|key| (2, &**key, "")).collect();
    let ann = permissions(&granted);
    let leases = Leases::new([1, 2].map(|id| Lease { id, ttl: 9, remaining_ttl: 0 }));
    keys.iter().for_each(|key| leases.attach(key.as_bytes(), 1));
    let txn = |lease| {
        let put = |key: &String| PutRequest { key: key.clone().into(), lease, ..Default::default() };
        let op = |key| RequestOp { request: Some(Request::RequestPut(put(key))) };
        let inner = TxnRequest { success: keys.iter().map(op).collect(), ..Default::default() };
        let nested = RequestOp { request: Some(Request::RequestTxn(inner)) };
        TxnRequest { success: vec![nested; 3], ..Default::default() }
    };
    let taken = |lease, enough: &dyn Fn(Duration) -> bool| {
        let txn = txn(lease);
        least_time(enough, || assert_eq!(ann.decide(Ask::Txn(&txn), &leases), Ok(())))
    };
    let short = taken(2, &|_| true);
    let long = taken(1, &|long| long < short * 20);
    assert!(long < short * 20, "{long:?} and {short:?}");
    leases.attach(b"other", 1);
    assert_eq!(ann.decide(Ask::Txn(&txn(1)), &leases), Err(Error::PermissionDenied));
}

/// What etcd's members decide when they apply an entry.
#[test]
fn entries_are_judged_as_etcd_judges_them() {
    let (auth, leases) = (auth(&[(1, b"a".to_vec(), Vec::new())]), leases());
    let author = |user: &str, revision| Author { user: user.into(), revision };
    let now = auth.revision();
    // Users are changed by whoever is an administrator now, whatever has changed since the entry was proposed.
    assert_eq!(auth.decide(&author(ROOT, 1), Ask::Root, &leases), Ok(()));
    assert_eq!(auth.decide(&author("ann", now), Ask::Root, &leases), Err(Error::PermissionDenied));
    assert_eq!(auth.decide(&author("bob", now), Ask::Root, &leases), Err(Error::UserNotFound));
    assert_eq!(auth.decide(&Author::nobody(), Ask::Root, &leases), Err(Error::UserEmpty));
    // `a` is on the first lease, `ab` and `c` on the second, nothing on the third; there is no fourth.
    for id in [3, 4] {
        assert_eq!(auth.decide(&Author::nobody(), Ask::Lease(id), &leases), Ok(()));
        assert_eq!(auth.decide(&author("bob", 1), Ask::Lease(id), &leases), Ok(()));
    }
    assert_eq!(auth.decide(&Author::nobody(), Ask::Lease(1), &leases), Err(Error::UserEmpty));
    assert_eq!(auth.decide(&author("ann", now), Ask::Lease(1), &leases), Ok(()));
    assert_eq!(auth.decide(&author("ann", now - 1), Ask::Lease(1), &leases), Err(Error::AuthOldRevision));
    assert_eq!(auth.decide(&author("ann", now), Ask::Lease(2), &leases), Err(Error::PermissionDenied));
    assert_eq!(auth.decide(&author("bob", now), Ask::Lease(1), &leases), Err(Error::PermissionDenied));
    assert_eq!(auth.decide(&author(ROOT, 1), Ask::Lease(2), &leases), Ok(()));
}

#[test]
fn a_range_that_is_granted_again() {
    let grants = |granted: &[(i32, &str, &str)]| {
        let granted: Vec<_> =
            granted.iter().map(|(kind, from, to)| (*kind, from.as_bytes().to_vec(), to.as_bytes().to_vec())).collect();
        // Every second one is of the other role.
        auth(&granted.iter().flat_map(|one| [one.clone(), one.clone()]).collect::<Vec<_>>())
    };
    let listed = |auth: &Auth| -> Vec<(i32, String)> {
        let listed = auth.role("r0").unwrap().into_iter();
        listed.map(|one| (one.perm_type, String::from_utf8(one.range_end.to_vec()).unwrap())).collect()
    };
    let auth = grants(&[(2, "a", "b"), (2, "a", "c"), (0, "a", "b")]);
    assert_eq!(listed(&auth), [(0, "b".into()), (2, "c".into())]);
    let auth = grants(&[(2, "a", "b"), (2, "a", "c"), (0, "a", "c")]);
    assert_eq!(listed(&auth), [(2, "b".into()), (2, "c".into()), (0, "c".into())]);
    let request = |range_end: &str| {
        let (role, key, range_end) = ("r0".to_string(), "a".into(), range_end.as_bytes().to_vec().into());
        Change::RoleRevokePermission(AuthRoleRevokePermissionRequest { role, key, range_end })
    };
    assert!(auth.change(1, request("c")).is_ok());
    assert_eq!(listed(&auth), [(2, "b".into())]);
    assert_eq!(auth.change(1, request("c")), Err(Error::PermissionNotGranted));
}

#[test]
fn kinds_of_the_future_permit_nothing() {
    let ann = permissions(&[(3, "a", "z"), (7, "a", "z"), (-1, "a", "z")]);
    assert!(!ann.may_read(KeyRange::One(b"b")) && !ann.may_write(KeyRange::One(b"b")));
}

#[test]
fn names_are_bounded() {
    let auth = Auth::new(AuthState::default());
    let name = "n".repeat(api::limits::AUTH_NAME_BYTES_MAX + 1);
    let add = |name: &str| AuthUserAddRequest { name: name.into(), ..Default::default() };
    assert_eq!(auth.change(1, Change::UserAdd(add(&name))), Err(Error::RequestTooLarge));
    assert_eq!(auth.change(1, Change::RoleAdd(AuthRoleAddRequest { name: name.clone() })), Err(Error::RequestTooLarge));
    assert!(auth.change(1, Change::UserAdd(add(&name[1..]))).is_ok());
    let none = AuthUserAddRequest {
        name: "b".into(),
        options: Some(UserAddOptions { no_password: true }),
        ..Default::default()
    };
    assert!(auth.change(1, Change::UserAdd(none)).is_ok());
    assert_eq!(auth.password("b").0, super::Password::None);
}

/// A change by small numbers.
fn numbered((kind, user, role): (u8, u8, u8)) -> Change {
    let long = "n".repeat(usize::from(user) * 60);
    let (name, other) = (format!("u{user}{long}"), format!("r{role}"));
    match kind {
        0 => Change::UserAdd(AuthUserAddRequest { name, hashed_password: "aGFzaA==".into(), ..Default::default() }),
        1 => Change::UserDelete(AuthUserDeleteRequest { name }),
        2 => {
            let hashed_password = ["aGFzaA==", "bG9uZ2VyIGhhc2g="][usize::from(role % 2)].into();
            Change::UserChangePassword(AuthUserChangePasswordRequest { name, hashed_password, ..Default::default() })
        }
        3 => Change::UserGrantRole(AuthUserGrantRoleRequest { user: name, role: other }),
        4 => Change::UserRevokeRole(AuthUserRevokeRoleRequest { name, role: other }),
        5 => Change::RoleAdd(AuthRoleAddRequest { name: other }),
        6 => Change::RoleDelete(AuthRoleDeleteRequest { role: other }),
        7 => {
            let perm = Permission { perm_type: 2, key: name.into(), range_end: Default::default() };
            Change::RoleGrantPermission(AuthRoleGrantPermissionRequest { name: other, perm: Some(perm) })
        }
        _ => {
            let key = name.into();
            Change::RoleRevokePermission(AuthRoleRevokePermissionRequest { role: other, key, ..Default::default() })
        }
    }
}

proptest! {
    #[test]
    fn what_users_and_roles_count_for_is_kept(changes in prop::collection::vec((0..9u8, 0..4u8, 0..4u8), 0..100)) {
        let auth = Auth::new(AuthState::default());
        for (index, change) in changes.into_iter().enumerate() {
            let _ = auth.change(index as u64, numbered(change));
            let state = auth.capture();
            prop_assert_eq!(AuthState::load(&state.save()), Ok(AuthState::clone(&state)));
            prop_assert_eq!(auth.bytes(), state.bytes);
        }
    }
}

/// On a stack of 2 MiB: what the threads have that decide.
#[test]
fn the_deepest_transaction_is_decided() {
    let decide = || {
        let put = PutRequest { key: "b".into(), ..Default::default() };
        let (mut txn, mut empty) = (TxnRequest::default(), TxnRequest::default());
        txn.success.push(RequestOp { request: Some(Request::RequestPut(put)) });
        for _ in 1..api::limits::TXN_NESTING_MAX {
            for txn in [&mut txn, &mut empty] {
                let inner = Some(Request::RequestTxn(std::mem::take(txn)));
                txn.success.push(RequestOp { request: inner });
            }
        }
        let ann = permissions(&[(2, "b", "c")]);
        assert_eq!(ann.decide(Ask::Txn(&txn), &leases()), Ok(()));
        assert!(Ask::Txn(&empty).is_for_all() && !Ask::Txn(&txn).is_for_all());
        let nobody = permissions(&[]);
        assert_eq!(nobody.decide(Ask::Txn(&txn), &leases()), Err(Error::PermissionDenied));
    };
    #[allow(clippy::disallowed_methods, reason = "the stack of a thread is what is tested")]
    let thread = std::thread::Builder::new().stack_size(2 << 20).spawn(decide).unwrap();
    thread.join().unwrap();
}
