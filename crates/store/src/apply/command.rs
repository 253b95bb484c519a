//! What a committed entry asks for.
//!
//! `InternalRaftRequest` has thirty optional fields, of which one is set. Decoding it by hand avoids building and dropping that large
//! structure for every put.

use crate::state::auth::{Author, Change};
use api::etcdserverpb::{
    AlarmRequest, CompactionRequest, DeleteRangeRequest, LeaseCheckpointRequest, LeaseGrantRequest, LeaseRevokeRequest,
    PutRequest, RangeRequest, RequestHeader, TxnRequest,
};
use api::membershippb::{ClusterMemberAttrSetRequest, ClusterVersionSetRequest, DowngradeInfoSetRequest};
use api::{Message, RaftRequest, raft_request, varint};
use bytes::Bytes;
use prost::DecodeError;
use prost::encoding::{DecodeContext, WireType, decode_key, decode_varint, skip_field};

/// One request of the Raft log.
#[derive(Debug)]
pub(crate) enum Command {
    Range(RangeRequest),
    Put(PutRequest),
    DeleteRange(DeleteRangeRequest),
    Txn(TxnRequest),
    Compaction(CompactionRequest),
    LeaseGrant {
        request: LeaseGrantRequest,
        /// Its proposer has raised the time to live to the least that there is. etcd's members leave that to everyone.
        ttl_is_final: bool,
    },
    LeaseRevoke(LeaseRevokeRequest),
    LeaseCheckpoint(LeaseCheckpointRequest),
    Alarm(AlarmRequest),
    ClusterVersion(ClusterVersionSetRequest),
    MemberAttributes(ClusterMemberAttrSetRequest),
    Downgrade(DowngradeInfoSetRequest),
    Auth(Change),
    /// A request that this version does not act on, or none.
    Other,
}

/// One entry of the Raft log.
#[derive(Debug)]
pub(crate) struct Request {
    /// What its proposer waits for.
    pub(crate) id: u64,
    pub(crate) author: Author,
    pub(crate) command: Command,
}

/// Takes an entry's data apart. Strings share its buffer.
pub(crate) fn decode(data: &Bytes) -> Result<Request, DecodeError> {
    let mut rest = &data[..];
    let (mut id, mut header, mut command) = (0, RequestHeader::default(), Command::Other);
    let mut is_final = false;
    while !rest.is_empty() {
        let (field, wire_type) = decode_key(&mut rest)?;
        match (field, wire_type) {
            (raft_request::ID, WireType::Varint) => id = decode_varint(&mut rest)?,
            (raft_request::HEADER, WireType::LengthDelimited) => header = Message::decode(content(&mut rest)?)?,
            (raft_request::LEASE_TTL_IS_FINAL, WireType::Varint) => is_final = decode_varint(&mut rest)? != 0,
            (_, WireType::LengthDelimited) => {
                let content = content(&mut rest)?;
                if let Some(request) = RaftRequest::of_number(field) {
                    command = match (request == RaftRequest::Put).then(|| plain_put(data, content)).flatten() {
                        Some(put) => Command::Put(put),
                        None => of(request, data.slice_ref(content))?.unwrap_or(command),
                    };
                }
            }
            _ => skip_field(wire_type, field, &mut rest, DecodeContext::default())?,
        }
    }
    if let Command::LeaseGrant { ttl_is_final, .. } = &mut command {
        *ttl_is_final = is_final;
    }
    let author = Author { user: header.username, revision: header.auth_revision };
    Ok(Request { id: if id == 0 { header.id } else { id }, author, command })
}

/// A put, if it has no fields but those that are known. As prost reads it, but each reference to the buffer that is made and dropped on the
/// way costs as much as all the rest.
fn plain_put(data: &Bytes, mut content: &[u8]) -> Option<PutRequest> {
    const KEY: u64 = varint::key(1, varint::DELIMITED);
    const VALUE: u64 = varint::key(2, varint::DELIMITED);
    const LEASE: u64 = varint::key(3, varint::NUMBER);
    const PREV_KV: u64 = varint::key(4, varint::NUMBER);
    const IGNORE_VALUE: u64 = varint::key(5, varint::NUMBER);
    const IGNORE_LEASE: u64 = varint::key(6, varint::NUMBER);
    let mut put = PutRequest::default();
    while !content.is_empty() {
        let key = varint::take(&mut content)?;
        let number = varint::take(&mut content)?;
        match key {
            KEY | VALUE => {
                let (string, rest) = content.split_at_checked(usize::try_from(number).ok()?)?;
                content = rest;
                *(if key == KEY { &mut put.key } else { &mut put.value }) = data.slice_ref(string);
            }
            LEASE => put.lease = number as i64,
            PREV_KV => put.prev_kv = number != 0,
            IGNORE_VALUE => put.ignore_value = number != 0,
            IGNORE_LEASE => put.ignore_lease = number != 0,
            _ => return None,
        }
    }
    Some(put)
}

/// What a request does. Those that only ask are answered without the log: none.
fn of(request: RaftRequest, content: Bytes) -> Result<Option<Command>, DecodeError> {
    Ok(Some(match request {
        RaftRequest::Range => Command::Range(Message::decode(content)?),
        RaftRequest::Put => Command::Put(Message::decode(content)?),
        RaftRequest::DeleteRange => Command::DeleteRange(Message::decode(content)?),
        RaftRequest::Txn => Command::Txn(txn(content)?),
        RaftRequest::Compaction => Command::Compaction(Message::decode(content)?),
        RaftRequest::LeaseGrant => Command::LeaseGrant { request: Message::decode(content)?, ttl_is_final: false },
        RaftRequest::LeaseRevoke => Command::LeaseRevoke(Message::decode(content)?),
        RaftRequest::Alarm => Command::Alarm(Message::decode(content)?),
        RaftRequest::LeaseCheckpoint => Command::LeaseCheckpoint(Message::decode(content)?),
        RaftRequest::AuthEnable => Command::Auth(Change::Enable),
        RaftRequest::AuthDisable => Command::Auth(Change::Disable),
        RaftRequest::Authenticate => Command::Auth(Change::Authenticate(Message::decode(content)?)),
        RaftRequest::AuthUserAdd => Command::Auth(Change::UserAdd(Message::decode(content)?)),
        RaftRequest::AuthUserDelete => Command::Auth(Change::UserDelete(Message::decode(content)?)),
        RaftRequest::AuthUserChangePassword => Command::Auth(Change::UserChangePassword(Message::decode(content)?)),
        RaftRequest::AuthUserGrantRole => Command::Auth(Change::UserGrantRole(Message::decode(content)?)),
        RaftRequest::AuthUserRevokeRole => Command::Auth(Change::UserRevokeRole(Message::decode(content)?)),
        RaftRequest::AuthRoleAdd => Command::Auth(Change::RoleAdd(Message::decode(content)?)),
        RaftRequest::AuthRoleDelete => Command::Auth(Change::RoleDelete(Message::decode(content)?)),
        RaftRequest::AuthRoleGrantPermission => Command::Auth(Change::RoleGrantPermission(Message::decode(content)?)),
        RaftRequest::AuthRoleRevokePermission => Command::Auth(Change::RoleRevokePermission(Message::decode(content)?)),
        RaftRequest::ClusterVersionSet => Command::ClusterVersion(Message::decode(content)?),
        RaftRequest::ClusterMemberAttrSet => Command::MemberAttributes(Message::decode(content)?),
        RaftRequest::DowngradeInfoSet => Command::Downgrade(Message::decode(content)?),
        RaftRequest::AuthStatus
        | RaftRequest::AuthUserGet
        | RaftRequest::AuthUserList
        | RaftRequest::AuthRoleGet
        | RaftRequest::AuthRoleList
        | RaftRequest::DowngradeVersionTest => return Ok(None),
    }))
}

/// Whether the data of an entry can be applied.
pub fn is_request(data: &Bytes) -> bool {
    decode(data).is_ok()
}

/// A transaction, which may be nested deeper than prost goes.
fn txn(content: Bytes) -> Result<TxnRequest, DecodeError> {
    // What is in the log is applied, whatever this member would take itself: others may allow more, as etcd does.
    match api::decode::txn(content, usize::MAX) {
        Ok(txn) => Ok(txn),
        Err(api::decode::Error::Malformed(error)) => Err(error),
        // Nobody proposes one.
        Err(api::decode::Error::TooDeep | api::decode::Error::TooManyOps) => malformed(),
    }
}

/// The content of a field with a length.
fn content<'a>(rest: &mut &'a [u8]) -> Result<&'a [u8], DecodeError> {
    let len = usize::try_from(decode_varint(rest)?).ok();
    match len.and_then(|len| rest.split_at_checked(len)) {
        Some((content, behind)) => {
            *rest = behind;
            Ok(content)
        }
        None => malformed(),
    }
}

/// prost has no public way to make its error: decoding a field that claims more than there is gives the right one.
fn malformed<T>() -> Result<T, DecodeError> {
    match PutRequest::decode(&[0x0a, 0x7f][..]) {
        Err(error) => Err(error),
        Ok(_) => unreachable!("a field longer than its message does not decode"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::etcdserverpb::InternalRaftRequest;
    use proptest::collection::vec;
    use proptest::prelude::*;

    #[test]
    fn finds_the_request_and_its_id() {
        let put = PutRequest { key: "k".into(), value: "v".into(), ..Default::default() };
        let header = RequestHeader { id: 77, ..Default::default() };
        let request = InternalRaftRequest { header: Some(header), put: Some(put.clone()), ..Default::default() };
        let Ok(Request { id: 77, command: Command::Put(found), .. }) = decode(&request.encode_to_vec().into()) else {
            panic!()
        };
        assert_eq!(found, put);
        let enable = InternalRaftRequest { id: 5, auth_enable: Some(Default::default()), ..Default::default() };
        let found = decode(&enable.encode_to_vec().into());
        assert!(matches!(found, Ok(Request { id: 5, command: Command::Auth(Change::Enable), .. })));
        let status = InternalRaftRequest { id: 5, auth_status: Some(Default::default()), ..Default::default() };
        assert!(matches!(decode(&status.encode_to_vec().into()), Ok(Request { command: Command::Other, .. })));
    }

    proptest! {
        /// As prost reads it, whatever fields follow each other, be they known or cut off; and none that has others.
        #[test]
        fn a_put_is_read_as_by_prost(fields in vec((1_u32..9, prop_oneof![Just(0), Just(2), 0_u8..6], 0_u64..300), 0..8), cut in 0_usize..600) {
            let mut bytes = Vec::new();
            for (field, wire_type, number) in &fields {
                varint::put(&mut bytes, varint::key(*field, *wire_type));
                varint::put(&mut bytes, *number);
                if *wire_type == varint::DELIMITED {
                    bytes.extend((0..*number).map(|byte| byte as u8));
                }
            }
            bytes.truncate(cut);
            let bytes = Bytes::from(bytes);
            let prosts = PutRequest::decode(bytes.clone());
            if let Some(put) = plain_put(&bytes, &bytes) {
                prop_assert_eq!(Ok(put), prosts);
            } else {
                let is_plain = fields.iter().all(|(field, wire_type, _)| match field {
                    1 | 2 => *wire_type == varint::DELIMITED,
                    3..=6 => *wire_type == varint::NUMBER,
                    _ => false,
                });
                prop_assert!(prosts.is_err() || !is_plain);
            }
        }
    }

    #[test]
    fn refuses_what_is_cut() {
        let put = PutRequest { key: "key".into(), value: "value".into(), ..Default::default() };
        let bytes: Bytes = InternalRaftRequest { put: Some(put), ..Default::default() }.encode_to_vec().into();
        for len in 1..bytes.len() {
            assert!(decode(&bytes.slice(..len)).is_err(), "{len} bytes");
        }
    }
}
