//! The frames of the two streams, as etcd writes and reads them.

mod decoder;
mod encoder;
#[cfg(test)]
mod tests;

pub(crate) use decoder::{Decoder, Error, Frame};
pub(crate) use encoder::Encoder;

/// Which of the two streams between a pair of members.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Appends only, most of them without what the stream already knows.
    MsgApp,
    /// Everything else but snapshots.
    Message,
}

impl Kind {
    /// Both, in the order of [`Kind::of`].
    pub(crate) const ALL: [Kind; 2] = [Kind::MsgApp, Kind::Message];

    /// The last part of the stream's path.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Kind::MsgApp => "msgapp",
            Kind::Message => "message",
        }
    }

    /// What the logs call it.
    pub(crate) fn title(self) -> &'static str {
        match self {
            Kind::MsgApp => "stream MsgApp v2",
            Kind::Message => "stream Message",
        }
    }

    /// The one of two that is for this kind.
    pub(crate) fn of<T>(self, [appends, others]: &mut [T; 2]) -> &mut T {
        match self {
            Kind::MsgApp => appends,
            Kind::Message => others,
        }
    }
}

/// First byte of a frame of the append stream.
mod tag {
    pub(super) const HEARTBEAT: u8 = 0;
    pub(super) const CONTINUATION: u8 = 1;
    pub(super) const WHOLE: u8 = 2;
}
