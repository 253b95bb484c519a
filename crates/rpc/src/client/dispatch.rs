//! Handling of each kind of frame from the server.

use std::time::Instant;

use api::Code;

use super::connection::{FRAME_BYTES_MAX, known};
use super::response::{self, Beginning, ResponseHead};
use super::{Calls, Connection};
use crate::Status;
use crate::http2::frame::{Fault, Frame, HEAD_BYTES, Head, Reason, Settings, flag, kind, setting};
use crate::http2::receiver::Block;

impl Connection {
    /// Handles the complete frames at the beginning of `input`; returns how many bytes that were. What is left is to come again,
    /// with what follows it. An error ends the connection, with the reason that was put into the output.
    pub fn receive(&mut self, input: &[u8], calls: &mut impl Calls) -> Result<usize, Reason> {
        let mut rest = input;
        while let Some((head, after)) = Head::parse(rest).zip(rest.get(HEAD_BYTES..)) {
            if head.len > FRAME_BYTES_MAX {
                return self.fail(Reason::FRAME_SIZE_ERROR);
            }
            let Some((payload, behind)) = after.split_at_checked(head.len) else { break };
            rest = behind;
            match self.frame(head, payload, calls) {
                Ok(()) => {}
                Err(Fault { stream: 0, reason }) => return self.fail(reason),
                Err(Fault { stream, reason }) => {
                    self.sender.reset(stream, reason);
                    if let Some(&slot) = self.ids.get(&stream) {
                        let text = format!("the server broke the protocol (HTTP/2 error {})", reason.0);
                        calls.end(self.remove(slot).tag, Status::new(Code::Internal, text));
                    }
                }
            }
        }
        Ok(input.len().saturating_sub(rest.len()))
    }

    fn fail(&mut self, reason: Reason) -> Result<usize, Reason> {
        self.sender.go_away(0, reason, "");
        Err(reason)
    }

    fn frame(&mut self, head: Head, payload: &[u8], calls: &mut impl Calls) -> Result<(), Fault> {
        const BROKEN: Fault = Fault::connection(Reason::PROTOCOL_ERROR);
        if let Some(block) = &self.block
            && (head.kind != kind::CONTINUATION || head.stream != block.stream)
        {
            return Err(BROKEN);
        }
        if !self.greeted && (head.kind != kind::SETTINGS || head.has(flag::ACK)) {
            return Err(BROKEN);
        }
        match Frame::parse(head, payload)? {
            Frame::Data { stream, data, end } => self.data(stream, data, head.len, end, calls),
            Frame::Headers { stream, fragment, end_stream, end_headers: true } => {
                self.headers(stream, fragment, end_stream, calls)
            }
            Frame::Headers { stream, fragment, end_stream, end_headers: false } => {
                self.block = Some(Block::new(stream, end_stream, fragment, Instant::now()));
                Ok(())
            }
            Frame::Continuation { fragment, end_headers, .. } => {
                let Some(mut block) = self.block.take() else { return Err(BROKEN) };
                if !block.extend(fragment, self.options.header_list_bytes_max as usize) {
                    return Err(Fault::connection(Reason::ENHANCE_YOUR_CALM));
                }
                if end_headers {
                    return self.headers(block.stream, &block.bytes, block.end_stream, calls);
                }
                self.block = Some(block);
                Ok(())
            }
            Frame::Reset { stream, reason } => {
                self.begun(stream)?;
                if let Some(&slot) = self.ids.get(&stream) {
                    calls.end(self.remove(slot).tag, response::reset(reason));
                }
                Ok(())
            }
            Frame::Settings(settings) => self.settings(settings),
            Frame::Ping { ack: true, .. } => {
                self.pongs = self.pongs.wrapping_add(1);
                Ok(())
            }
            Frame::Ping { ack: false, data } => {
                self.sender.ping(true, data);
                Ok(())
            }
            Frame::GoAway { last_stream, reason, text } => {
                self.go_away(last_stream, reason, text, calls);
                Ok(())
            }
            Frame::WindowUpdate { stream: 0, increment } => {
                self.sender.widen(increment)?;
                self.pump();
                Ok(())
            }
            Frame::WindowUpdate { stream, increment } => {
                self.begun(stream)?;
                if let Some(&slot) = self.ids.get(&stream) {
                    known(&mut self.streams, slot).widen(i64::from(increment))?;
                    self.pump();
                }
                Ok(())
            }
            Frame::PushPromise { .. } => Err(BROKEN),
            Frame::Priority { .. } | Frame::SettingsAck | Frame::Unknown => Ok(()),
        }
    }

    fn data(&mut self, id: u32, data: &[u8], len: usize, end: bool, calls: &mut impl Calls) -> Result<(), Fault> {
        self.begun(id)?;
        if !self.take(len) {
            return Err(Fault::connection(Reason::FLOW_CONTROL_ERROR));
        }
        // It may have been given up while this was on its way.
        let Some(&slot) = self.ids.get(&id) else { return Ok(()) };
        let stream = known(&mut self.streams, slot);
        if !stream.begun {
            return Err(Fault::stream(id, Reason::PROTOCOL_ERROR));
        }
        stream.take(len, data.len())?;
        let tag = stream.tag;
        if !data.is_empty() {
            calls.data(tag, data);
        }
        if end {
            self.end(slot, response::no_status(), true, calls);
        } else if let Some(increment) = known(&mut self.streams, slot).window_update(self.options.stream_window_bytes) {
            self.sender.window_update(id, increment);
        }
        Ok(())
    }

    fn headers(&mut self, id: u32, block: &[u8], end: bool, calls: &mut impl Calls) -> Result<(), Fault> {
        self.begun(id)?;
        let list_max = self.options.header_list_bytes_max as usize;
        let head = ResponseHead::decode(block, &mut self.decoder, id, list_max);
        // It may have been given up while this was on its way; the block had to be decoded all the same.
        let Some(&slot) = self.ids.get(&id) else {
            return head.map(|_| ()).or_else(|fault| if fault.stream == 0 { Err(fault) } else { Ok(()) });
        };
        let head = head?;
        let stream = known(&mut self.streams, slot);
        if stream.begun {
            if !end {
                return Err(Fault::stream(id, Reason::PROTOCOL_ERROR));
            }
            let status = head.end(id)?;
            self.end(slot, status, true, calls);
            return Ok(());
        }
        match head.beginning(id, end)? {
            Beginning::Informational => {}
            Beginning::Body => stream.begun = true,
            Beginning::Over(status) => self.end(slot, status, end, calls),
        }
        Ok(())
    }

    /// A call has its status. `closed` if the server sends nothing more on its stream.
    fn end(&mut self, slot: usize, status: Status, closed: bool, calls: &mut impl Calls) {
        let stream = self.remove(slot);
        if !closed || !stream.ended {
            self.sender.reset(stream.id, Reason::CANCEL);
        }
        calls.end(stream.tag, status);
    }

    fn settings(&mut self, settings: Settings<'_>) -> Result<(), Fault> {
        let mut streams_max = (!self.greeted).then_some(usize::MAX);
        for entry in settings.iter() {
            match entry? {
                (setting::MAX_CONCURRENT_STREAMS, most) => streams_max = Some(most as usize),
                (setting::ENABLE_PUSH, 1..) => return Err(Fault::connection(Reason::PROTOCOL_ERROR)),
                _ => {}
            }
        }
        self.greeted = true;
        self.streams_max = streams_max.unwrap_or(self.streams_max);
        let change = self.sender.apply(settings)?;
        if change != 0 {
            for (_, stream) in &mut self.streams {
                stream.widen(change).map_err(|_| Fault::connection(Reason::FLOW_CONTROL_ERROR))?;
            }
            self.pump();
        }
        Ok(())
    }

    /// The server takes no new calls, and has not looked at those after `last_stream`.
    fn go_away(&mut self, last_stream: u32, reason: Reason, text: &[u8], calls: &mut impl Calls) {
        let why = format!("the server has ended it (HTTP/2 error {}) {}", reason.0, String::from_utf8_lossy(text));
        let status = Connection::lost(why.trim_end());
        let unseen: Vec<usize> =
            self.streams.iter().filter(|(_, stream)| stream.id > last_stream).map(|(slot, _)| slot).collect();
        for slot in unseen {
            calls.end(self.remove(slot).tag, status.clone());
        }
        self.farewell.get_or_insert(status);
    }

    /// Frames must not name a stream that was never begun.
    fn begun(&self, stream: u32) -> Result<(), Fault> {
        let is_idle = stream >= self.next_id || stream.is_multiple_of(2);
        if is_idle { Err(Fault::connection(Reason::PROTOCOL_ERROR)) } else { Ok(()) }
    }
}
