//! The path of a write: committed entries are applied, one after the other.
//!
//! [`command`] says what an entry asks for, and [`applier`] takes entries in strides. [`execute`] does what a command asks for ([`put`],
//! [`delete`], [`txn`] with [`compare`]) against [`staging`] and its [`overlay`]; [`publish`] shows a stride to readers and watchers, and
//! [`answer`] is what comes out, and [`counts`] how much was done. Before an entry is proposed, [`quota`] and
//! [`delete_reserve`] ask whether there is room for it, and [`weighing`] and [`value_sorts`], with [`own_puts`], what a transaction takes of memory
//! and time.

mod ahead;
mod answer;
mod applier;
#[cfg_attr(
    not(test),
    deny(clippy::indexing_slicing, clippy::string_slice, clippy::arithmetic_side_effects, clippy::expect_used)
)]
mod command;
mod compare;
mod counts;
mod delete;
mod delete_reserve;
mod execute;
pub(crate) mod no_space;
mod overlay;
mod own_puts;
mod publish;
mod put;
pub(crate) mod quota;
mod staging;
mod txn;
mod value_sorts;
mod weighing;

pub(crate) use answer::header;
pub use answer::{Fatal, Response, Sink};
pub use applier::Applier;
pub use command::is_request;
pub use counts::Counts;
pub use delete_reserve::{Reservation, Share};
pub use txn::{TxnAnswer, is_read_only};
pub use value_sorts::sorts_by_value;
