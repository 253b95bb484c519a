//! The limits that a client can run into, each with a counter of its own.

/// What a client had too much of, or took too long for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// Streams open at once; more are refused.
    ConcurrentStreams,
    /// Bytes of one header list; the request is answered with 431.
    HeaderList,
    /// Bytes or frames of one header block; the connection ends.
    HeaderBlock,
    /// Streams opened and given up per second; the connection ends.
    Resets,
    /// Streams per second that the server had to reset because of what the client sent; the connection ends.
    ForcedResets,
    /// Pings; the connection ends.
    Pings,
    /// Frames per second that carry nothing; the connection ends.
    IdleFrames,
    /// Pieces of bodies per second of a few bytes each; the connection ends.
    TinyData,
    /// Bytes of incomplete requests of one connection; the call fails.
    GatheredBytes,
    /// Time for the first bytes of a connection; it ends.
    Handshake,
    /// Time for the rest of a header block that has begun; the connection ends.
    HeaderTime,
    /// Time without any progress in writing; the connection ends.
    WriteProgress,
    /// Time for the answer to a ping; the connection ends.
    KeepAlive,
}

impl Limit {
    /// Every limit.
    pub const ALL: [Limit; 13] = [
        Limit::ConcurrentStreams,
        Limit::HeaderList,
        Limit::HeaderBlock,
        Limit::Resets,
        Limit::ForcedResets,
        Limit::Pings,
        Limit::IdleFrames,
        Limit::TinyData,
        Limit::GatheredBytes,
        Limit::Handshake,
        Limit::HeaderTime,
        Limit::WriteProgress,
        Limit::KeepAlive,
    ];

    /// The name under which it is counted.
    pub fn name(self) -> &'static str {
        match self {
            Limit::ConcurrentStreams => "concurrent_streams",
            Limit::HeaderList => "header_list",
            Limit::HeaderBlock => "header_block",
            Limit::Resets => "resets",
            Limit::ForcedResets => "forced_resets",
            Limit::Pings => "pings",
            Limit::IdleFrames => "idle_frames",
            Limit::TinyData => "tiny_data",
            Limit::GatheredBytes => "gathered_bytes",
            Limit::Handshake => "handshake",
            Limit::HeaderTime => "header_time",
            Limit::WriteProgress => "write_progress",
            Limit::KeepAlive => "keep_alive",
        }
    }
}
