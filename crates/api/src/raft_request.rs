//! The requests that go through the log: `etcdserverpb.InternalRaftRequest`, in which one field is set.
//!
//! All that is known of these fields is in one table. A field of the `.proto` file that is not in it does not compile, nor does a
//! `match` that leaves out a request.

use crate::Message;
use crate::etcdserverpb::*;
use crate::membershippb::*;
use crate::varint;

/// Field of the request's number in entries of old members of etcd. Those of today have it in the header.
pub const ID: u32 = 1;
/// Field of the header: the request's number, and on whose behalf it is made.
pub const HEADER: u32 = 100;
/// Cairn's own, which etcd's members pass over: the lease lives as long as the entry says, and not longer on members whose flags ask
/// for more.
pub const LEASE_TTL_IS_FINAL: u32 = 20_001;

/// Who must not wait for whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// What clients write.
    Write,
    /// Changes of users and roles.
    Auth,
    /// Ends of leases, and what is noted of the time they have left.
    Lease,
    /// What members say of themselves.
    Upkeep,
}

macro_rules! requests {
    ($($number:literal $name:ident $field:ident $message:ident $class:ident;)*) => {
        /// A request that goes through the log.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum RaftRequest {
            $(#[doc = concat!("`", stringify!($message), "`, field ", stringify!($number), ".")] $name,)*
        }

        impl RaftRequest {
            /// Every request.
            pub const ALL: &[RaftRequest] = &[$(RaftRequest::$name,)*];

            /// The number of its field.
            pub const fn number(self) -> u32 {
                match self { $(RaftRequest::$name => $number,)* }
            }

            /// The request in the field with this number.
            pub const fn of_number(number: u32) -> Option<RaftRequest> {
                match number { $($number => Some(RaftRequest::$name),)* _ => None }
            }

            /// Its name in metrics.
            pub const fn name(self) -> &'static str {
                match self { $(RaftRequest::$name => stringify!($name),)* }
            }

            /// Which queue it waits in.
            pub const fn class(self) -> Class {
                match self { $(RaftRequest::$name => Class::$class,)* }
            }
        }

        // Does not compile when the `.proto` file has other fields, or others of these types.
        const _: fn(InternalRaftRequest) = |request| {
            let InternalRaftRequest { id: _, header: _, $($field),* } = request;
            $(let _: Option<$message> = $field;)*
        };

        #[cfg(test)]
        const FIELDS: &[(RaftRequest, &str)] = &[$((RaftRequest::$name, stringify!($field)),)*];
    };
}

requests! {
    3 Range range RangeRequest Write;
    4 Put put PutRequest Write;
    5 DeleteRange delete_range DeleteRangeRequest Write;
    6 Txn txn TxnRequest Write;
    7 Compaction compaction CompactionRequest Write;
    8 LeaseGrant lease_grant LeaseGrantRequest Write;
    9 LeaseRevoke lease_revoke LeaseRevokeRequest Lease;
    10 Alarm alarm AlarmRequest Upkeep;
    11 LeaseCheckpoint lease_checkpoint LeaseCheckpointRequest Lease;
    1000 AuthEnable auth_enable AuthEnableRequest Auth;
    1011 AuthDisable auth_disable AuthDisableRequest Auth;
    1012 Authenticate authenticate InternalAuthenticateRequest Auth;
    1013 AuthStatus auth_status AuthStatusRequest Auth;
    1100 AuthUserAdd auth_user_add AuthUserAddRequest Auth;
    1101 AuthUserDelete auth_user_delete AuthUserDeleteRequest Auth;
    1102 AuthUserGet auth_user_get AuthUserGetRequest Auth;
    1103 AuthUserChangePassword auth_user_change_password AuthUserChangePasswordRequest Auth;
    1104 AuthUserGrantRole auth_user_grant_role AuthUserGrantRoleRequest Auth;
    1105 AuthUserRevokeRole auth_user_revoke_role AuthUserRevokeRoleRequest Auth;
    1106 AuthUserList auth_user_list AuthUserListRequest Auth;
    1107 AuthRoleList auth_role_list AuthRoleListRequest Auth;
    1200 AuthRoleAdd auth_role_add AuthRoleAddRequest Auth;
    1201 AuthRoleDelete auth_role_delete AuthRoleDeleteRequest Auth;
    1202 AuthRoleGet auth_role_get AuthRoleGetRequest Auth;
    1203 AuthRoleGrantPermission auth_role_grant_permission AuthRoleGrantPermissionRequest Auth;
    1204 AuthRoleRevokePermission auth_role_revoke_permission AuthRoleRevokePermissionRequest Auth;
    1300 ClusterVersionSet cluster_version_set ClusterVersionSetRequest Upkeep;
    1301 ClusterMemberAttrSet cluster_member_attr_set ClusterMemberAttrSetRequest Upkeep;
    1302 DowngradeInfoSet downgrade_info_set DowngradeInfoSetRequest Write;
    9900 DowngradeVersionTest downgrade_version_test DowngradeVersionTestRequest Write;
}

impl RaftRequest {
    /// Encodes an entry with this request, which is already encoded.
    pub fn encode(self, header: &RequestHeader, request: &[u8]) -> Vec<u8> {
        let header_len = header.encoded_len();
        let mut data = Vec::with_capacity(request.len().saturating_add(header_len).saturating_add(ENVELOPE_BYTES_MAX));
        let field = self.number();
        // Fields in ascending order, as etcd's encoder writes them.
        if field < HEADER {
            varint::put_bytes(&mut data, field, request);
        }
        varint::put_delimited(&mut data, HEADER, header_len);
        header.encode_raw(&mut data);
        if field > HEADER {
            varint::put_bytes(&mut data, field, request);
        }
        data
    }

    /// Adds to an encoded grant that its time is final. Only while every member is Cairn's: etcd's members raise it by their own flags,
    /// and then all members are to do so.
    pub fn mark_final(data: &mut Vec<u8>) {
        varint::put_number(data, LEASE_TTL_IS_FINAL, 1);
    }

    /// What an entry asks for, from its first bytes.
    pub fn of_entry(mut data: &[u8]) -> Option<RaftRequest> {
        // The header may come first.
        for _ in 0..2 {
            let field = varint::take(&mut data)? >> 3;
            if field != u64::from(HEADER) {
                return RaftRequest::of_number(u32::try_from(field).ok()?);
            }
            let len = varint::take(&mut data)?;
            data = data.get(usize::try_from(len).ok()?..)?;
        }
        None
    }
}

/// What an entry has beside header and request: two keys and two lengths, and what is said of a lease.
const ENVELOPE_BYTES_MAX: usize = 24;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::{self, Kind};

    #[test]
    fn the_table_has_the_numbers_of_the_proto_file() {
        let message = schema::Message::find("etcdserverpb.InternalRaftRequest").expect("a message of the API");
        let requests = message.fields.iter().filter(|field| matches!(field.kind, Kind::Message(_)));
        let mut fields: Vec<(u32, &str)> = FIELDS.iter().map(|(request, field)| (request.number(), *field)).collect();
        fields.push((HEADER, "header"));
        fields.sort_unstable();
        assert_eq!(fields, requests.map(|field| (field.number, field.name)).collect::<Vec<_>>());
        for request in RaftRequest::ALL {
            assert_eq!(RaftRequest::of_number(request.number()), Some(*request));
        }
        assert_eq!(message.by_number(ID).map(|field| field.name), Some("ID"));
        assert_eq!(message.by_number(LEASE_TTL_IS_FINAL).map(|field| field.name), None, "etcd's members pass over it");
    }

    #[test]
    fn entries_are_the_encoders() {
        let header = RequestHeader { id: u64::MAX, username: "root".into(), auth_revision: u64::MAX };
        let put = PutRequest { key: "k".into(), value: vec![7; 300].into(), ..Default::default() };
        let whole = InternalRaftRequest { header: Some(header.clone()), put: Some(put.clone()), ..Default::default() };
        let data = RaftRequest::Put.encode(&header, &put.encode_to_vec());
        assert_eq!(InternalRaftRequest::decode(&data[..]), Ok(whole));
        assert_eq!(RaftRequest::of_entry(&data), Some(RaftRequest::Put));
        let version = ClusterVersionSetRequest { ver: "3.7.0".into() };
        let whole = InternalRaftRequest {
            header: Some(header.clone()),
            cluster_version_set: Some(version.clone()),
            ..Default::default()
        };
        let data = RaftRequest::ClusterVersionSet.encode(&header, &version.encode_to_vec());
        assert_eq!(data, whole.encode_to_vec());
        assert_eq!(RaftRequest::of_entry(&data), Some(RaftRequest::ClusterVersionSet));
    }

    #[test]
    fn an_entry_fits_into_its_first_room() {
        let header = RequestHeader { id: u64::MAX, username: "u".repeat(200), auth_revision: u64::MAX };
        for request in RaftRequest::ALL {
            let data = request.encode(&header, &[0; 70_000]);
            assert_eq!(data.capacity(), 70_000 + header.encoded_len() + ENVELOPE_BYTES_MAX, "{request:?}");
            assert_eq!(RaftRequest::of_entry(&data), Some(*request));
        }
    }

    /// etcd's members decode what ours propose, and write the same bytes: nothing of Cairn's own is among them.
    #[test]
    fn every_request_has_the_fields_of_etcd_alone() {
        let header = RequestHeader { id: 7, username: "root".into(), auth_revision: 9 };
        for request in RaftRequest::ALL {
            let data = request.encode(&header, &[]);
            let whole = InternalRaftRequest::decode(&data[..]).expect("a request of etcd's");
            assert_eq!(whole.encode_to_vec(), data, "{request:?}");
        }
    }

    #[test]
    fn a_grant_says_that_its_time_is_final() {
        let grant = LeaseGrantRequest { ttl: 5, id: 7 };
        let header = RequestHeader { id: 9, ..Default::default() };
        let mut data = RaftRequest::LeaseGrant.encode(&header, &grant.encode_to_vec());
        let whole = InternalRaftRequest { header: Some(header), lease_grant: Some(grant), ..Default::default() };
        assert_eq!(InternalRaftRequest::decode(&data[..]), Ok(whole.clone()));
        RaftRequest::mark_final(&mut data);
        // What others read is the same.
        assert_eq!(InternalRaftRequest::decode(&data[..]), Ok(whole.clone()));
        assert_eq!(data.strip_prefix(&whole.encode_to_vec()[..]), Some(&[0x88, 0xe2, 0x09, 1][..]));
    }

    #[test]
    fn what_is_no_entry_asks_for_nothing() {
        for bad in [&[][..], &[0xff; 12], &[0xa2, 0x06, 0x7f], &[0xa2, 0x06]] {
            assert_eq!(RaftRequest::of_entry(bad), None);
        }
        assert_eq!(RaftRequest::of_entry(&InternalRaftRequest { id: 5, ..Default::default() }.encode_to_vec()), None);
    }
}
