//! The receiving half of a connection: header decompression, header blocks in several frames, and the window the peer sends into.

use std::time::Instant;

use super::frame::{Fault, Reason};
use super::head::{self, BadHead, Head};
use super::hpack::{self, Decoder, TABLE_BYTES_DEFAULT};
use super::memo::Memo;
use crate::Limit;
use crate::runtime::shared::Shared;
use crate::stats::Shard;

/// Receive windows, of each stream and of the connection, in bytes.
pub(crate) const WINDOW_BYTES: u32 = 1 << 20;
/// What of a window is free again is announced when it is so much: one frame for many.
pub(crate) const WINDOW_UPDATE_BYTES_MIN: u32 = WINDOW_BYTES / 2;
/// Frames of one header block. The bytes are bounded too, so more of them would be nearly empty.
const BLOCK_FRAMES_MAX: u32 = 32;

pub(crate) struct Receiver {
    decoder: Decoder,
    memo: Memo,
    /// A header block of which more is to come.
    pub(crate) block: Option<Block>,
    /// What the peer may still send.
    window: i64,
    /// What is free again and not yet announced.
    due: u32,
}

/// A header block that comes in several frames.
#[derive(Debug)]
pub(crate) struct Block {
    pub(crate) stream: u32,
    pub(crate) end_stream: bool,
    pub(crate) bytes: Vec<u8>,
    pub(crate) since: Instant,
    frames: u32,
}

impl Block {
    pub(crate) fn new(stream: u32, end_stream: bool, fragment: &[u8], since: Instant) -> Block {
        Block { stream, end_stream, bytes: fragment.to_vec(), since, frames: 1 }
    }

    /// Adds what has come. False if that is too much.
    pub(crate) fn extend(&mut self, fragment: &[u8], bytes_max: usize) -> bool {
        self.frames = self.frames.saturating_add(1);
        self.bytes.extend_from_slice(fragment);
        self.frames <= BLOCK_FRAMES_MAX && self.bytes.len() <= bytes_max
    }
}

impl Receiver {
    pub(crate) fn new() -> Receiver {
        Receiver {
            decoder: Decoder::new(TABLE_BYTES_DEFAULT),
            memo: Memo::default(),
            block: None,
            window: i64::from(WINDOW_BYTES),
            due: 0,
        }
    }

    /// Reads the header block of a request on `stream`.
    pub(crate) fn head(&mut self, block: &[u8], stream: u32, shared: &Shared) -> Result<Head, Fault> {
        if let Some(head) = self.memo.get(block, &self.decoder) {
            return Ok(head);
        }
        let before = self.decoder.generation();
        let list_max = shared.options.header_list_bytes_max as usize;
        let head = head::decode(block, &mut self.decoder, &shared.routes, list_max);
        let head = head.map_err(|bad| fault(bad, stream, &shared.stats))?;
        self.memo.put(block, before, &self.decoder, &head);
        Ok(head)
    }

    /// Reads the header block after the body of a request.
    pub(crate) fn trailers(&mut self, block: &[u8], stream: u32, shared: &Shared) -> Result<(), Fault> {
        let list_max = shared.options.header_list_bytes_max as usize;
        let decoded = head::decode_trailers(block, &mut self.decoder, list_max);
        decoded.map_err(|bad| fault(bad, stream, &shared.stats))
    }

    /// The payload of a DATA frame has come. The connection's window is given back at once: streams have windows of their own, and what
    /// they hold is bounded, so that one without a reader does not keep the others waiting.
    #[expect(
        clippy::arithmetic_side_effects,
        reason = "a frame is at most 16 KiB, and the window is checked after each"
    )]
    pub(crate) fn take(&mut self, bytes: usize) -> Result<(), Fault> {
        self.window -= bytes as i64;
        if self.window < 0 {
            return Err(Fault::connection(Reason::FLOW_CONTROL_ERROR));
        }
        // No more than the window was.
        self.due += bytes as u32;
        Ok(())
    }

    /// What is to be announced.
    #[expect(clippy::arithmetic_side_effects, reason = "`due` is what was taken off the window")]
    pub(crate) fn window_update(&mut self) -> Option<u32> {
        if self.due < WINDOW_UPDATE_BYTES_MIN {
            return None;
        }
        self.window += i64::from(self.due);
        Some(std::mem::take(&mut self.due))
    }
}

fn fault(bad: BadHead, stream: u32, stats: &Shard) -> Fault {
    match bad {
        BadHead::Compression(error) => {
            if matches!(error, hpack::Error::SizeUpdateTooLarge { .. }) {
                stats.hit(Limit::HeaderTable);
            }
            Fault::connection(Reason::COMPRESSION_ERROR)
        }
        BadHead::TooLong => {
            stats.hit(Limit::HeaderList);
            Fault::stream(stream, Reason::PROTOCOL_ERROR)
        }
        BadHead::Malformed => Fault::stream(stream, Reason::PROTOCOL_ERROR),
    }
}
