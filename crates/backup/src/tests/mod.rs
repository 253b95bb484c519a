//! Archives of a member that is played, on stores that fail.

mod archives;
mod faults;
mod member;
mod pieces;
