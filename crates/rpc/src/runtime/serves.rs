//! The protocols that a listener serves.

/// What is served at a listener.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Serves {
    /// gRPC and HTTP.
    #[default]
    All,
    /// gRPC alone.
    Grpc,
    /// Anything but gRPC.
    Http,
}
