//! What the server and the client half promise, by parts. One program, because linking one for each part takes long.

#[path = "../common/mod.rs"]
mod common;

mod bounds;
mod channel;
mod client;
mod hostile;
mod hpack_examples;
mod hpack_h2;
mod http;
mod limits;
mod local;
mod messages;
mod pieces;
mod shutdown;
mod streams;
mod tls;
mod unary;
