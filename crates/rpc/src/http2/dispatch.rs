//! Handling of each kind of frame.

use std::time::Instant;

use super::connection::{Ending, Http2};
use super::frame::{Fault, Frame, HEAD_BYTES, Head, PAYLOAD_BYTES_DEFAULT, Reason, Settings, flag, kind};
use super::rates::Cost;
use super::receiver::Block;
use super::stream::{Event, Stream};
use crate::Limit;
use crate::runtime::shared::Shared;

/// How many streams that were reset are remembered, so that what was on its way for them is no offence.
const FORSAKEN_MAX: usize = 1024;
/// Pieces of a body smaller than this that complete no message are counted.
const TINY_BYTES_MAX: usize = 16;
/// Streams whose windows are moved for the price of one frame that carries nothing.
const STREAMS_PER_COST: usize = 16;

impl Http2 {
    /// Handles the frames at the beginning of `input`. Returns how much of it was handled, and whether the turn's time was over, or
    /// the output full, before all complete frames were.
    pub(crate) fn handle(
        &mut self,
        shared: &mut Shared,
        input: &[u8],
        until: Instant,
    ) -> Result<(usize, bool), Ending> {
        let mut rest = input;
        while let Some((head, after)) = Head::parse(rest).zip(rest.get(HEAD_BYTES..)) {
            if head.len > PAYLOAD_BYTES_DEFAULT {
                return Err(Fault::connection(Reason::FRAME_SIZE_ERROR).into());
            }
            let Some((payload, behind)) = after.split_at_checked(head.len) else { break };
            rest = behind;
            match self.frame(shared, head, payload, behind) {
                // With this frame the next one may have been handled.
                Ok(more) => rest = behind.get(more..).ok_or(Fault::connection(Reason::INTERNAL_ERROR))?,
                Err(Ended::Connection(ending)) => return Err(ending),
                Err(Ended::Stream(fault)) => self.reset_by_force(shared, fault)?,
            }
            // Only these make work that takes time.
            if matches!(
                head.kind,
                kind::HEADERS | kind::DATA | kind::CONTINUATION | kind::WINDOW_UPDATE | kind::SETTINGS
            ) {
                shared.now = Instant::now();
            }
            if shared.now > until || self.sender.is_full() {
                return Ok((input.len().saturating_sub(rest.len()), true));
            }
        }
        Ok((input.len().saturating_sub(rest.len()), false))
    }

    /// Handles one frame. `rest` is what comes after it; the result is how much of that was handled with it.
    fn frame(&mut self, shared: &mut Shared, head: Head, payload: &[u8], rest: &[u8]) -> Result<usize, Ended> {
        if let Some(block) = &self.receiver.block
            && (head.kind != kind::CONTINUATION || head.stream != block.stream)
        {
            return Err(Fault::connection(Reason::PROTOCOL_ERROR).into());
        }
        if !self.greeted && (head.kind != kind::SETTINGS || head.has(flag::ACK)) {
            return Err(Fault::connection(Reason::PROTOCOL_ERROR).into());
        }
        #[cfg(feature = "planted-panics")]
        if head.kind == kind::PING {
            crate::planted::panic_over(payload);
        }
        match Frame::parse(head, payload)? {
            Frame::Headers { stream, fragment, end_stream, end_headers: true } => {
                return self.block(shared, stream, fragment, end_stream, rest);
            }
            Frame::Headers { stream, fragment, end_stream, end_headers: false } => {
                self.receiver.block = Some(Block::new(stream, end_stream, fragment, shared.now));
            }
            Frame::Continuation { fragment, end_headers, .. } => {
                let Some(mut block) = self.receiver.block.take() else {
                    return Err(Fault::connection(Reason::PROTOCOL_ERROR).into());
                };
                // A list that is somewhat too long is still read, so that it can be answered and the table stays in step.
                if !block.extend(fragment, (shared.options.header_list_bytes_max as usize).saturating_mul(2)) {
                    return Err(Http2::over(shared, Limit::HeaderBlock).into());
                }
                if end_headers {
                    return self.block(shared, block.stream, &block.bytes, block.end_stream, rest);
                }
                self.receiver.block = Some(block);
            }
            Frame::Data { stream, data, end } => self.data(shared, stream, data, head.len, end)?,
            Frame::Reset { stream, .. } => {
                self.not_idle(stream)?;
                self.count(shared, Cost::Reset)?;
                if let Some(&key) = self.ids.get(&stream) {
                    self.remove(shared, key);
                }
            }
            Frame::WindowUpdate { stream: 0, increment } => {
                self.count(shared, Cost::WindowUpdate)?;
                self.sender.widen(increment).inspect_err(|_| shared.stats.hit(Limit::ConnectionWindow))?;
            }
            Frame::WindowUpdate { stream, increment } => {
                self.not_idle(stream)?;
                self.count(shared, Cost::WindowUpdate)?;
                let widened = self.widen(shared, stream, i64::from(increment), false);
                widened.inspect_err(|_| shared.stats.hit(Limit::StreamWindow))?;
            }
            Frame::Settings(settings) => {
                self.greeted = true;
                self.count(shared, Cost::IdleFrame)?;
                self.settings(shared, settings)?;
            }
            Frame::Ping { ack: true, data } => self.answered(data),
            Frame::Ping { ack: false, data } => {
                self.count(shared, Cost::IdleFrame)?;
                if !self.ping_rule.allows_ping(shared.now, !self.streams.is_empty()) {
                    return Err(Http2::over(shared, Limit::Pings).into());
                }
                self.sender.ping(true, data);
            }
            Frame::PushPromise { .. } => return Err(Fault::connection(Reason::PROTOCOL_ERROR).into()),
            Frame::Priority { .. } | Frame::SettingsAck | Frame::GoAway { .. } | Frame::Unknown => {
                self.count(shared, Cost::IdleFrame)?;
            }
        }
        Ok(0)
    }

    /// A whole header block has come.
    fn block(
        &mut self,
        shared: &mut Shared,
        stream: u32,
        block: &[u8],
        end_stream: bool,
        rest: &[u8],
    ) -> Result<usize, Ended> {
        if stream > self.last_stream {
            if stream.is_multiple_of(2) {
                return Err(Fault::connection(Reason::PROTOCOL_ERROR).into());
            }
            if stream > self.last_stream.saturating_add(2) {
                self.passed_over.note(self.last_stream, stream);
            }
            self.last_stream = stream;
            let head = self.receiver.head(block, stream, shared)?;
            if !self.farewell.serves(stream) {
                self.sender.reset(stream, Reason::REFUSED_STREAM);
                self.forsake(stream);
                return Ok(0);
            }
            if self.ids.len() >= shared.options.concurrent_streams_max as usize {
                // Not yet an offence: the client may not have seen our settings.
                shared.stats.hit(Limit::ConcurrentStreams);
                self.count(shared, Cost::Reset)?;
                self.sender.reset(stream, Reason::REFUSED_STREAM);
                self.forsake(stream);
                return Ok(0);
            }
            return self.begin(shared, stream, head, end_stream, rest);
        }
        let Some(&key) = self.ids.get(&stream) else {
            if self.forsaken.contains(&stream) {
                self.count(shared, Cost::IdleFrame)?;
                self.receiver.trailers(block, stream, shared)?;
                return Ok(0);
            }
            let was_opened = !stream.is_multiple_of(2) && !self.passed_over.contains(stream);
            let reason = if was_opened { Reason::STREAM_CLOSED } else { Reason::PROTOCOL_ERROR };
            return Err(Fault::connection(reason).into());
        };
        self.receiver.trailers(block, stream, shared)?;
        let Some(Stream { input, signal, .. }) = self.streams.get_mut(key) else { return Err(unknown(stream)) };
        let signal = signal.clone();
        let begun = if end_stream || input.ended { input.take(0, 0, true) } else { Err(Reason::PROTOCOL_ERROR) };
        begun.map_err(|reason| Fault::stream(stream, reason))?;
        self.attend_input(shared, &signal, &[], true);
        Ok(0)
    }

    /// A DATA frame has come; `len` is what it counts for in the windows.
    fn data(&mut self, shared: &mut Shared, stream: u32, data: &[u8], len: usize, end: bool) -> Result<(), Ended> {
        self.not_idle(stream)?;
        self.receiver.take(len).inspect_err(|_| shared.stats.hit(Limit::ReceiveWindow))?;
        let Some(&key) = self.ids.get(&stream) else {
            if self.forsaken.contains(&stream) {
                return self.count(shared, Cost::IdleFrame);
            }
            return Err(Fault::stream(stream, Reason::STREAM_CLOSED).into());
        };
        let Some(Stream { input, signal, .. }) = self.streams.get_mut(key) else { return Err(unknown(stream)) };
        let signal = signal.clone();
        if let Err(reason) = input.take(len, data.len(), end) {
            if reason == Reason::FLOW_CONTROL_ERROR {
                shared.stats.hit(Limit::ReceiveWindow);
            }
            return Err(Fault::stream(stream, reason).into());
        }
        let held = self.gathered.bytes();
        self.attend_input(shared, &signal, data, end);
        if !end && data.is_empty() {
            return self.count(shared, Cost::IdleFrame);
        }
        let gets_nowhere = self.gathered.bytes() > held || !self.ids.contains_key(&stream);
        if !end && data.len() < TINY_BYTES_MAX && gets_nowhere {
            return self.count(shared, Cost::TinyData);
        }
        Ok(())
    }

    fn settings(&mut self, shared: &mut Shared, settings: Settings<'_>) -> Result<(), Ended> {
        let change = self.sender.apply(settings)?;
        if change == 0 {
            return Ok(());
        }
        // It is not one frame's worth of work when there are many streams.
        let times = self.ids.len() / STREAMS_PER_COST;
        self.rates.count(shared.now, Cost::IdleFrame, times as u32).map_err(|limit| Http2::over(shared, limit))?;
        let ids: Vec<u32> = self.ids.keys().copied().collect();
        for id in ids {
            // Each may have much to make now, so they have their turns later.
            if self.widen(shared, id, change, true).is_err() {
                shared.stats.hit(Limit::ConnectionWindow);
                return Err(Fault::connection(Reason::FLOW_CONTROL_ERROR).into());
            }
        }
        Ok(())
    }

    /// Changes the window of a stream, which may let it continue.
    fn widen(&mut self, shared: &mut Shared, stream: u32, by: i64, later: bool) -> Result<(), Fault> {
        let key = self.ids.get(&stream).copied();
        let stream_of = key.and_then(|key| self.streams.get_mut(key));
        let Some(Stream { out, signal, window_due, .. }) = stream_of else { return Ok(()) };
        let was_closed = !out.can_move();
        if out.widen(by).is_err() {
            return Err(Fault::stream(stream, Reason::FLOW_CONTROL_ERROR));
        }
        self.sender.withholds |= out.withholds();
        if was_closed && out.can_move() {
            let is_narrow = out.is_narrow();
            let signal = signal.clone();
            if !is_narrow && !later {
                self.attend(shared, signal, Event::Wake);
            } else if !std::mem::replace(window_due, true) {
                // There may be more of the narrow ones in what was read: they are worth one frame together. And a peer may shut and
                // open its windows as often as it likes.
                self.notify(signal, Event::Window);
            }
        }
        Ok(())
    }

    /// Frames other than HEADERS and PRIORITY must not name a stream that has not begun.
    fn not_idle(&self, stream: u32) -> Result<(), Fault> {
        let is_idle = stream > self.last_stream || stream.is_multiple_of(2);
        if is_idle { Err(Fault::connection(Reason::PROTOCOL_ERROR)) } else { Ok(()) }
    }

    fn count(&mut self, shared: &Shared, cost: Cost) -> Result<(), Ended> {
        self.rates.count(shared.now, cost, 1).map_err(|limit| Http2::over(shared, limit).into())
    }

    /// Resets a stream of a client that has broken a rule.
    fn reset_by_force(&mut self, shared: &mut Shared, fault: Fault) -> Result<(), Ending> {
        // A stream that has not begun cannot be reset (RFC 9113 section 5.1).
        if self.not_idle(fault.stream).is_err() {
            return Err(Fault::connection(fault.reason).into());
        }
        shared.stats.stream_error(fault.reason);
        self.rates.count(shared.now, Cost::ForcedReset, 1).map_err(|limit| Http2::over(shared, limit))?;
        if let Some(&key) = self.ids.get(&fault.stream) {
            self.remove(shared, key);
        }
        self.sender.reset(fault.stream, fault.reason);
        self.forsake(fault.stream);
        Ok(())
    }

    /// Remembers that what still comes for `stream` is no offence.
    pub(crate) fn forsake(&mut self, stream: u32) {
        if self.forsaken.len() == FORSAKEN_MAX {
            self.forsaken.pop_front();
        }
        self.forsaken.push_back(stream);
    }
}

/// A stream that has a number here and is none: a slip of ours.
fn unknown(stream: u32) -> Ended {
    Fault::stream(stream, Reason::INTERNAL_ERROR).into()
}

/// What ends because of a frame.
pub(crate) enum Ended {
    Stream(Fault),
    Connection(Ending),
}

impl From<Fault> for Ended {
    fn from(fault: Fault) -> Ended {
        if fault.stream == 0 { Ended::Connection(fault.into()) } else { Ended::Stream(fault) }
    }
}

impl From<Ending> for Ended {
    fn from(ending: Ending) -> Ended {
        Ended::Connection(ending)
    }
}
