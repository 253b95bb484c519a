//! Calls as a service sees them: the table of methods, messages, metadata, replies and status. Also the bodies of HTTP requests
//! that are not gRPC.

pub(crate) mod body;
pub(crate) mod decoder;
pub(crate) mod encoding;
mod local;
pub(crate) mod metadata;
mod outbound;
pub(crate) mod payload;
pub(crate) mod pipe;
mod reply;
pub(crate) mod responder;
pub(crate) mod routes;
mod service;
mod status;
pub(crate) mod timeout;

pub use body::RequestBody;
pub use local::{LocalCall, LocalStream};
pub use metadata::Metadata;
pub use outbound::Outbound;
pub use pipe::{BodySender, Gone};
pub use reply::{Chunks, Reply, Source};
pub use responder::{HttpResponder, LocalReply, Responder};
pub use service::{Call, Kind, Method, Service, StreamCall, StreamHandler};
pub use status::Status;
