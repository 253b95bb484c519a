//! What clients can make a member do and hold, call by call.

mod logins;
mod memory;
mod space;
mod turns;
mod waiting;
