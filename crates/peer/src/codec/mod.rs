//! The frames of the two streams, as etcd writes and reads them.

mod decoder;
mod encoder;
mod owned;
#[cfg(test)]
mod tests;

pub(crate) use decoder::{Decoder, Error, Frame};
pub(crate) use encoder::Encoder;
pub(crate) use owned::{decode, is_swollen};

/// Which of the two streams between a pair of members.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Only appends, most of them without the fields that follow from the preceding frame.
    MsgApp,
    /// All other messages except snapshots.
    Message,
}

impl Kind {
    /// Both kinds, in the order of [`Kind::of`].
    pub(crate) const ALL: [Kind; 2] = [Kind::MsgApp, Kind::Message];

    /// The last part of the stream's path.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Kind::MsgApp => "msgapp",
            Kind::Message => "message",
        }
    }

    /// The name in log lines.
    pub(crate) fn title(self) -> &'static str {
        match self {
            Kind::MsgApp => "stream MsgApp v2",
            Kind::Message => "stream Message",
        }
    }

    /// The one of the two values that belongs to this kind.
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
