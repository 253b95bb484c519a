//! Frames by hand, and a connection that takes them.

use std::sync::Arc;

use bytes::BytesMut;
use rpc::frame::{Head, Settings, kind};
use rpc::hpack::{Encoder, Indexing};
use rpc::{Driver, Options};

use super::{Echo, Seen};

pub type Pairs<'a> = &'a [(&'a str, &'a str)];

pub fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut out = BytesMut::new();
    Head { len: payload.len(), kind, flags, stream }.put(&mut out);
    [&out[..], payload].concat()
}

pub fn settings(settings: &[(u16, u32)]) -> Vec<u8> {
    let mut out = BytesMut::new();
    Settings::put(settings, &mut out);
    out.to_vec()
}

pub fn window_update(stream: u32, increment: u32) -> Vec<u8> {
    frame(kind::WINDOW_UPDATE, 0, stream, &increment.to_be_bytes())
}

pub fn block(encoder: &mut Encoder, method: &str, more: Pairs<'_>) -> Vec<u8> {
    let path = format!("/test.Echo/{method}");
    let usual = [(":method", "POST"), (":scheme", "http"), (":path", &path), ("content-type", "application/grpc")];
    let mut out = Vec::new();
    for (name, value) in usual.iter().chain(more) {
        encoder.encode(&mut out, name.as_bytes(), value.as_bytes(), Indexing::Index);
    }
    out
}

/// Type, flags and stream of each frame of `output`, and its payload.
pub fn frames(mut output: &[u8]) -> Vec<(Head, &[u8])> {
    let mut found = Vec::new();
    while let Some(head) = Head::parse(output) {
        let (payload, rest) = output[9..].split_at(head.len);
        found.push((head, payload));
        output = rest;
    }
    found
}

pub fn driver(options: Options) -> (Driver, Arc<Seen>) {
    let seen = Arc::new(Seen::default());
    (Driver::new(Arc::new(Echo(seen.clone())), options), seen)
}
