//! Who may call which method: what the rule of each row of the table promises.

use crate::auth::{Asking, Handler, Permitted, rules};
use crate::node::Node;
use crate::services::lock_queue::LockQueue;
use crate::services::methods::{METHODS, RPCS, RULES, Rpc};
use crate::test_support::Rig;
use api::Error;
use api::Message;
use api::authpb::Permission;
use api::cairnpb::EntriesRequest;
use api::etcdserverpb::alarm_request::AlarmAction;
use api::etcdserverpb::compare::{CompareResult, CompareTarget};
use api::etcdserverpb::downgrade_request::DowngradeAction;
use api::etcdserverpb::watch_request::RequestUnion;
use api::etcdserverpb::{
    AlarmRequest, AuthDisableRequest, AuthEnableRequest, AuthEnableResponse, AuthRoleAddRequest, AuthRoleDeleteRequest,
    AuthRoleGetRequest, AuthRoleGrantPermissionRequest, AuthRoleListRequest, AuthRoleRevokePermissionRequest,
    AuthStatusRequest, AuthUserAddRequest, AuthUserChangePasswordRequest, AuthUserDeleteRequest, AuthUserGetRequest,
    AuthUserGrantRoleRequest, AuthUserListRequest, AuthUserRevokeRoleRequest, AuthenticateRequest, CompactionRequest,
    Compare, DefragmentRequest, DeleteRangeRequest, DowngradeRequest, HashKvRequest, HashRequest, LeaseGrantRequest,
    LeaseKeepAliveRequest, LeaseLeasesRequest, LeaseRevokeRequest, LeaseTimeToLiveRequest, MemberAddRequest,
    MemberListRequest, MemberPromoteRequest, MemberRemoveRequest, MemberUpdateRequest, MoveLeaderRequest, PutRequest,
    RangeRequest, SnapshotRequest, StatusRequest, TxnRequest, WatchCreateRequest, WatchRequest, WatchResponse,
};
use api::v3electionpb::{CampaignRequest, LeaderKey, LeaderRequest, ProclaimRequest, ResignRequest};
use api::v3lockpb::{LockRequest, UnlockRequest};
use bytes::Bytes;
use rpc::{Call, Kind, Responder};
use std::marker::PhantomData;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

/// A lease with a key on it, and another one that may end.
const LEASE: i64 = 7;
const ENDING_LEASE: i64 = 8;

/// A request that needs every permission of the method's rule, and that does no harm to a cluster of one voter.
fn sample(rpc: Rpc) -> Vec<u8> {
    let key = || Bytes::from("k");
    let name = || "bob".to_string();
    let role = || "r".to_string();
    // The member already has this URL.
    let urls = || vec!["http://127.0.0.1:1".to_string()];
    let leader = || Some(LeaderKey { name: "e".into(), key: key(), rev: 1, lease: LEASE });
    let range = || RangeRequest { key: key(), ..Default::default() };
    match rpc {
        Rpc::Range | Rpc::RangeStream => range().encode_to_vec(),
        Rpc::Put => PutRequest { key: key(), lease: LEASE, ..Default::default() }.encode_to_vec(),
        Rpc::DeleteRange => DeleteRangeRequest { key: "none".into(), ..Default::default() }.encode_to_vec(),
        Rpc::Txn => {
            let (result, target) = (CompareResult::Equal as i32, CompareTarget::Version as i32);
            let compare = Compare { result, target, key: key(), ..Default::default() };
            TxnRequest { compare: vec![compare], ..Default::default() }.encode_to_vec()
        }
        Rpc::Compact => CompactionRequest { revision: 1, ..Default::default() }.encode_to_vec(),
        Rpc::Watch => {
            let create = WatchCreateRequest { key: key(), ..Default::default() };
            WatchRequest { request_union: Some(RequestUnion::CreateRequest(create)) }.encode_to_vec()
        }
        Rpc::LeaseGrant => LeaseGrantRequest { ttl: 600, id: 0 }.encode_to_vec(),
        Rpc::LeaseRevoke => LeaseRevokeRequest { id: ENDING_LEASE }.encode_to_vec(),
        Rpc::LeaseKeepAlive => LeaseKeepAliveRequest { id: LEASE }.encode_to_vec(),
        Rpc::LeaseTimeToLive => LeaseTimeToLiveRequest { id: LEASE, keys: true }.encode_to_vec(),
        Rpc::LeaseLeases => LeaseLeasesRequest::default().encode_to_vec(),
        Rpc::MemberAdd => MemberAddRequest { peer_ur_ls: urls(), is_learner: true }.encode_to_vec(),
        Rpc::MemberRemove => MemberRemoveRequest { id: 1 }.encode_to_vec(),
        Rpc::MemberUpdate => MemberUpdateRequest { id: 1, peer_ur_ls: urls() }.encode_to_vec(),
        Rpc::MemberList => MemberListRequest { linearizable: true }.encode_to_vec(),
        Rpc::MemberPromote => MemberPromoteRequest { id: 1 }.encode_to_vec(),
        Rpc::Alarm => AlarmRequest { action: AlarmAction::Deactivate as i32, ..Default::default() }.encode_to_vec(),
        Rpc::Status => StatusRequest::default().encode_to_vec(),
        Rpc::Defragment => DefragmentRequest::default().encode_to_vec(),
        Rpc::Hash => HashRequest::default().encode_to_vec(),
        Rpc::HashKv => HashKvRequest::default().encode_to_vec(),
        Rpc::Entries => EntriesRequest::default().encode_to_vec(),
        Rpc::Snapshot => SnapshotRequest::default().encode_to_vec(),
        Rpc::MoveLeader => MoveLeaderRequest { target_id: 1 }.encode_to_vec(),
        Rpc::Downgrade => {
            DowngradeRequest { action: DowngradeAction::Cancel as i32, ..Default::default() }.encode_to_vec()
        }
        Rpc::AuthEnable => AuthEnableRequest::default().encode_to_vec(),
        Rpc::AuthDisable => AuthDisableRequest::default().encode_to_vec(),
        Rpc::AuthStatus => AuthStatusRequest::default().encode_to_vec(),
        Rpc::Authenticate => AuthenticateRequest { name: "root".into(), password: "pw".into() }.encode_to_vec(),
        Rpc::UserAdd => {
            AuthUserAddRequest { name: name(), password: "pw".into(), ..Default::default() }.encode_to_vec()
        }
        Rpc::UserGet => AuthUserGetRequest { name: "root".into() }.encode_to_vec(),
        Rpc::UserList => AuthUserListRequest::default().encode_to_vec(),
        Rpc::UserDelete => AuthUserDeleteRequest { name: name() }.encode_to_vec(),
        Rpc::UserChangePassword => {
            AuthUserChangePasswordRequest { name: "root".into(), password: "pw".into(), ..Default::default() }
                .encode_to_vec()
        }
        Rpc::UserGrantRole => AuthUserGrantRoleRequest { user: name(), role: role() }.encode_to_vec(),
        Rpc::UserRevokeRole => AuthUserRevokeRoleRequest { name: name(), role: role() }.encode_to_vec(),
        Rpc::RoleAdd => AuthRoleAddRequest { name: role() }.encode_to_vec(),
        Rpc::RoleGet => AuthRoleGetRequest { role: role() }.encode_to_vec(),
        Rpc::RoleList => AuthRoleListRequest::default().encode_to_vec(),
        Rpc::RoleDelete => AuthRoleDeleteRequest { role: "none".into() }.encode_to_vec(),
        Rpc::RoleGrantPermission => {
            let perm = Some(Permission { key: key(), ..Default::default() });
            AuthRoleGrantPermissionRequest { name: role(), perm }.encode_to_vec()
        }
        Rpc::RoleRevokePermission => {
            AuthRoleRevokePermissionRequest { role: role(), key: key(), ..Default::default() }.encode_to_vec()
        }
        Rpc::Lock => LockRequest { name: "l".into(), lease: LEASE }.encode_to_vec(),
        Rpc::Unlock => UnlockRequest { key: "none".into() }.encode_to_vec(),
        Rpc::Campaign => CampaignRequest { name: "e".into(), lease: LEASE, value: "v".into() }.encode_to_vec(),
        Rpc::Proclaim => ProclaimRequest { leader: leader(), value: "v".into() }.encode_to_vec(),
        Rpc::Leader | Rpc::Observe => LeaderRequest { name: "e".into() }.encode_to_vec(),
        Rpc::Resign => ResignRequest { leader: leader() }.encode_to_vec(),
        Rpc::HealthCheck | Rpc::HealthList | Rpc::HealthWatch => Vec::new(),
    }
}

/// The caller of a method.
#[derive(Clone, Copy, Debug)]
enum Caller {
    /// No token.
    Nobody,
    /// A token that was never handed out.
    Unknown,
    /// A user without roles.
    Ann,
    Root,
}

/// The error of the rule; `None` if the call reaches the handler.
fn refusal(rule: &str, caller: Caller) -> Option<Error> {
    match (rule, caller) {
        ("Open", _) | (_, Caller::Root) | ("Anyone", Caller::Nobody) | ("Anyone" | "User", Caller::Ann) => None,
        ("Anyone" | "User" | "Root" | "Keys" | "Own" | "Alarms" | "Parts", Caller::Unknown) => {
            Some(Error::InvalidAuthToken)
        }
        ("User" | "Root" | "Keys" | "Own" | "Alarms" | "Parts", Caller::Nobody) => Some(Error::UserEmpty),
        ("Root" | "Keys" | "Own" | "Alarms" | "Parts", Caller::Ann) => Some(Error::PermissionDenied),
        _ => panic!("say here what the rule `{rule}` answers"),
    }
}

/// Members, users and keys for the requests of [`sample`].
struct Fixture {
    rig: Rig,
    ann: String,
    root: String,
}

impl Fixture {
    fn new() -> Fixture {
        let rig = Rig::start(&[]);
        for lease in [LEASE, ENDING_LEASE] {
            let grant = LeaseGrantRequest { ttl: 600, id: lease };
            rig.call::<()>("/etcdserverpb.Lease/LeaseGrant", None, &grant).expect("a lease");
            let key = if lease == LEASE { "k" } else { "ending" };
            let put = PutRequest { key: key.into(), lease, ..Default::default() };
            rig.call::<()>("/etcdserverpb.KV/Put", None, &put).expect("a key");
        }
        let add = AuthUserAddRequest { name: "ann".into(), password: "pw".into(), ..Default::default() };
        rig.call::<()>("/etcdserverpb.Auth/UserAdd", None, &add).expect("a user");
        let root = rig.enable_auth();
        let ann = rig.log_in("ann", "pw").expect("a token");
        Fixture { rig, ann, root }
    }

    /// Logs in again after calls that take tokens away or switch authentication off.
    fn restore(&mut self) {
        if !self.rig.node().store.auth().is_enabled() {
            let enable = AuthEnableRequest::default();
            self.rig.call::<AuthEnableResponse>("/etcdserverpb.Auth/AuthEnable", None, &enable).expect("enabled");
        }
        self.root = self.rig.log_in("root", "pw").expect("a token");
        self.ann = self.rig.log_in("ann", "pw").expect("a token");
    }

    /// The answer to a call: an error if it was refused.
    fn outcome(&self, rpc: Rpc, caller: Caller) -> Result<(), String> {
        let method = METHODS[RPCS.iter().position(|other| *other == rpc).expect("a row")];
        let token = match caller {
            Caller::Nobody => None,
            Caller::Unknown => Some("none"),
            Caller::Ann => Some(self.ann.as_str()),
            Caller::Root => Some(self.root.as_str()),
        };
        let request = Bytes::from(sample(rpc));
        if method.kind == Kind::Unary {
            return self
                .rig
                .begin_raw(method.path, token, request)
                .take::<()>()
                .map_err(|status| status.message.into_owned());
        }
        let mut stream = self.rig.stream_raw(method.path, token, request);
        match stream.poll_next(&mut Context::from_waker(Waker::noop())) {
            Poll::Pending => Ok(()),
            Poll::Ready(Ok(message)) if rpc == Rpc::Watch => {
                let response =
                    WatchResponse::decode(message.into_whole().expect("whole")).expect("a response of a watch");
                let reason = response.cancel_reason;
                if response.canceled { Err(reason.rsplit(" desc = ").next().unwrap_or("").to_string()) } else { Ok(()) }
            }
            Poll::Ready(Ok(_)) => Ok(()),
            Poll::Ready(Err(status)) => Err(status.message.into_owned()),
        }
    }
}

#[test]
fn each_method_answers_as_its_rule_says() {
    let mut fixture = Fixture::new();
    for (rpc, rule) in RPCS.iter().zip(RULES) {
        for caller in [Caller::Nobody, Caller::Unknown, Caller::Ann, Caller::Root] {
            let outcome = fixture.outcome(*rpc, caller);
            match refusal(rule, caller) {
                // As in etcd, the stream ends without an error text.
                Some(_) if *rpc == Rpc::Observe => assert_eq!(outcome, Err(String::new()), "{rpc:?} by {caller:?}"),
                Some(error) => assert_eq!(outcome, Err(error.message().into()), "{rpc:?} by {caller:?}"),
                None => {
                    let all = [Error::UserEmpty, Error::PermissionDenied, Error::InvalidAuthToken, Error::AuthFailed];
                    let refused = |refused: &str| refused.is_empty() || all.iter().any(|e| e.message() == refused);
                    assert!(!outcome.as_ref().is_err_and(|error| refused(error)), "{rpc:?} by {caller:?}: {outcome:?}");
                }
            }
        }
        fixture.restore();
    }
}

#[test]
fn rules_look_at_what_is_asked_for() {
    let Fixture { rig, ann, .. } = Fixture::new();
    let may = |path: &str, request: &[u8]| {
        rig.begin_raw(path, Some(&ann), Bytes::copy_from_slice(request))
            .take::<()>()
            .map_err(|status| status.message.into_owned())
    };
    let own = AuthUserGetRequest { name: "ann".into() }.encode_to_vec();
    assert_eq!(may("/etcdserverpb.Auth/UserGet", &own), Ok(()), "a user may know its own roles");
    let alarms = AlarmRequest::default().encode_to_vec();
    assert_eq!(may("/etcdserverpb.Maintenance/Alarm", &alarms), Ok(()), "alarms may be read");
    let lease = LeaseTimeToLiveRequest { id: LEASE, keys: false }.encode_to_vec();
    assert_eq!(may("/etcdserverpb.Lease/LeaseTimeToLive", &lease), Ok(()), "without its keys");
    let nothing = TxnRequest::default().encode_to_vec();
    assert_eq!(may("/etcdserverpb.KV/Txn", &nothing), Ok(()), "nothing is asked for");
}

/// Whether a row with the rule `R` may have the handler `F`, which gets `Takes` from its rule.
struct Fits<F, R, Takes>(PhantomData<(F, R, Takes)>);

impl<F: Handler<Arc<LockQueue>, R, Takes>, R, Takes> Fits<F, R, Takes> {
    const COMPILES: bool = true;
}

/// The fallback of the compiler if the handler does not fit.
trait Unfit {
    const COMPILES: bool = false;
}

impl<T> Unfit for T {}

type Bare = fn(&Arc<Node>, Call, Responder);
type Given<T> = fn(&Arc<Node>, Call, T, Responder);
type Asks<R> = fn(&Arc<LockQueue>, &Arc<Node>, Call, Asking<R>, Responder);
type ForRoot = Permitted<rules::Root, HashRequest>;
type ForUsers = Permitted<rules::User, HashRequest>;
type OfKeys = Permitted<rules::Keys, HashRequest>;

#[test]
fn a_handler_without_its_rule_does_not_compile() {
    const { assert!(Fits::<Bare, rules::Open, ()>::COMPILES) };
    const { assert!(!Fits::<Bare, rules::Root, ()>::COMPILES, "what takes no proof is open, and the row must say so") };
    const { assert!(!Fits::<Bare, rules::Keys, ()>::COMPILES) };
    const { assert!(Fits::<Given<ForRoot>, rules::Root, ForRoot>::COMPILES) };
    const { assert!(!Fits::<Given<ForRoot>, rules::User, ForRoot>::COMPILES, "the row names a weaker rule") };
    const { assert!(!Fits::<Given<ForUsers>, rules::Root, ForUsers>::COMPILES, "the handler is content with less") };
    const { assert!(!Fits::<Given<OfKeys>, rules::Keys, OfKeys>::COMPILES, "a request without keys") };
    const { assert!(Fits::<Asks<rules::Parts>, rules::Parts, Asking<rules::Parts>>::COMPILES) };
    const { assert!(!Fits::<Asks<rules::Root>, rules::Root, Asking<rules::Root>>::COMPILES, "root is decided first") };
}
