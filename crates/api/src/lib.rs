//! The etcd v3 API as data: messages, errors, key ranges, limits and the checks that need nothing but the request.
//!
//! No I/O and no threads live here. Every other crate speaks in these types.

#![deny(clippy::indexing_slicing, clippy::string_slice, clippy::arithmetic_side_effects, clippy::expect_used)]
#![cfg_attr(
    test,
    allow(clippy::indexing_slicing, clippy::string_slice, clippy::arithmetic_side_effects, clippy::expect_used)
)]

pub mod check;
pub mod decode;
pub mod error;
pub mod limits;
pub mod probing;
pub mod raft_request;
pub mod range;
pub mod schema;
mod secrets;
pub mod unread;
pub mod url;
pub mod varint;
pub mod version;
mod writes;

pub use error::{Code, Error};
pub use raft_request::RaftRequest;
pub use range::KeyRange;

#[allow(missing_docs, clippy::all)]
mod generated {
    pub mod mvccpb {
        include!(concat!(env!("OUT_DIR"), "/mvccpb.rs"));
    }
    pub mod authpb {
        include!(concat!(env!("OUT_DIR"), "/authpb.rs"));
    }
    pub mod membershippb {
        include!(concat!(env!("OUT_DIR"), "/membershippb.rs"));
    }
    pub mod etcdserverpb {
        include!(concat!(env!("OUT_DIR"), "/etcdserverpb.rs"));
    }
    pub mod v3electionpb {
        include!(concat!(env!("OUT_DIR"), "/v3electionpb.rs"));
    }
    pub mod v3lockpb {
        include!(concat!(env!("OUT_DIR"), "/v3lockpb.rs"));
    }
    pub mod leasepb {
        include!(concat!(env!("OUT_DIR"), "/leasepb.rs"));
    }
    pub mod walpb {
        include!(concat!(env!("OUT_DIR"), "/walpb.rs"));
    }
    pub mod snappb {
        include!(concat!(env!("OUT_DIR"), "/snappb.rs"));
    }
    pub mod raftpb {
        include!(concat!(env!("OUT_DIR"), "/raftpb.rs"));
    }
    pub mod cairnpb {
        include!(concat!(env!("OUT_DIR"), "/cairnpb.rs"));
    }
}

pub use generated::{
    authpb, cairnpb, etcdserverpb, leasepb, membershippb, mvccpb, raftpb, snappb, v3electionpb, v3lockpb, walpb,
};
pub use prost::{DecodeError, Message};
