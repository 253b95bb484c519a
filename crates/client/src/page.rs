//! Pages that members serve beside gRPC.

use std::sync::Arc;
use std::time::Duration;

use api::Code;
use rpc::Status;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::TlsConnector;

use crate::client::Client;
use crate::{Endpoint, Error};

/// A page larger than this is none of ours.
const PAGE_BYTES_MAX: u64 = 64 << 20;
/// Bytes of a page that comes over a connection with others, and of its head.
const SHORT_PAGE_BYTES_MAX: usize = 64 << 10;

impl Client {
    /// What a member answers to a GET of `path` (of `/metrics`, for instance), over a connection of its own.
    ///
    /// # Errors
    /// If the endpoint is none of this client's, cannot be reached, or has no such page.
    pub async fn page(&self, endpoint: &Endpoint, path: &str) -> Result<String, Error> {
        let fetched = self.within(self.inner.options.call_timeout, async {
            self.fetch(endpoint, path).await.map_err(|why| Status::new(Code::Unavailable, why))
        });
        Ok(fetched.await?)
    }

    async fn fetch(&self, endpoint: &Endpoint, path: &str) -> Result<String, String> {
        let text = get(self.dial(endpoint).await?, host(endpoint), path).await?;
        let (head, body) = text.split_once("\r\n\r\n").ok_or("the answer is no HTTP")?;
        check(head, path)?;
        Ok(body.to_string())
    }

    /// Connects to a member to fetch pages one after the other.
    ///
    /// # Errors
    /// If the endpoint is none of this client's, or cannot be reached.
    pub async fn pages(&self, endpoint: &Endpoint) -> Result<Pages, Error> {
        let patience = Some(self.inner.options.connect_timeout);
        let dialled = self
            .within(patience, async { self.dial(endpoint).await.map_err(|why| Status::new(Code::Unavailable, why)) });
        Ok(Pages { stream: dialled.await?, host: host(endpoint).into(), patience: self.inner.options.call_timeout })
    }

    /// A new connection, on which HTTP/1.1 is spoken.
    async fn dial(&self, endpoint: &Endpoint) -> Result<Box<dyn Duplex>, String> {
        let member = self.inner.balancer.members().iter().find(|member| member.endpoint == *endpoint);
        let member = member.ok_or_else(|| format!("`{endpoint}` is no endpoint of this client"))?;
        let told = |error: std::io::Error| format!("cannot connect to `{endpoint}`: {error}");
        if let Some(path) = endpoint.address().strip_prefix("unix:") {
            return Ok(Box::new(UnixStream::connect(path).await.map_err(told)?));
        }
        let socket = TcpStream::connect(endpoint.address()).await.map_err(told)?;
        socket.set_nodelay(true).map_err(told)?;
        let Some(encryption) = &member.encryption else { return Ok(Box::new(socket)) };
        let mut config = (*(encryption.config)()?).clone();
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        let connecting = TlsConnector::from(Arc::new(config)).connect(encryption.name.clone(), socket);
        Ok(Box::new(connecting.await.map_err(|error| (encryption.describe)(&error))?))
    }
}

/// What pages are read from.
trait Duplex: AsyncRead + AsyncWrite + Unpin + Send {}

impl<T: AsyncRead + AsyncWrite + Unpin + Send> Duplex for T {}

fn host(endpoint: &Endpoint) -> &str {
    if endpoint.address().starts_with("unix:") { "localhost" } else { endpoint.address() }
}

fn check(head: &str, path: &str) -> Result<(), String> {
    let status = head.split_whitespace().nth(1).unwrap_or_default();
    if status == "200" { Ok(()) } else { Err(format!("`{path}` is answered with status {status}")) }
}

/// A connection over which pages come one after the other.
pub struct Pages {
    stream: Box<dyn Duplex>,
    host: String,
    patience: Option<Duration>,
}

impl Pages {
    /// A short page.
    ///
    /// # Errors
    /// If there is no such page, it does not say how long it is, or the connection breaks; it cannot be used then.
    pub async fn get(&mut self, path: &str) -> Result<String, Error> {
        let patience = self.patience.unwrap_or(Duration::MAX);
        let fetched = tokio::time::timeout(patience, self.fetch(path)).await;
        let fetched = fetched.unwrap_or_else(|_| Err(format!("`{path}` is not answered in time")));
        Ok(fetched.map_err(|why| Status::new(Code::Unavailable, why))?)
    }

    async fn fetch(&mut self, path: &str) -> Result<String, String> {
        let request = format!("GET {path} HTTP/1.1\r\nHost: {}\r\n\r\n", self.host);
        self.stream.write_all(request.as_bytes()).await.map_err(|error| error.to_string())?;
        let mut answer = Vec::new();
        let (head, begin) = loop {
            if let Some(end) = answer.windows(4).position(|window| window == b"\r\n\r\n") {
                break (String::from_utf8_lossy(&answer[..end]).into_owned(), end + 4);
            }
            self.more(&mut answer).await?;
        };
        check(&head, path)?;
        let length = head.lines().find_map(|line| {
            let (name, value) = line.split_once(':')?;
            name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse::<usize>().ok())?
        });
        let length = length.filter(|length| *length <= SHORT_PAGE_BYTES_MAX);
        let length = length.ok_or_else(|| format!("`{path}` does not say how long it is"))?;
        while answer.len() < begin + length {
            self.more(&mut answer).await?;
        }
        Ok(String::from_utf8_lossy(&answer[begin..begin + length]).into_owned())
    }

    async fn more(&mut self, answer: &mut Vec<u8>) -> Result<(), String> {
        if answer.len() > 2 * SHORT_PAGE_BYTES_MAX {
            return Err("the answer has no end".into());
        }
        match self.stream.read_buf(answer).await {
            Ok(0) => Err("the connection ended within an answer".into()),
            Ok(_) => Ok(()),
            Err(error) => Err(error.to_string()),
        }
    }
}

/// One request in the manner of HTTP/1.0, whose answer ends with the connection and does not come in pieces.
async fn get(mut stream: impl AsyncRead + AsyncWrite + Unpin, host: &str, path: &str) -> Result<String, String> {
    let request = format!("GET {path} HTTP/1.0\r\nHost: {host}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.map_err(|error| error.to_string())?;
    let mut answer = Vec::new();
    match stream.take(PAGE_BYTES_MAX).read_to_end(&mut answer).await {
        // A member that closes the connection without a TLS alert has sent its whole answer all the same.
        Ok(_) => {}
        Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof && !answer.is_empty() => {}
        Err(error) => return Err(error.to_string()),
    }
    Ok(String::from_utf8_lossy(&answer).into_owned())
}
