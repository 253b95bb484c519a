//! A small gRPC client: unary calls to another cluster, for discovery.

use api::{Code, Message};
use bytes::{BufMut, Bytes, BytesMut};
use h2::RecvStream;
use h2::client::SendRequest;
use http::{HeaderMap, HeaderValue, Request};
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::time::timeout;

/// An answer larger than this is none: a few members' URLs are expected.
const ANSWER_BYTES_MAX: usize = 4 << 20;
/// What stands before each message: a flag for compression and the length.
const PREFIX_BYTES: usize = 5;

/// Why a call failed.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// No connection.
    #[error("cannot connect: {0}")]
    Connect(#[from] std::io::Error),
    /// The connection broke.
    #[error("connection failed: {0}")]
    Transport(#[from] h2::Error),
    /// Nothing came in time.
    #[error("no answer within {0:?}")]
    Timeout(Duration),
    /// The other side refused.
    #[error("{} ({})", .text, .code)]
    Status {
        /// gRPC's number.
        code: u8,
        /// Its reason.
        text: String,
    },
    /// What came is no gRPC answer.
    #[error("unreadable answer: {0}")]
    Unreadable(String),
}

/// A connection to one endpoint.
pub(super) struct Channel {
    send: SendRequest<Bytes>,
    url: String,
    token: Option<HeaderValue>,
}

impl Channel {
    /// Connects to an http URL.
    pub(super) async fn connect(url: &str, patience: Duration) -> Result<Channel, CallError> {
        let connect = async {
            let tcp = TcpStream::connect(super::addresses::authority(url)).await?;
            tcp.set_nodelay(true)?;
            Ok::<_, CallError>(h2::client::handshake(tcp).await?)
        };
        let (send, connection) = timeout(patience, connect).await.map_err(|_| CallError::Timeout(patience))??;
        // Ends with the channel; what broke it is told by the next call.
        tokio::spawn(async move { connection.await.ok() });
        Ok(Channel { send, url: url.into(), token: None })
    }

    /// Sends this token with every call from now on.
    pub(super) fn set_token(&mut self, token: &str) -> Result<(), CallError> {
        let token = HeaderValue::from_str(token).map_err(|error| CallError::Unreadable(error.to_string()))?;
        self.token = Some(token);
        Ok(())
    }

    /// One request, one answer.
    pub(super) async fn unary<A: Message + Default>(
        &mut self,
        method: &str,
        request: &impl Message,
        patience: Duration,
    ) -> Result<A, CallError> {
        let body = timeout(patience, self.exchange(method, request)).await;
        let body = body.map_err(|_| CallError::Timeout(patience))??;
        A::decode(body).map_err(|error| CallError::Unreadable(error.to_string()))
    }

    async fn exchange(&mut self, method: &str, request: &impl Message) -> Result<Bytes, CallError> {
        let mut head = Request::post(format!("{}{method}", self.url))
            .header("content-type", "application/grpc")
            .header("te", "trailers");
        if let Some(token) = &self.token {
            head = head.header("token", token);
        }
        let head = head.body(()).map_err(|error| CallError::Unreadable(error.to_string()))?;
        let mut message = BytesMut::with_capacity(PREFIX_BYTES + request.encoded_len());
        message.put_u8(0);
        message.put_u32(request.encoded_len() as u32);
        request.encode_raw(&mut message);
        let ready = self.send.clone().ready().await?;
        self.send = ready;
        let (answer, mut out) = self.send.send_request(head, false)?;
        out.send_data(message.freeze(), true)?;
        let (head, body) = answer.await?.into_parts();
        // An answer without a message has its status in the first headers.
        check_status(&head.headers)?;
        let (bytes, trailers) = collect(body).await?;
        check_status(&trailers)?;
        unframe(bytes)
    }
}

async fn collect(mut body: RecvStream) -> Result<(Bytes, HeaderMap), CallError> {
    let mut bytes = BytesMut::new();
    while let Some(piece) = body.data().await {
        let piece = piece?;
        body.flow_control().release_capacity(piece.len())?;
        if bytes.len() + piece.len() > ANSWER_BYTES_MAX {
            return Err(CallError::Unreadable(format!("longer than {ANSWER_BYTES_MAX} bytes")));
        }
        bytes.extend_from_slice(&piece);
    }
    Ok((bytes.freeze(), body.trailers().await?.unwrap_or_default()))
}

fn check_status(headers: &HeaderMap) -> Result<(), CallError> {
    let Some(code) = headers.get("grpc-status").and_then(|code| code.to_str().ok()) else { return Ok(()) };
    let code = code.parse().unwrap_or(Code::Unknown as u8);
    if code == Code::Ok as u8 {
        return Ok(());
    }
    let text = headers.get("grpc-message").map(|text| String::from_utf8_lossy(text.as_bytes()).into_owned());
    Err(CallError::Status { code, text: text.unwrap_or_default() })
}

fn unframe(bytes: Bytes) -> Result<Bytes, CallError> {
    let whole = bytes.len() >= PREFIX_BYTES && bytes[0] == 0;
    let len =
        bytes.get(1..PREFIX_BYTES).map_or(0, |len| len.iter().fold(0usize, |sum, byte| sum << 8 | usize::from(*byte)));
    if whole && bytes.len() == PREFIX_BYTES + len {
        return Ok(bytes.slice(PREFIX_BYTES..));
    }
    Err(CallError::Unreadable("no whole gRPC message".into()))
}
