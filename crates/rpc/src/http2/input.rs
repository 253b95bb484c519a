//! The receiving side of a stream.

use super::body_time::Mark;
use super::frame::Reason;
use super::receiver::WINDOW_BYTES;
use crate::grpc::decoder::Decoder;
use crate::grpc::encoding::Encoding;
/// The receiving side of a stream.
pub(crate) struct Input {
    /// The client has sent its last byte.
    pub(crate) ended: bool,
    /// The service has been told so.
    pub(crate) told: bool,
    pub(crate) decoder: Decoder,
    /// Bytes of the body still to come, if that was announced.
    pub(crate) left: Option<u64>,
    /// What the client may still send.
    pub(crate) window: i64,
    /// What came and has not been given back to the window.
    pub(crate) taken_bytes: usize,
    /// What is given back and not yet announced.
    pub(crate) due: u32,
    /// Bytes of the body that have come.
    pub(crate) received_bytes: u64,
    /// How far the message was when it was looked at.
    pub(crate) mark: Option<Mark>,
}

impl Input {
    pub(crate) fn new(decoder: Decoder, left: Option<u64>, ended: bool) -> Input {
        let window = i64::from(WINDOW_BYTES);
        Input { ended, told: false, decoder, left, window, taken_bytes: 0, due: 0, received_bytes: 0, mark: None }
    }

    /// The input has ended.
    pub(crate) fn whole() -> Input {
        Input { told: true, ..Input::new(Decoder::new(Encoding::Identity, 0), None, true) }
    }

    /// A frame has come: `len` is what it counts for in the windows, `data_bytes` what it holds. The error is why it must not have.
    #[expect(
        clippy::arithmetic_side_effects,
        reason = "frames are as long as the window allows; 64 bits count all bytes there are"
    )]
    pub(crate) fn take(&mut self, len: usize, data_bytes: usize, end: bool) -> Result<(), Reason> {
        if self.ended {
            return Err(Reason::STREAM_CLOSED);
        }
        if len as i64 > self.window {
            return Err(Reason::FLOW_CONTROL_ERROR);
        }
        if let Some(left) = &mut self.left {
            *left = left.checked_sub(data_bytes as u64).ok_or(Reason::PROTOCOL_ERROR)?;
            if end && *left > 0 {
                return Err(Reason::PROTOCOL_ERROR);
            }
        }
        self.window -= len as i64;
        self.taken_bytes += len;
        self.received_bytes += data_bytes as u64;
        Ok(())
    }
}
