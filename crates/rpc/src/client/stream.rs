//! One call in flight.

use std::collections::VecDeque;

use bytes::Bytes;

use super::Release;
use crate::http2::frame::{Fault, Reason, WINDOW_BYTES_MAX};

/// What a connection knows of a call.
#[derive(Debug)]
pub(super) struct Stream {
    pub(super) id: u32,
    /// The tag by which [`Calls`](super::Calls) knows it.
    pub(super) tag: usize,
    release: Release,
    /// What the server still takes.
    pub(super) send_window: i64,
    /// What it may still send.
    window: i64,
    /// What is free again and not yet announced.
    due: u32,
    /// The first headers of the answer have come.
    pub(super) begun: bool,
    /// What waits for the windows, or for the output.
    pub(super) waiting: VecDeque<Bytes>,
    /// Nothing comes after `waiting`.
    pub(super) ends: bool,
    /// Everything is sent, the end too.
    pub(super) ended: bool,
    /// It is in the queue of streams that have something to send.
    pub(super) queued: bool,
}

impl Stream {
    pub(super) fn new(id: u32, tag: usize, release: Release, send_window: i64, window: u32) -> Stream {
        Stream {
            id,
            tag,
            release,
            send_window,
            window: i64::from(window),
            due: 0,
            begun: false,
            waiting: VecDeque::new(),
            ends: false,
            ended: false,
            queued: false,
        }
    }

    /// The server takes so much more.
    pub(super) fn widen(&mut self, by: i64) -> Result<(), Fault> {
        self.send_window = self.send_window.saturating_add(by);
        let fits = self.send_window <= i64::from(WINDOW_BYTES_MAX);
        if fits { Ok(()) } else { Err(Fault::stream(self.id, Reason::FLOW_CONTROL_ERROR)) }
    }

    /// Notes received bytes. Those that the caller does not hold are free again at once.
    pub(super) fn take(&mut self, bytes: usize, held: usize) -> Result<(), Fault> {
        self.window = self.window.saturating_sub(bytes as i64);
        if self.window < 0 {
            return Err(Fault::stream(self.id, Reason::FLOW_CONTROL_ERROR));
        }
        self.free(match self.release {
            Release::AtOnce => bytes,
            Release::ByCaller => bytes.saturating_sub(held),
        });
        Ok(())
    }

    /// Notes that the caller no longer holds this many bytes.
    pub(super) fn release(&mut self, bytes: usize) {
        if self.release == Release::ByCaller {
            self.free(bytes);
        }
    }

    fn free(&mut self, bytes: usize) {
        // Too much is found when it is announced.
        self.due = self.due.saturating_add(u32::try_from(bytes).unwrap_or(u32::MAX));
    }

    /// What is to be announced, of a window that is `window_bytes` wide.
    pub(super) fn window_update(&mut self, window_bytes: u32) -> Option<u32> {
        if self.due < window_bytes.div_ceil(2) {
            return None;
        }
        self.window = self.window.saturating_add(i64::from(self.due));
        assert!(self.window <= i64::from(window_bytes), "no more is released than has come");
        Some(std::mem::take(&mut self.due))
    }
}
