//! The JSON gateway: every method of the API as a POST of JSON, under the paths of [`table`].
//!
//! [`Gateway`] finds the method of a request. `unary` answers calls of one message, `dialogue` those of many, whose messages are JSON
//! values one after the other, and `websocket` the same over a websocket. `scanner`, `values` and `decode` turn JSON into protobuf,
//! `encode` protobuf into JSON, and `status` failures into HTTP. The methods are called in the process, as a client would call them:
//! the server gives its table of methods and its [`rpc::Service`].

#![deny(clippy::indexing_slicing, clippy::string_slice, clippy::arithmetic_side_effects, clippy::expect_used)]
#![cfg_attr(
    test,
    allow(clippy::indexing_slicing, clippy::string_slice, clippy::arithmetic_side_effects, clippy::expect_used)
)]

mod decode;
mod dialogue;
mod encode;
mod gateway;
mod limits;
mod scanner;
mod status;
mod table;
#[cfg(test)]
mod test_support;
mod unary;
mod values;
mod websocket;

pub use gateway::Gateway;
pub use table::rows_of;
