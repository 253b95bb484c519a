//! HTTP/2 frames, RFC 9113 sections 4 and 6: taken apart and put together, without any state.

use bytes::{BufMut, BytesMut};

/// Bytes of every frame's head.
pub const HEAD_BYTES: usize = 9;
/// The largest payload that every peer must take, and the largest that we take.
pub const PAYLOAD_BYTES_DEFAULT: usize = 16_384;
/// Flow-control windows at first.
pub const WINDOW_BYTES_DEFAULT: u32 = 65_535;
/// The largest flow-control window.
pub const WINDOW_BYTES_MAX: u32 = (1 << 31) - 1;
/// What a client begins with, RFC 9113 section 3.4.
pub const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// The bit of stream numbers, increments and dependencies that has no meaning.
const RESERVED_BIT: u32 = 1 << 31;
/// Bytes of a priority.
const PRIORITY_BYTES: usize = 5;
/// Bytes of one setting.
const SETTING_BYTES: usize = 6;

/// Types of frames.
#[allow(missing_docs)]
pub mod kind {
    pub const DATA: u8 = 0;
    pub const HEADERS: u8 = 1;
    pub const PRIORITY: u8 = 2;
    pub const RST_STREAM: u8 = 3;
    pub const SETTINGS: u8 = 4;
    pub const PUSH_PROMISE: u8 = 5;
    pub const PING: u8 = 6;
    pub const GO_AWAY: u8 = 7;
    pub const WINDOW_UPDATE: u8 = 8;
    pub const CONTINUATION: u8 = 9;
}

/// Flags of frames.
#[allow(missing_docs)]
pub mod flag {
    pub const ACK: u8 = 1;
    pub const END_STREAM: u8 = 1;
    pub const END_HEADERS: u8 = 4;
    pub const PADDED: u8 = 8;
    pub const PRIORITY: u8 = 0x20;
}

/// Numbers of settings.
#[allow(missing_docs)]
pub mod setting {
    pub const HEADER_TABLE_SIZE: u16 = 1;
    pub const ENABLE_PUSH: u16 = 2;
    pub const MAX_CONCURRENT_STREAMS: u16 = 3;
    pub const INITIAL_WINDOW_SIZE: u16 = 4;
    pub const MAX_FRAME_SIZE: u16 = 5;
    pub const MAX_HEADER_LIST_SIZE: u16 = 6;
}

/// Why a stream or a connection ends, RFC 9113 section 7.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reason(pub u32);

#[allow(missing_docs)]
impl Reason {
    pub const NO_ERROR: Reason = Reason(0);
    pub const PROTOCOL_ERROR: Reason = Reason(1);
    pub const INTERNAL_ERROR: Reason = Reason(2);
    pub const FLOW_CONTROL_ERROR: Reason = Reason(3);
    pub const STREAM_CLOSED: Reason = Reason(5);
    pub const FRAME_SIZE_ERROR: Reason = Reason(6);
    pub const REFUSED_STREAM: Reason = Reason(7);
    pub const CANCEL: Reason = Reason(8);
    pub const COMPRESSION_ERROR: Reason = Reason(9);
    pub const ENHANCE_YOUR_CALM: Reason = Reason(11);

    /// Those for which a server ends streams and connections.
    pub const ERRORS: [Reason; 8] = [
        Reason::PROTOCOL_ERROR,
        Reason::INTERNAL_ERROR,
        Reason::FLOW_CONTROL_ERROR,
        Reason::STREAM_CLOSED,
        Reason::FRAME_SIZE_ERROR,
        Reason::REFUSED_STREAM,
        Reason::COMPRESSION_ERROR,
        Reason::ENHANCE_YOUR_CALM,
    ];

    /// The name that the RFC gives it; none if it is not one of [`Reason::ERRORS`].
    pub fn error_name(self) -> Option<&'static str> {
        Some(match self {
            Reason::PROTOCOL_ERROR => "PROTOCOL_ERROR",
            Reason::INTERNAL_ERROR => "INTERNAL_ERROR",
            Reason::FLOW_CONTROL_ERROR => "FLOW_CONTROL_ERROR",
            Reason::STREAM_CLOSED => "STREAM_CLOSED",
            Reason::FRAME_SIZE_ERROR => "FRAME_SIZE_ERROR",
            Reason::REFUSED_STREAM => "REFUSED_STREAM",
            Reason::COMPRESSION_ERROR => "COMPRESSION_ERROR",
            Reason::ENHANCE_YOUR_CALM => "ENHANCE_YOUR_CALM",
            _ => return None,
        })
    }
}

/// What is wrong with a frame, and how much of the connection that ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The stream that ends; 0 for the whole connection.
    pub stream: u32,
    /// Why.
    pub reason: Reason,
}

impl Fault {
    /// Ends the connection.
    pub const fn connection(reason: Reason) -> Fault {
        Fault { stream: 0, reason }
    }

    /// Ends `stream`.
    pub const fn stream(stream: u32, reason: Reason) -> Fault {
        Fault { stream, reason }
    }
}

/// The first nine bytes of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// Length of the payload, in bytes.
    pub len: usize,
    /// Type, of [`kind`].
    pub kind: u8,
    /// Flags, of [`flag`].
    pub flags: u8,
    /// The stream; 0 is the connection.
    pub stream: u32,
}

impl Head {
    /// The head at the beginning of `input`; none if not all of it is there.
    pub fn parse(input: &[u8]) -> Option<Head> {
        let [a, b, c, kind, flags, d, e, f, g, ..] = *input else { return None };
        let len = u32::from_be_bytes([0, a, b, c]) as usize;
        Some(Head { len, kind, flags, stream: u32::from_be_bytes([d, e, f, g]) & !RESERVED_BIT })
    }

    /// Whether all bits of `flag` are set.
    pub fn has(&self, flag: u8) -> bool {
        self.flags & flag == flag
    }

    /// Appends the head to `out`.
    pub fn put(&self, out: &mut BytesMut) {
        let [_, a, b, c] = (self.len as u32).to_be_bytes();
        let [d, e, f, g] = self.stream.to_be_bytes();
        out.put_slice(&[a, b, c, self.kind, self.flags, d, e, f, g]);
    }
}

/// A frame, taken apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Frame<'a> {
    /// Bytes of a body. The whole payload counts for flow control, padding included.
    Data {
        stream: u32,
        data: &'a [u8],
        end: bool,
    },
    /// The beginning of a header block.
    Headers {
        stream: u32,
        fragment: &'a [u8],
        end_stream: bool,
        end_headers: bool,
    },
    Priority {
        stream: u32,
    },
    Reset {
        stream: u32,
        reason: Reason,
    },
    Settings(Settings<'a>),
    SettingsAck,
    Ping {
        ack: bool,
        data: [u8; 8],
    },
    GoAway {
        last_stream: u32,
        reason: Reason,
        text: &'a [u8],
    },
    WindowUpdate {
        stream: u32,
        increment: u32,
    },
    /// More of a header block.
    Continuation {
        stream: u32,
        fragment: &'a [u8],
        end_headers: bool,
    },
    PushPromise {
        stream: u32,
    },
    /// To be ignored.
    Unknown,
}

impl<'a> Frame<'a> {
    /// Takes `payload` apart, which belongs to `head` and is `head.len` bytes long.
    pub fn parse(head: Head, payload: &'a [u8]) -> Result<Frame<'a>, Fault> {
        let Head { len, stream, .. } = head;
        let on_stream = |ok: bool| if ok { Ok(()) } else { Err(Fault::connection(Reason::PROTOCOL_ERROR)) };
        let size = |ok: bool| if ok { Ok(()) } else { Err(Fault::connection(Reason::FRAME_SIZE_ERROR)) };
        match head.kind {
            kind::DATA => {
                on_stream(stream != 0)?;
                Ok(Frame::Data { stream, data: unpadded(head, payload)?, end: head.has(flag::END_STREAM) })
            }
            kind::HEADERS => {
                on_stream(stream != 0)?;
                let mut fragment = unpadded(head, payload)?;
                if head.has(flag::PRIORITY) {
                    let Some((priority, rest)) = fragment.split_at_checked(PRIORITY_BYTES) else {
                        // Of a frame that is long enough the padding takes too much.
                        let is_padded = len > PRIORITY_BYTES && head.has(flag::PADDED);
                        let reason = if is_padded { Reason::PROTOCOL_ERROR } else { Reason::FRAME_SIZE_ERROR };
                        return Err(Fault::connection(reason));
                    };
                    depends_on_another(stream, priority)?;
                    fragment = rest;
                }
                let (end_stream, end_headers) = (head.has(flag::END_STREAM), head.has(flag::END_HEADERS));
                Ok(Frame::Headers { stream, fragment, end_stream, end_headers })
            }
            kind::PRIORITY => {
                on_stream(stream != 0)?;
                if len != PRIORITY_BYTES {
                    return Err(Fault::stream(stream, Reason::FRAME_SIZE_ERROR));
                }
                depends_on_another(stream, payload)?;
                Ok(Frame::Priority { stream })
            }
            kind::RST_STREAM => {
                on_stream(stream != 0)?;
                size(len == 4)?;
                Ok(Frame::Reset { stream, reason: Reason(word(payload)?) })
            }
            kind::SETTINGS => {
                on_stream(stream == 0)?;
                if head.has(flag::ACK) {
                    size(len == 0)?;
                    return Ok(Frame::SettingsAck);
                }
                size(len.is_multiple_of(SETTING_BYTES))?;
                Ok(Frame::Settings(Settings(payload)))
            }
            kind::PUSH_PROMISE => {
                on_stream(stream != 0)?;
                Ok(Frame::PushPromise { stream })
            }
            kind::PING => {
                on_stream(stream == 0)?;
                let Ok(data) = payload.try_into() else { return Err(Fault::connection(Reason::FRAME_SIZE_ERROR)) };
                Ok(Frame::Ping { ack: head.has(flag::ACK), data })
            }
            kind::GO_AWAY => {
                on_stream(stream == 0)?;
                let too_short = Fault::connection(Reason::FRAME_SIZE_ERROR);
                let (last_stream, rest) = payload.split_first_chunk().ok_or(too_short)?;
                let (reason, text) = rest.split_first_chunk().ok_or(too_short)?;
                let last_stream = u32::from_be_bytes(*last_stream) & !RESERVED_BIT;
                Ok(Frame::GoAway { last_stream, reason: Reason(u32::from_be_bytes(*reason)), text })
            }
            kind::WINDOW_UPDATE => {
                size(len == 4)?;
                match word(payload)? & !RESERVED_BIT {
                    0 => Err(Fault::stream(stream, Reason::PROTOCOL_ERROR)),
                    increment => Ok(Frame::WindowUpdate { stream, increment }),
                }
            }
            kind::CONTINUATION => {
                on_stream(stream != 0)?;
                Ok(Frame::Continuation { stream, fragment: payload, end_headers: head.has(flag::END_HEADERS) })
            }
            _ => Ok(Frame::Unknown),
        }
    }
}

/// The settings of one frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings<'a>(&'a [u8]);

impl Settings<'_> {
    /// Number and value of each, in order. Fails at the first value that is not allowed.
    pub fn iter(&self) -> impl Iterator<Item = Result<(u16, u32), Fault>> {
        let (settings, _) = self.0.as_chunks::<SETTING_BYTES>();
        settings.iter().map(|&[a, b, c, d, e, f]| {
            let (id, value) = (u16::from_be_bytes([a, b]), u32::from_be_bytes([c, d, e, f]));
            let largest_frame = (1 << 24) - 1;
            let reason = match id {
                setting::ENABLE_PUSH if value > 1 => Reason::PROTOCOL_ERROR,
                setting::INITIAL_WINDOW_SIZE if value > WINDOW_BYTES_MAX => Reason::FLOW_CONTROL_ERROR,
                setting::MAX_FRAME_SIZE if !(PAYLOAD_BYTES_DEFAULT as u32..=largest_frame).contains(&value) => {
                    Reason::PROTOCOL_ERROR
                }
                _ => return Ok((id, value)),
            };
            Err(Fault::connection(reason))
        })
    }

    /// Appends a SETTINGS frame to `out`.
    pub fn put(settings: &[(u16, u32)], out: &mut BytesMut) {
        Head { len: settings.len().saturating_mul(SETTING_BYTES), kind: kind::SETTINGS, flags: 0, stream: 0 }.put(out);
        for &(id, value) in settings {
            out.put_u16(id);
            out.put_u32(value);
        }
    }
}

/// The first four bytes as a number.
fn word(bytes: &[u8]) -> Result<u32, Fault> {
    let word = bytes.first_chunk().ok_or(Fault::connection(Reason::FRAME_SIZE_ERROR))?;
    Ok(u32::from_be_bytes(*word))
}

fn unpadded(head: Head, payload: &[u8]) -> Result<&[u8], Fault> {
    if !head.has(flag::PADDED) {
        return Ok(payload);
    }
    let Some((&padding, rest)) = payload.split_first() else {
        return Err(Fault::connection(Reason::FRAME_SIZE_ERROR));
    };
    let len = rest.len().checked_sub(usize::from(padding));
    len.and_then(|len| rest.get(..len)).ok_or(Fault::connection(Reason::PROTOCOL_ERROR))
}

/// Priorities are read for this only: a stream must not depend on itself.
fn depends_on_another(stream: u32, priority: &[u8]) -> Result<(), Fault> {
    if word(priority)? & !RESERVED_BIT == stream {
        // It would do to reset the stream. But it may not have begun, and what comes with it would still have to be decoded.
        return Err(Fault::connection(Reason::PROTOCOL_ERROR));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Result<Frame<'_>, Fault> {
        let head = Head { len: payload.len(), kind, flags, stream };
        let mut out = BytesMut::new();
        head.put(&mut out);
        assert_eq!(Head::parse(&out), Some(head));
        assert_eq!(Head::parse(&out[..8]), None);
        Frame::parse(head, payload)
    }

    #[test]
    fn padding_and_priority_are_taken_off() {
        let data = parse(kind::DATA, flag::PADDED, 1, b"\x02dataxx");
        assert_eq!(data, Ok(Frame::Data { stream: 1, data: b"data", end: false }));
        let all = flag::PADDED | flag::PRIORITY | flag::END_HEADERS | flag::END_STREAM;
        let headers = parse(kind::HEADERS, all, 3, b"\x01\x80\0\0\x01\xffblock.");
        let wanted = Frame::Headers { stream: 3, fragment: b"block", end_stream: true, end_headers: true };
        assert_eq!(headers, Ok(wanted));
    }

    #[test]
    fn faults_end_what_they_must() {
        let connection = |reason| Err(Fault::connection(reason));
        type Case<'a> = (u8, u8, u32, &'a [u8], Result<Frame<'a>, Fault>);
        let cases: [Case<'_>; 16] = [
            (kind::DATA, 0, 0, b"x", connection(Reason::PROTOCOL_ERROR)),
            (kind::DATA, flag::PADDED, 1, b"", connection(Reason::FRAME_SIZE_ERROR)),
            (kind::DATA, flag::PADDED, 1, b"\x01", connection(Reason::PROTOCOL_ERROR)),
            (kind::HEADERS, flag::PRIORITY, 1, b"1234", connection(Reason::FRAME_SIZE_ERROR)),
            (kind::HEADERS, flag::PRIORITY, 7, b"\0\0\0\x07.", connection(Reason::PROTOCOL_ERROR)),
            (kind::PRIORITY, 0, 7, b"\0\0\0\x07.", connection(Reason::PROTOCOL_ERROR)),
            (kind::PRIORITY, 0, 7, b"\0\0\0\x01", Err(Fault::stream(7, Reason::FRAME_SIZE_ERROR))),
            (kind::RST_STREAM, 0, 1, b"123", connection(Reason::FRAME_SIZE_ERROR)),
            (kind::RST_STREAM, 0, 0, b"1234", connection(Reason::PROTOCOL_ERROR)),
            (kind::SETTINGS, 0, 0, b"12345", connection(Reason::FRAME_SIZE_ERROR)),
            (kind::SETTINGS, flag::ACK, 0, b"123456", connection(Reason::FRAME_SIZE_ERROR)),
            (kind::SETTINGS, 0, 1, b"", connection(Reason::PROTOCOL_ERROR)),
            (kind::PING, 0, 0, b"1234567", connection(Reason::FRAME_SIZE_ERROR)),
            (kind::GO_AWAY, 0, 0, b"1234567", connection(Reason::FRAME_SIZE_ERROR)),
            (kind::WINDOW_UPDATE, 0, 0, b"\0\0\0\0", connection(Reason::PROTOCOL_ERROR)),
            (kind::WINDOW_UPDATE, 0, 5, b"\x80\0\0\0", Err(Fault::stream(5, Reason::PROTOCOL_ERROR))),
        ];
        for (kind, flags, stream, payload, wanted) in cases {
            assert_eq!(parse(kind, flags, stream, payload), wanted, "type {kind}, {payload:?}");
        }
    }

    #[test]
    fn settings_are_checked_one_by_one() {
        let mut out = BytesMut::new();
        Settings::put(&[(setting::HEADER_TABLE_SIZE, 0), (99, 7), (setting::MAX_FRAME_SIZE, 1)], &mut out);
        let Ok(Frame::Settings(settings)) = parse(kind::SETTINGS, 0, 0, &out[HEAD_BYTES..]) else {
            panic!("a settings frame");
        };
        let wanted = [Ok((1, 0)), Ok((99, 7)), Err(Fault::connection(Reason::PROTOCOL_ERROR))];
        assert_eq!(settings.iter().collect::<Vec<_>>(), wanted);
    }
}
