//! Records in the order of their keys: threads for a lot of work ([`crew`]), records by their place ([`place`]), and sorting them ([`sort`]).

mod crew;
mod place;
mod sort;

pub(crate) use crew::{Crew, share};
pub(crate) use place::{Decoded, Place, Places};
pub(crate) use sort::{Item, shared, sort};
