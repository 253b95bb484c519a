//! What a committed entry asks for.
//!
//! `InternalRaftRequest` has thirty optional fields, of which one is set. Decoding it by hand avoids building and dropping that large
//! structure for every put.

use crate::auth::{Author, Change};
use api::Message;
use api::etcdserverpb::{
    AlarmRequest, CompactionRequest, DeleteRangeRequest, LeaseCheckpointRequest, LeaseGrantRequest, LeaseRevokeRequest,
    PutRequest, RangeRequest, RequestHeader, TxnRequest,
};
use api::membershippb::{ClusterMemberAttrSetRequest, ClusterVersionSetRequest, DowngradeInfoSetRequest};
use bytes::{Buf, Bytes};
use prost::DecodeError;
use prost::encoding::{DecodeContext, WireType, decode_key, decode_varint, skip_field};

/// A field of Cairn's, see `docs/formats.md`.
const LEASE_TTL_IS_FINAL: u32 = 20_001;

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

/// Takes an entry's data apart.
pub(crate) fn decode(data: &Bytes) -> Result<Request, DecodeError> {
    let mut rest = data.clone();
    let (mut id, mut header, mut command) = (0, RequestHeader::default(), Command::Other);
    let mut is_final = false;
    while rest.has_remaining() {
        let (field, wire_type) = decode_key(&mut rest)?;
        match (field, wire_type) {
            (1, WireType::Varint) => id = decode_varint(&mut rest)?,
            (100, WireType::LengthDelimited) => header = message::<RequestHeader>(&mut rest)?,
            (3, WireType::LengthDelimited) => command = Command::Range(message(&mut rest)?),
            (4, WireType::LengthDelimited) => command = Command::Put(message(&mut rest)?),
            (5, WireType::LengthDelimited) => command = Command::DeleteRange(message(&mut rest)?),
            (6, WireType::LengthDelimited) => command = Command::Txn(txn(&mut rest)?),
            (7, WireType::LengthDelimited) => command = Command::Compaction(message(&mut rest)?),
            (8, WireType::LengthDelimited) => {
                command = Command::LeaseGrant { request: message(&mut rest)?, ttl_is_final: false };
            }
            (9, WireType::LengthDelimited) => command = Command::LeaseRevoke(message(&mut rest)?),
            (10, WireType::LengthDelimited) => command = Command::Alarm(message(&mut rest)?),
            (11, WireType::LengthDelimited) => command = Command::LeaseCheckpoint(message(&mut rest)?),
            (1000..1300, WireType::LengthDelimited) => {
                let content = content(&mut rest)?;
                if let Some(change) = auth(field, content)? {
                    command = Command::Auth(change);
                }
            }
            (1300, WireType::LengthDelimited) => command = Command::ClusterVersion(message(&mut rest)?),
            (1301, WireType::LengthDelimited) => command = Command::MemberAttributes(message(&mut rest)?),
            (1302, WireType::LengthDelimited) => command = Command::Downgrade(message(&mut rest)?),
            (LEASE_TTL_IS_FINAL, WireType::Varint) => is_final = decode_varint(&mut rest)? != 0,
            _ => skip_field(wire_type, field, &mut rest, DecodeContext::default())?,
        }
    }
    if let Command::LeaseGrant { ttl_is_final, .. } = &mut command {
        *ttl_is_final = is_final;
    }
    let author = Author { user: header.username, revision: header.auth_revision };
    Ok(Request { id: if id == 0 { header.id } else { id }, author, command })
}

/// A change of users and roles. What only asks about them is answered without the log.
fn auth(field: u32, content: Bytes) -> Result<Option<Change>, DecodeError> {
    Ok(Some(match field {
        1000 => Change::Enable,
        1011 => Change::Disable,
        1012 => Change::Authenticate(Message::decode(content)?),
        1100 => Change::UserAdd(Message::decode(content)?),
        1101 => Change::UserDelete(Message::decode(content)?),
        1103 => Change::UserChangePassword(Message::decode(content)?),
        1104 => Change::UserGrantRole(Message::decode(content)?),
        1105 => Change::UserRevokeRole(Message::decode(content)?),
        1200 => Change::RoleAdd(Message::decode(content)?),
        1201 => Change::RoleDelete(Message::decode(content)?),
        1203 => Change::RoleGrantPermission(Message::decode(content)?),
        1204 => Change::RoleRevokePermission(Message::decode(content)?),
        _ => return Ok(None),
    }))
}

/// Whether the data of an entry can be applied.
pub fn is_request(data: &Bytes) -> bool {
    decode(data).is_ok()
}

/// A length-delimited message. Its byte fields share the entry's buffer.
fn message<M: Message + Default>(rest: &mut Bytes) -> Result<M, DecodeError> {
    M::decode(content(rest)?)
}

/// A transaction, which may be nested deeper than prost goes.
fn txn(rest: &mut Bytes) -> Result<TxnRequest, DecodeError> {
    match api::decode::txn(content(rest)?) {
        Ok(txn) => Ok(txn),
        Err(api::decode::Error::Malformed(error)) => Err(error),
        // Nobody proposes one.
        Err(api::decode::Error::TooDeep) => malformed(),
    }
}

fn content(rest: &mut Bytes) -> Result<Bytes, DecodeError> {
    match usize::try_from(decode_varint(rest)?) {
        Ok(len) if len <= rest.len() => Ok(rest.split_to(len)),
        _ => malformed(),
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

    #[test]
    fn refuses_what_is_cut() {
        let put = PutRequest { key: "key".into(), value: "value".into(), ..Default::default() };
        let bytes: Bytes = InternalRaftRequest { put: Some(put), ..Default::default() }.encode_to_vec().into();
        for len in 1..bytes.len() {
            assert!(decode(&bytes.slice(..len)).is_err(), "{len} bytes");
        }
    }
}
