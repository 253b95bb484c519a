//! Calls to other members: one request, one answer, with a time-out over all of it.

use crate::address::{Address, BadUrl};
use crate::connector::Connector;
use crate::fault::Fault;
use crate::head;
use crate::stream::is_closed;
use crate::timeouts::after;
use crate::wire::Wire;
use bytes::Bytes;
use http::{Request, Response};
use std::io;
use std::time::{Duration, Instant};

/// Limit of the bytes of an answer.
const ANSWER_BYTES_MAX: usize = 64 << 20;
/// How long the receiver of a long body may take nothing of it, because its disk takes nothing.
const DISK_PATIENCE: Duration = Duration::from_secs(60);

/// Why a call has no answer.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The address cannot be called.
    #[error(transparent)]
    Url(#[from] BadUrl),
    /// No connection could be made.
    #[error("cannot connect to `{url}`: {error}")]
    Connect {
        /// The URL that was tried.
        url: String,
        /// The error of the operating system.
        error: io::Error,
    },
    /// The exchange broke off.
    #[error("no answer from `{url}`: {fault}")]
    Exchange {
        /// The URL of the member.
        url: String,
        /// The fault.
        fault: Fault,
    },
}

/// Sends a request to the member at `url` and waits for the answer for at most `timeout`. Path and query are those of
/// the request.
pub fn call(
    connector: &Connector,
    url: &str,
    mut request: Request<Vec<u8>>,
    timeout: Duration,
) -> Result<Response<Vec<u8>>, Error> {
    let deadline = after(timeout);
    for (name, value) in &*connector.own {
        request.headers_mut().insert(name, value.clone());
    }
    let mut connection = Connection::open(connector, url, timeout)?;
    connection.exchange(&request, deadline.saturating_duration_since(Instant::now()))
}

/// How long an unused connection is kept: shorter than the other side waits for a request.
const KEPT_MAX: Duration = Duration::from_secs(5);

/// The connection of the last call, for the next one to the same member.
#[derive(Default)]
pub struct Kept(Option<(Connection, Instant)>);

impl Kept {
    /// Like [`call`], on the connection of the last call if it still works. If it does not, the call is made a second
    /// time, so the request must be one that may be executed twice.
    pub fn call(
        &mut self,
        connector: &Connector,
        url: &str,
        mut request: Request<Vec<u8>>,
        timeout: Duration,
    ) -> Result<Response<Vec<u8>>, Error> {
        let deadline = after(timeout);
        let left = || deadline.saturating_duration_since(Instant::now());
        for (name, value) in &*connector.own {
            request.headers_mut().insert(name, value.clone());
        }
        if let Some((mut connection, since)) = self.0.take()
            && connection.url == url
            && since.elapsed() < KEPT_MAX
        {
            match connection.exchange(&request, left()) {
                Ok(response) => return Ok(self.keep(connection, response)),
                Err(error) if left().is_zero() => return Err(error),
                // The other side has closed the connection, as it may between requests.
                Err(_) => {}
            }
        }
        let mut connection = Connection::open(connector, url, left())?;
        let response = connection.exchange(&request, left())?;
        Ok(self.keep(connection, response))
    }

    /// Like [`Kept::call`], but the request is sent once: if the connection of the last call turns out not to work any more, it may or may not
    /// have arrived.
    pub fn call_once(
        &mut self,
        connector: &Connector,
        url: &str,
        mut request: Request<Vec<u8>>,
        timeout: Duration,
    ) -> Result<Response<Vec<u8>>, Error> {
        let deadline = after(timeout);
        for (name, value) in &*connector.own {
            request.headers_mut().insert(name, value.clone());
        }
        let kept = self.0.take().filter(|(connection, since)| connection.url == url && since.elapsed() < KEPT_MAX);
        let mut connection = match kept {
            Some((connection, _)) if !is_closed(connection.wire.stream().descriptor()) => connection,
            _ => Connection::open(connector, url, timeout)?,
        };
        let response = connection.exchange(&request, deadline.saturating_duration_since(Instant::now()))?;
        Ok(self.keep(connection, response))
    }

    fn keep(&mut self, connection: Connection, response: Response<Vec<u8>>) -> Response<Vec<u8>> {
        self.0 = connection.is_reusable().then(|| (connection, Instant::now()));
        response
    }

    /// How long the connection is still kept; `None` if there is none.
    pub fn time_left(&self) -> Option<Duration> {
        self.0.as_ref().map(|(_, since)| KEPT_MAX.saturating_sub(since.elapsed()))
    }

    /// Closes the connection.
    pub fn close(&mut self) {
        self.0 = None;
    }
}

/// A connection on which one request follows the other.
pub(crate) struct Connection {
    url: String,
    host: String,
    wire: Wire,
    keep_alive: bool,
}

impl Connection {
    pub(crate) fn open(connector: &Connector, url: &str, timeout: Duration) -> Result<Connection, Error> {
        let address = Address::parse(url)?;
        let failed = |error| Error::Connect { url: url.to_string(), error };
        let stream = connector.dial(&address, timeout).map_err(failed)?;
        let wire = Wire::new(stream).map_err(failed)?;
        Ok(Connection { url: url.to_string(), host: address.host(), wire, keep_alive: true })
    }

    /// Whether another request can follow.
    pub(crate) fn is_reusable(&self) -> bool {
        self.keep_alive
    }

    /// Sends the request, and waits for the head of the answer and then for its body, at most `patience` each.
    pub(crate) fn exchange(
        &mut self,
        request: &Request<impl AsRef<[u8]>>,
        patience: Duration,
    ) -> Result<Response<Vec<u8>>, Error> {
        self.keep_alive = false;
        self.try_exchange(request, patience).map_err(|fault| Error::Exchange { url: self.url.clone(), fault })
    }

    fn try_exchange(
        &mut self,
        request: &Request<impl AsRef<[u8]>>,
        patience: Duration,
    ) -> Result<Response<Vec<u8>>, Fault> {
        let answer = self.send(request, patience)?;
        let body = self.wire.body(answer.framing, ANSWER_BYTES_MAX, after(patience))?;
        self.keep_alive = answer.keep_alive;
        Ok(answer.response.map(|()| body.into()))
    }

    /// Sends the request and returns the head of the answer.
    pub(crate) fn send(
        &mut self,
        request: &Request<impl AsRef<[u8]>>,
        patience: Duration,
    ) -> Result<head::ResponseHead, Fault> {
        let mut bytes = head::write_request(request, &self.host);
        bytes.extend_from_slice(request.body().as_ref());
        self.wire.write_all(&bytes)?;
        self.wire.response(patience)
    }

    /// Sends a request whose body of `length` bytes comes in pieces, and waits for the answer to it, at most `patience` after the last
    /// piece or interim answer. A piece may wait for [`DISK_PATIENCE`]; one that is an error breaks the request off.
    pub(crate) fn exchange_pieces(
        mut self,
        request: &Request<()>,
        length: u64,
        mut next: impl FnMut() -> Result<Option<Bytes>, Fault>,
        patience: Duration,
    ) -> Result<Response<Vec<u8>>, Error> {
        let mut exchange = || {
            self.wire.set_write_timeout(DISK_PATIENCE)?;
            self.wire.write_all(&head::write_request_of(request, &self.host, length))?;
            while let Some(piece) = next()? {
                self.wire.write_all(&piece)?;
            }
            let answer = self.wire.response(patience)?;
            let body = self.wire.body(answer.framing, ANSWER_BYTES_MAX, after(patience))?;
            Ok(answer.response.map(|()| body.into()))
        };
        exchange().map_err(|fault| Error::Exchange { url: self.url.clone(), fault })
    }

    /// The connection below, for a body that is read piece by piece and followed by another request.
    pub(crate) fn wire(&mut self) -> &mut Wire {
        &mut self.wire
    }

    /// The connection below, for a body that has no end.
    pub(crate) fn into_wire(self) -> Wire {
        self.wire
    }
}
