//! The payload of a log entry, put around a request that is already encoded.

use api::RaftRequest;
use api::etcdserverpb::RequestHeader;
use store::Author;

/// Encodes an entry that carries `request`, with the header that names it and on whose behalf it is made.
pub(super) fn wrap(id: u64, author: Author, kind: RaftRequest, request: &[u8]) -> Vec<u8> {
    kind.encode(&RequestHeader { id, username: author.user, auth_revision: author.revision }, request)
}
