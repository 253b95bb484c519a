//! A client of a cluster that speaks the etcd v3 protocol.
//!
//! [`Client`] is a handle that is cheap to clone. Its calls go round robin over the [`Endpoints`](endpoint), are tried again where that
//! cannot take effect twice ([`retry`]), go to members of the client's zone first ([`Options::zone`]), and carry the token of the client's user ([`credentials`]: one Authenticate for the client, not
//! one for each request). [`calls`] lists every method of the API that has one answer.
//!
//! On top of them: [`Watcher`] resumes on another member without a gap and without a repeat, [`KeepAlive`] keeps leases of one client
//! alive over one stream, [`Session`], [`Lock`] and [`Election`] follow etcd's recipes (and so share locks with its clients), and
//! [`CachedPrefix`] lists once, then watches, and is read from memory.
//!
//! Everything runs on the tokio runtime it is called from; one thread is enough.

mod backoff;
mod balancer;
mod cached_prefix;
mod call;
mod calls;
mod client;
mod credentials;
mod discovery;
mod election;
mod endpoint;
mod error;
mod forward;
mod keep_alive;
mod lock;
mod options;
mod page;
mod ranges;
mod retry;
mod security;
mod session;
mod turn;
mod watch;
mod zones;

pub use cached_prefix::CachedPrefix;
pub use client::Client;
pub use discovery::{Discovered, DiscoveryError, discover, discover_records, reachable};
pub use election::{Election, Leadership, Observer};
pub use endpoint::{Endpoint, EndpointError};
pub use error::Error;
pub use keep_alive::KeepAlive;
pub use lock::Lock;
pub use options::{Options, OptionsError};
pub use page::Pages;
pub use ranges::prefix_end;
pub use retry::{is_from_learner, is_passing, is_unreached, wants_another_token};
pub use security::Security;
pub use session::Session;
pub use watch::{Watched, Watcher};
