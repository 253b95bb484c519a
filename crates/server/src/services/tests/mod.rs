//! What clients can make a member do and hold, call by call.

mod lock_queue;
mod logins;
mod memory;
mod space;
mod waiting;
