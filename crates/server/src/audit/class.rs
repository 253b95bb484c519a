//! Which methods are recorded.

/// The kind of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    /// Changes keys or leases.
    Write,
    /// Changes users, roles or permissions.
    Auth,
    /// A password that becomes a token.
    Login,
    /// Changes the members.
    Cluster,
    /// What operators do: snapshots, alarms, defragmenting, moving the leader, downgrades.
    Maintenance,
    /// Changes nothing.
    Read,
    /// Health checks.
    Unrecorded,
}

impl Class {
    /// The class of a method, by its path. A transaction that only reads and a list of alarms are reads: see
    /// [`super::Audit::names`].
    pub(crate) fn of(path: &str) -> Class {
        let (service, method) = path.rsplit_once('/').unwrap_or_default();
        match (service, method) {
            ("/grpc.health.v1.Health", _) => Class::Unrecorded,
            ("/etcdserverpb.Auth", "Authenticate") => Class::Login,
            ("/etcdserverpb.Auth", "AuthStatus" | "UserGet" | "UserList" | "RoleGet" | "RoleList") => Class::Read,
            ("/etcdserverpb.Auth", _) => Class::Auth,
            ("/etcdserverpb.Cluster", "MemberList") => Class::Read,
            ("/etcdserverpb.Cluster", _) => Class::Cluster,
            ("/etcdserverpb.Maintenance", "Status" | "Hash" | "HashKV") => Class::Read,
            ("/etcdserverpb.Maintenance", _) => Class::Maintenance,
            // Every few moments while a backup runs; the copies of the database that it takes are recorded.
            ("/cairnpb.Archive", "Entries") => Class::Read,
            (_, "Range" | "RangeStream" | "Watch" | "Leader" | "Observe") => Class::Read,
            ("/etcdserverpb.Lease", "LeaseKeepAlive" | "LeaseTimeToLive" | "LeaseLeases") => Class::Read,
            // What is not known as a read is recorded as a write.
            _ => Class::Write,
        }
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Class::Write => "write",
            Class::Auth => "auth",
            Class::Login => "login",
            Class::Cluster => "cluster",
            Class::Maintenance => "maintenance",
            Class::Read => "read",
            Class::Unrecorded => "unrecorded",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::services::METHODS;

    #[test]
    fn every_method_has_its_class() {
        let of = |class: Class| {
            let names = METHODS.iter().filter(|method| Class::of(method.path) == class);
            names.map(|method| method.path.rsplit('/').next().unwrap_or_default()).collect::<Vec<_>>()
        };
        assert_eq!(
            of(Class::Write),
            [
                "Put",
                "DeleteRange",
                "Txn",
                "Compact",
                "LeaseGrant",
                "LeaseRevoke",
                "Lock",
                "Unlock",
                "Campaign",
                "Proclaim",
                "Resign"
            ]
        );
        assert_eq!(of(Class::Cluster), ["MemberAdd", "MemberRemove", "MemberUpdate", "MemberPromote"]);
        assert_eq!(of(Class::Maintenance), ["Alarm", "Defragment", "Snapshot", "MoveLeader", "Downgrade"]);
        assert_eq!(
            of(Class::Auth),
            [
                "AuthEnable",
                "AuthDisable",
                "UserAdd",
                "UserDelete",
                "UserChangePassword",
                "UserGrantRole",
                "UserRevokeRole",
                "RoleAdd",
                "RoleDelete",
                "RoleGrantPermission",
                "RoleRevokePermission"
            ]
        );
        assert_eq!((of(Class::Login), of(Class::Unrecorded).len()), (vec!["Authenticate"], 3));
    }
}
