//! The path of a read: [`range`] and [`stream`] on a [`read_view`] of the published store, within an [`allowance`], to [`kvs`].
//! What is being applied is read through the same [`view`], and [`unpublished`] says which keys are half-way into the index.

mod allowance;
mod kvs;
mod looks;
mod range;
mod read_view;
mod stream;
mod unpublished;
mod view;

pub use allowance::{Allowance, Unread};
pub use kvs::{Kvs, Reached};
pub(crate) use looks::Looks;
pub use range::RangeAnswer;
pub(crate) use range::{Plan, Selected, read_revision};
pub(crate) use read_view::ReadView;
pub use stream::{RangeChunk, RangeEnd, RangeStream};
pub(crate) use unpublished::{KeySpan, Unpublished};
pub(crate) use view::{View, Visit};
