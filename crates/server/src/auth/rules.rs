//! The rules of the method table: what a request asks for, so that `store`'s one function can decide.

use api::etcdserverpb::{
    AlarmRequest, AuthRoleGetRequest, AuthUserGetRequest, DeleteRangeRequest, LeaseGrantRequest, LeaseKeepAliveRequest,
    LeaseLeasesRequest, LeaseRevokeRequest, LeaseTimeToLiveRequest, PutRequest, RangeRequest, TxnRequest,
    WatchCreateRequest, alarm_request::AlarmAction,
};
use store::Ask;

/// A rule that knows what the request `M` asks for. A row does not compile if its rule does not cover its handler's
/// request.
#[diagnostic::on_unimplemented(message = "the rule `{Self}` does not know what `{M}` asks for")]
pub(crate) trait Rule<M>: 'static {
    /// The permission that the request needs.
    fn ask(request: &M) -> Ask<'_>;
}

/// Permits every call. Credentials are not looked at, not even an invalid token.
pub(crate) enum Open {}

/// Permits every call, with or without a user. But a token that is sent must be valid.
pub(crate) enum Anyone {}

/// Permits every user.
pub(crate) enum User {}

/// Permits users with the role `root`.
pub(crate) enum Root {}

/// Permits users whose permissions cover the keys of the request, or the keys on its leases.
pub(crate) enum Keys {}

/// Permits users to read themselves and their own roles, and permits `root`.
pub(crate) enum Own {}

/// Permits every user to read alarms. Only `root` may raise and clear one, because an alarm stops writes to the
/// cluster.
pub(crate) enum Alarms {}

/// Decides about each request that the server makes from the call on behalf of the client.
pub(crate) enum Parts {}

impl<M> Rule<M> for Anyone {
    fn ask(_: &M) -> Ask<'_> {
        Ask::Anyone
    }
}

impl<M> Rule<M> for User {
    fn ask(_: &M) -> Ask<'_> {
        Ask::Login
    }
}

impl<M> Rule<M> for Root {
    fn ask(_: &M) -> Ask<'_> {
        Ask::Root
    }
}

impl Rule<AlarmRequest> for Alarms {
    fn ask(request: &AlarmRequest) -> Ask<'_> {
        if request.action == AlarmAction::Get as i32 { Ask::Login } else { Ask::Root }
    }
}

/// Rules for requests that name their own keys, users or roles.
macro_rules! asks {
    ($($rule:ident $message:ident: $ask:expr;)*) => {$(
        impl Rule<$message> for $rule {
            fn ask(request: &$message) -> Ask<'_> {
                let ask: fn(&$message) -> Ask<'_> = $ask;
                ask(request)
            }
        }
    )*};
}

asks! {
    Keys RangeRequest: |range| Ask::Range(range);
    Keys PutRequest: |put| Ask::Put(put);
    Keys DeleteRangeRequest: |delete| Ask::DeleteRange(delete);
    Keys TxnRequest: |txn| Ask::Txn(txn);
    Keys WatchCreateRequest: |watch| Ask::Watch(watch);
    Keys LeaseRevokeRequest: |revoke| Ask::Lease(revoke.id);
    Keys LeaseKeepAliveRequest: |renewal| Ask::Lease(renewal.id);
    Keys LeaseTimeToLiveRequest: |lease| if lease.keys { Ask::LeaseKeys(lease.id) } else { Ask::Login };
    Keys LeaseLeasesRequest: |_| Ask::AllLeases;
    Own AuthUserGetRequest: |get| Ask::User(&get.name);
    Own AuthRoleGetRequest: |get| Ask::Role(&get.role);
    Parts LeaseGrantRequest: |grant| User::ask(grant);
    Parts RangeRequest: |range| Keys::ask(range);
    Parts TxnRequest: |txn| Keys::ask(txn);
    Parts DeleteRangeRequest: |delete| Keys::ask(delete);
}
