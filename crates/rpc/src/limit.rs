//! The limits that a client can hit, each with a counter.

macro_rules! limits {
    ($($(#[$doc:meta])* $name:ident $text:literal)*) => {
        /// A limit of numbers or of time that clients can hit.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Limit { $($(#[$doc])* $name,)* }

        impl Limit {
            /// Every limit.
            pub const ALL: &[Limit] = &[$(Limit::$name,)*];

            /// The name under which it is counted.
            pub fn name(self) -> &'static str {
                match self { $(Limit::$name => $text,)* }
            }
        }
    };
}

limits! {
    /// Connections open at once; more are closed as soon as they are accepted.
    Connections "connections"
    /// Streams open at once; more are refused.
    ConcurrentStreams "concurrent_streams"
    /// Bytes of one header list; the request is answered with 431, trailers are reset.
    HeaderList "header_list"
    /// Bytes or frames of one header block; the connection ends.
    HeaderBlock "header_block"
    /// Bytes of the table of header compression; the connection ends.
    HeaderTable "header_table"
    /// Bytes of one message, before or after decompression; the call fails.
    MessageBytes "message_bytes"
    /// Streams opened and given up per second; the connection ends.
    Resets "resets"
    /// Streams per second that the server had to reset because of what the client sent; the connection ends.
    ForcedResets "forced_resets"
    /// Pings; the connection ends.
    Pings "pings"
    /// Frames per second that carry nothing; the connection ends.
    IdleFrames "idle_frames"
    /// Pieces of bodies per second of a few bytes each; the connection ends.
    TinyData "tiny_data"
    /// Window updates per second; the connection ends.
    WindowUpdates "window_updates"
    /// A stream's window, which the client opened beyond 2^31-1 bytes; the stream is reset.
    StreamWindow "stream_window"
    /// The same of the connection's; it ends. So it does when settings do it to a stream.
    ConnectionWindow "connection_window"
    /// Bytes of bodies beyond what the server's windows let through; the stream is reset or the connection ends.
    ReceiveWindow "receive_window"
    /// Bytes of incomplete requests of one connection; the call fails.
    GatheredBytes "gathered_bytes"
    /// Output that the client does not take, of one connection; it is not read until it does.
    UnreadOutput "unread_output"
    /// Replies that wait for the client's windows, of one connection; new requests wait.
    HeldReplies "held_replies"
    /// Messages of streaming calls that do; their handlers wait.
    HeldMessages "held_messages"
    /// Time for the first bytes of a connection; it ends.
    Handshake "handshake"
    /// Time for the rest of a header block that has begun; the connection ends.
    HeaderTime "header_time"
    /// Time for a message that has begun; the call fails.
    BodyTime "body_time"
    /// Time without any progress in writing; the connection ends.
    WriteProgress "write_progress"
    /// Time for the answer to a ping; the connection ends.
    KeepAlive "keep_alive"
}

impl Limit {
    /// How many there are.
    pub(crate) const COUNT: usize = Limit::ALL.len();
}
