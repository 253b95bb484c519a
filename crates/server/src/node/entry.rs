//! The payload of a log entry, `etcdserverpb.InternalRaftRequest`, put around a request that is already encoded.

use api::etcdserverpb::RequestHeader;
use api::{Message, varint};
use store::Author;

/// Fields of `InternalRaftRequest`.
pub(crate) const PUT: u32 = 4;
pub(crate) const DELETE_RANGE: u32 = 5;
pub(crate) const TXN: u32 = 6;
pub(crate) const COMPACTION: u32 = 7;
pub(crate) const LEASE_GRANT: u32 = 8;
pub(crate) const LEASE_REVOKE: u32 = 9;
pub(crate) const ALARM: u32 = 10;
pub(crate) const LEASE_CHECKPOINT: u32 = 11;
pub(crate) const CLUSTER_VERSION_SET: u32 = 1300;
pub(crate) const CLUSTER_MEMBER_ATTR_SET: u32 = 1301;
pub(crate) const DOWNGRADE_INFO_SET: u32 = 1302;
pub(crate) const AUTH_ENABLE: u32 = 1000;
pub(crate) const AUTH_DISABLE: u32 = 1011;
pub(crate) const AUTHENTICATE: u32 = 1012;
pub(crate) const AUTH_USER_ADD: u32 = 1100;
pub(crate) const AUTH_USER_DELETE: u32 = 1101;
pub(crate) const AUTH_USER_CHANGE_PASSWORD: u32 = 1103;
pub(crate) const AUTH_USER_GRANT_ROLE: u32 = 1104;
pub(crate) const AUTH_USER_REVOKE_ROLE: u32 = 1105;
pub(crate) const AUTH_ROLE_ADD: u32 = 1200;
pub(crate) const AUTH_ROLE_DELETE: u32 = 1201;
pub(crate) const AUTH_ROLE_GRANT_PERMISSION: u32 = 1203;
pub(crate) const AUTH_ROLE_REVOKE_PERMISSION: u32 = 1204;
const HEADER: u32 = 100;
/// Cairn's own, which etcd's members pass over: the lease lives as long as the entry says, and not longer on members whose flags ask
/// for more.
const LEASE_TTL_IS_FINAL: u32 = 20_001;

/// Encodes an entry that carries `request` in `field`, with the header that names the request and on whose behalf it is made.
pub(super) fn wrap(id: u64, author: Author, field: u32, request: &[u8]) -> Vec<u8> {
    let header = RequestHeader { id, username: author.user, auth_revision: author.revision };
    let mut data = Vec::with_capacity(request.len() + header.username.len() + 32);
    // Fields in ascending order, as etcd's encoder writes them.
    if field < HEADER {
        varint::put_bytes(&mut data, field, request);
    }
    varint::put_bytes(&mut data, HEADER, &header.encode_to_vec());
    if field > HEADER {
        varint::put_bytes(&mut data, field, request);
    }
    if field == LEASE_GRANT {
        varint::put_number(&mut data, LEASE_TTL_IS_FINAL, 1);
    }
    data
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::etcdserverpb::{InternalRaftRequest, PutRequest};
    use api::membershippb::ClusterVersionSetRequest;

    #[test]
    fn equals_the_encoder() {
        let put = PutRequest { key: "k".into(), value: vec![7; 300].into(), ..Default::default() };
        let header = Some(RequestHeader { id: u64::MAX, ..Default::default() });
        let whole = InternalRaftRequest { header, put: Some(put.clone()), ..Default::default() };
        assert_eq!(
            InternalRaftRequest::decode(&wrap(u64::MAX, Author::nobody(), PUT, &put.encode_to_vec())[..]),
            Ok(whole)
        );
        let header = Some(RequestHeader { id: u64::MAX, username: "root".into(), auth_revision: u64::MAX });
        let version = ClusterVersionSetRequest { ver: "3.7.0".into() };
        let whole = InternalRaftRequest { header, cluster_version_set: Some(version.clone()), ..Default::default() };
        assert_eq!(
            wrap(u64::MAX, Author::member(), CLUSTER_VERSION_SET, &version.encode_to_vec()),
            whole.encode_to_vec()
        );
    }

    #[test]
    fn a_grant_says_that_its_time_is_final() {
        let grant = api::etcdserverpb::LeaseGrantRequest { ttl: 5, id: 7 };
        let data = wrap(9, Author::nobody(), LEASE_GRANT, &grant.encode_to_vec());
        // What others read is the same.
        let header = Some(RequestHeader { id: 9, ..Default::default() });
        let whole = InternalRaftRequest { header, lease_grant: Some(grant), ..Default::default() };
        assert_eq!(InternalRaftRequest::decode(&data[..]), Ok(whole.clone()));
        assert_eq!(data.strip_prefix(&whole.encode_to_vec()[..]), Some(&[0x88, 0xe2, 0x09, 1][..]));
    }
}
