//! Where watch responses are written.

use bytes::BytesMut;
use store::watch::{Origin, Sink};

pub const ORIGIN: Origin = Origin { cluster_id: 1, member_id: 2, raft_term: 3 };

#[derive(Default)]
pub struct Page(pub BytesMut);

impl Sink for Page {
    fn response(&mut self, _: usize) -> &mut BytesMut {
        &mut self.0
    }
}
