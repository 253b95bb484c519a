//! HTTP/2: frames, header compression, flow control, and the state of connections and their streams. `connection` takes turns, and
//! handles one frame after the other (`dispatch`).

mod body_time;
mod call;
pub(crate) mod connection;
mod dispatch;
#[cfg(feature = "driver")]
mod driver;
pub(crate) mod exchange;
mod finish;
pub mod frame;
mod head;
mod hoard;
pub mod hpack;
pub(crate) mod ids;
mod input;
mod intake;
pub(crate) mod keepalive;
mod memo;
pub(crate) mod outflow;
pub(crate) mod output;
mod passed_over;
mod rates;
pub(crate) mod receiver;
pub(crate) mod sender;
mod shutdown;
pub(crate) mod stream;
mod turn;

pub use body_time::Pace;
#[cfg(feature = "driver")]
pub use driver::Driver;
pub use rates::RateLimits;
