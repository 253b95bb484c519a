//! Pages that members serve beside gRPC, over HTTP/1.1 (by hyper).

use std::future::Future as _;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use api::Code;
use bytes::Bytes;
use http::{Request, StatusCode, header};
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::client::conn::http1::{Connection, SendRequest, handshake};
use hyper_util::rt::TokioIo;
use rpc::Status;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::TlsConnector;

use crate::client::Client;
use crate::{Endpoint, Error};

/// A page larger than this is none of ours.
const PAGE_BYTES_MAX: usize = 64 << 20;

impl Client {
    /// What a member answers to a GET of `path` (of `/metrics`, for instance), over a connection of its own.
    ///
    /// # Errors
    /// If the endpoint is none of this client's, cannot be reached, or has no such page.
    pub async fn page(&self, endpoint: &Endpoint, path: &str) -> Result<String, Error> {
        let fetched = self.within(self.inner.options.call_timeout, async {
            let fetched =
                async { Pages::over(self.dial(endpoint).await?, host(endpoint), None).await?.fetch(path).await };
            fetched.await.map_err(|why| Status::new(Code::Unavailable, why))
        });
        Ok(fetched.await?)
    }

    /// Connects to a member to fetch pages one after the other.
    ///
    /// # Errors
    /// If the endpoint is none of this client's, or cannot be reached.
    pub async fn pages(&self, endpoint: &Endpoint) -> Result<Pages, Error> {
        let patience = self.inner.options.call_timeout;
        let dialled = self.within(Some(self.inner.options.connect_timeout), async {
            let dialled = async { Pages::over(self.dial(endpoint).await?, host(endpoint), patience).await };
            dialled.await.map_err(|why| Status::new(Code::Unavailable, why))
        });
        Ok(dialled.await?)
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

/// A connection over which pages come one after the other.
pub struct Pages {
    requests: SendRequest<Empty<Bytes>>,
    /// Moves while a page is awaited: it needs no task of its own.
    connection: Connection<TokioIo<Box<dyn Duplex>>, Empty<Bytes>>,
    host: String,
    patience: Option<Duration>,
}

impl Pages {
    /// Over a connection that was made already, to `host`. A page may take as long as `patience`.
    ///
    /// # Errors
    /// If the connection breaks.
    pub async fn over(
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        host: &str,
        patience: Option<Duration>,
    ) -> Result<Pages, String> {
        let stream: Box<dyn Duplex> = Box::new(stream);
        let (requests, connection) = handshake(TokioIo::new(stream)).await.map_err(|error| describe(&error))?;
        Ok(Pages { requests, connection, host: host.into(), patience })
    }

    /// A page.
    ///
    /// # Errors
    /// If there is no such page, it is larger than 64 MiB or late, or the connection breaks; it cannot be used then.
    pub async fn get(&mut self, path: &str) -> Result<String, Error> {
        let patience = self.patience.unwrap_or(Duration::MAX);
        let fetched = tokio::time::timeout(patience, self.fetch(path)).await;
        let fetched = fetched.unwrap_or_else(|_| Err(format!("`{path}` is not answered in time")));
        Ok(fetched.map_err(|why| Status::new(Code::Unavailable, why))?)
    }

    async fn fetch(&mut self, path: &str) -> Result<String, String> {
        let request = Request::get(path).header(header::HOST, &self.host).body(Empty::new());
        let sent = self.requests.send_request(request.map_err(|error| error.to_string())?);
        let answered = async {
            let answer = sent.await.map_err(|error| describe(&error))?;
            let status = answer.status();
            if status != StatusCode::OK {
                return Err(format!("`{path}` is answered with status {}", status.as_str()));
            }
            let body =
                Limited::new(answer.into_body(), PAGE_BYTES_MAX).collect().await.map_err(|error| error.to_string())?;
            Ok(String::from_utf8_lossy(&body.to_bytes()).into_owned())
        };
        let mut answered = std::pin::pin!(answered);
        let mut is_open = true;
        std::future::poll_fn(|cx| {
            if is_open {
                // What went wrong with it, the answer tells.
                is_open = Pin::new(&mut self.connection).poll(cx).is_pending();
            }
            answered.as_mut().poll(cx)
        })
        .await
    }
}

/// hyper's own words leave out the reason.
fn describe(error: &hyper::Error) -> String {
    std::error::Error::source(error).map_or_else(|| error.to_string(), |source| format!("{error}: {source}"))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    /// What is made of an answer, after which the connection ends.
    async fn read(answer: &'static str) -> Result<String, String> {
        let (ours, mut theirs) = tokio::io::duplex(1 << 20);
        let member = async move {
            let mut request = [0; 256];
            let read = theirs.read(&mut request).await.unwrap();
            assert_eq!(&request[..read], b"GET /version HTTP/1.1\r\nhost: h:1\r\n\r\n");
            theirs.write_all(answer.as_bytes()).await.unwrap();
        };
        let (page, ()) =
            tokio::join!(async { Pages::over(ours, "h:1", None).await.unwrap().fetch("/version").await }, member,);
        page
    }

    #[tokio::test]
    async fn pages_are_whole_or_refused() {
        assert_eq!(read("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc").await, Ok("abc".into()));
        assert_eq!(
            read("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n2\r\nbc\r\n0\r\n\r\n").await,
            Ok("abc".into())
        );
        assert_eq!(read("HTTP/1.0 200 OK\r\n\r\nabc").await, Ok("abc".into()));
        assert_eq!(
            read("HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n").await,
            Err("`/version` is answered with status 404".into())
        );
        for bad in ["HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nabc", "HTTP/1.1 200 OK\r\n", "garbage", ""] {
            assert!(read(bad).await.is_err(), "{bad:?}");
        }
    }

    #[tokio::test]
    async fn several_pages_come_over_one_connection() {
        let (ours, mut theirs) = tokio::io::duplex(1 << 20);
        let member = async move {
            for body in ["a", "b"] {
                let _ = theirs.read(&mut [0; 256]).await.unwrap();
                let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n{body}");
                theirs.write_all(answer.as_bytes()).await.unwrap();
            }
        };
        let fetched = async {
            let mut pages = Pages::over(ours, "h:1", Some(Duration::from_secs(10))).await.unwrap();
            [pages.get("/a").await.unwrap(), pages.get("/b").await.unwrap()]
        };
        assert_eq!(tokio::join!(fetched, member).0, ["a", "b"]);
    }
}
