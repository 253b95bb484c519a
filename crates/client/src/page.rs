//! Pages that members serve beside gRPC.

use std::sync::Arc;

use api::Code;
use rpc::Status;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::TlsConnector;

use crate::client::Client;
use crate::{Endpoint, Error};

/// A page larger than this is none of ours.
const PAGE_BYTES_MAX: u64 = 64 << 20;

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
        let member = self.inner.balancer.members().iter().find(|member| member.endpoint == *endpoint);
        let member = member.ok_or_else(|| format!("`{endpoint}` is no endpoint of this client"))?;
        let told = |error: std::io::Error| format!("cannot connect to `{endpoint}`: {error}");
        let text = match endpoint.address().strip_prefix("unix:") {
            Some(path_of_socket) => {
                get(UnixStream::connect(path_of_socket).await.map_err(told)?, "localhost", path).await?
            }
            None => {
                let socket = TcpStream::connect(endpoint.address()).await.map_err(told)?;
                match &member.encryption {
                    None => get(socket, endpoint.address(), path).await?,
                    Some(encryption) => {
                        let mut config = (*(encryption.config)()?).clone();
                        config.alpn_protocols = vec![b"http/1.1".to_vec()];
                        let connecting = TlsConnector::from(Arc::new(config)).connect(encryption.name.clone(), socket);
                        let stream = connecting.await.map_err(|error| (encryption.describe)(&error))?;
                        get(stream, endpoint.address(), path).await?
                    }
                }
            }
        };
        let (head, body) = text.split_once("\r\n\r\n").ok_or("the answer is no HTTP")?;
        let status = head.split_whitespace().nth(1).unwrap_or_default();
        if status == "200" { Ok(body.to_string()) } else { Err(format!("`{path}` is answered with status {status}")) }
    }
}

/// One request in the manner of HTTP/1.0, whose answer ends with the connection and does not come in pieces.
async fn get(mut stream: impl AsyncRead + AsyncWrite + Unpin, host: &str, path: &str) -> Result<String, String> {
    let request = format!("GET {path} HTTP/1.0\r\nHost: {host}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.map_err(|error| error.to_string())?;
    let mut answer = Vec::new();
    match stream.take(PAGE_BYTES_MAX).read_to_end(&mut answer).await {
        // A member that closes without a word of TLS has said all the same what it had to say.
        Ok(_) => {}
        Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof && !answer.is_empty() => {}
        Err(error) => return Err(error.to_string()),
    }
    Ok(String::from_utf8_lossy(&answer).into_owned())
}
