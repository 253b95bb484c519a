//! What a committed entry asks for.
//!
//! `InternalRaftRequest` has thirty optional fields of which one is set. Taking it apart by hand avoids building (and dropping)
//! that large structure for every put.

use api::Message;
use api::etcdserverpb::{
    AlarmRequest, CompactionRequest, DeleteRangeRequest, LeaseCheckpointRequest, LeaseGrantRequest, LeaseRevokeRequest,
    PutRequest, RangeRequest, RequestHeader, TxnRequest,
};
use api::membershippb::{ClusterMemberAttrSetRequest, ClusterVersionSetRequest, DowngradeInfoSetRequest};
use bytes::{Buf, Bytes};
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
    LeaseGrant(LeaseGrantRequest),
    LeaseRevoke(LeaseRevokeRequest),
    LeaseCheckpoint(LeaseCheckpointRequest),
    Alarm(AlarmRequest),
    ClusterVersion(ClusterVersionSetRequest),
    MemberAttributes(ClusterMemberAttrSetRequest),
    Downgrade(DowngradeInfoSetRequest),
    /// A request that this version does not act on, or none.
    Other,
}

/// Takes an entry's data apart: the id its proposer waits for, and the request.
pub(crate) fn decode(data: &Bytes) -> Result<(u64, Command), DecodeError> {
    let mut rest = data.clone();
    let (mut id, mut header_id, mut command) = (0, 0, Command::Other);
    while rest.has_remaining() {
        let (field, wire_type) = decode_key(&mut rest)?;
        match (field, wire_type) {
            (1, WireType::Varint) => id = decode_varint(&mut rest)?,
            (100, WireType::LengthDelimited) => header_id = message::<RequestHeader>(&mut rest)?.id,
            (3, WireType::LengthDelimited) => command = Command::Range(message(&mut rest)?),
            (4, WireType::LengthDelimited) => command = Command::Put(message(&mut rest)?),
            (5, WireType::LengthDelimited) => command = Command::DeleteRange(message(&mut rest)?),
            (6, WireType::LengthDelimited) => command = Command::Txn(txn(&mut rest)?),
            (7, WireType::LengthDelimited) => command = Command::Compaction(message(&mut rest)?),
            (8, WireType::LengthDelimited) => command = Command::LeaseGrant(message(&mut rest)?),
            (9, WireType::LengthDelimited) => command = Command::LeaseRevoke(message(&mut rest)?),
            (10, WireType::LengthDelimited) => command = Command::Alarm(message(&mut rest)?),
            (11, WireType::LengthDelimited) => command = Command::LeaseCheckpoint(message(&mut rest)?),
            (1300, WireType::LengthDelimited) => command = Command::ClusterVersion(message(&mut rest)?),
            (1301, WireType::LengthDelimited) => command = Command::MemberAttributes(message(&mut rest)?),
            (1302, WireType::LengthDelimited) => command = Command::Downgrade(message(&mut rest)?),
            _ => skip_field(wire_type, field, &mut rest, DecodeContext::default())?,
        }
    }
    Ok((if id == 0 { header_id } else { id }, command))
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
        let Ok((77, Command::Put(found))) = decode(&request.encode_to_vec().into()) else { panic!() };
        assert_eq!(found, put);
        let request = InternalRaftRequest { id: 5, auth_enable: Some(Default::default()), ..Default::default() };
        assert!(matches!(decode(&request.encode_to_vec().into()), Ok((5, Command::Other))));
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
