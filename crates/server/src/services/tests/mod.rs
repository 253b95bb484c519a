//! What clients can make a member do and hold, call by call.

mod space;
mod waiting;
