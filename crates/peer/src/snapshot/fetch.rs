//! The receiver's side of fetching: piece after piece, and the rest after a break.

use super::{Intake, PATH, PIECE_BYTES, Piece};
use crate::body::Body;
use crate::client::Connection;
use crate::fault::Fault;
use crate::head::Framing;
use crate::shared::Shared;
use crate::timeouts::after;
use crate::wire::Wire;
use bytes::BytesMut;
use http::{Request, StatusCode, Uri};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How long a piece may make no progress, over all attempts.
const STALL_MAX: Duration = Duration::from_secs(60);
/// How long one connection may be silent.
const PATIENCE: Duration = Duration::from_secs(10);
const RETRY: Duration = Duration::from_millis(500);
/// Bytes that are read of a refusal.
const REFUSAL_BYTES_MAX: usize = 4 * 1024;

/// The source of a snapshot.
pub(super) struct Fetch {
    pub(super) shared: Arc<Shared>,
    pub(super) from: u64,
    pub(super) urls: Vec<String>,
    pub(super) export: u64,
    /// Set when a newer offer replaces this transfer.
    pub(super) cancelled: Arc<AtomicBool>,
}

/// Why a piece did not arrive completely.
enum Break {
    /// The connection failed: another one may work.
    Connection(String),
    /// Trying again would not help.
    Final(String),
}

impl From<Fault> for Break {
    fn from(fault: Fault) -> Break {
        Break::Connection(fault.to_string())
    }
}

impl Fetch {
    /// Fetches all pieces.
    pub(super) fn pieces(&self, pieces: &[Piece], intake: &mut dyn Intake) -> Result<(), String> {
        let mut connection = None;
        let mut url = 0_usize;
        // The lengths come from a peer and may overflow.
        let all = pieces.iter().try_fold(0_u64, |all, piece| {
            piece.from.checked_add(piece.length)?;
            all.checked_add(piece.length)
        });
        let mut to_come = all.ok_or("the snapshot is larger than any can be")?;
        for piece in pieces {
            let mut left = *piece;
            let behind = to_come.saturating_sub(piece.length);
            let mut deadline = after(STALL_MAX);
            while left.length > 0 {
                let before = left.length;
                match self.piece(&mut connection, url, &mut left, behind, intake) {
                    Ok(()) => {}
                    Err(Break::Final(reason)) => return Err(reason),
                    Err(Break::Connection(reason)) => {
                        connection = None;
                        if left.length < before {
                            deadline = after(STALL_MAX);
                        }
                        if Instant::now() > deadline {
                            return Err(format!("no progress for {STALL_MAX:?}: {reason}"));
                        }
                        url = url.wrapping_add(1);
                        self.shared.pause(RETRY);
                    }
                }
            }
            to_come = behind;
        }
        Ok(())
    }

    /// Fetches one piece, or as much of it as arrives; `left` is the number of its missing bytes, `behind` the number
    /// of bytes in later pieces.
    fn piece(
        &self,
        connection: &mut Option<Connection>,
        url: usize,
        left: &mut Piece,
        behind: u64,
        intake: &mut dyn Intake,
    ) -> Result<(), Break> {
        self.go_on()?;
        let mut open = match connection.take() {
            Some(open) => open,
            None => {
                let Some(url) = self.urls.get(url.checked_rem(self.urls.len()).unwrap_or_default()) else {
                    return Err(Break::Final("the sender's peer URLs are not known".into()));
                };
                Connection::open(&self.shared.connector, url, self.shared.timeouts.dial)
                    .map_err(|error| Break::Connection(error.to_string()))?
            }
        };
        let Piece { segment, from, length } = *left;
        let needed = length.saturating_add(behind);
        let path = format!("{PATH}{:x}/segment/{segment}?from={from}&length={length}&left={needed}", self.export);
        let mut request = Request::new([]);
        *request.uri_mut() = path.parse::<Uri>().map_err(|error| Break::Final(error.to_string()))?;
        *request.headers_mut() = self.shared.headers.clone();
        let head = open.send(&request, PATIENCE)?;
        let wire = open.wire();
        if head.response.status() != StatusCode::OK {
            let body = wire.body(head.framing, REFUSAL_BYTES_MAX, after(PATIENCE)).unwrap_or_default();
            let text = String::from_utf8_lossy(&body);
            return Err(Break::Final(format!("the sender answered {}: {}", head.response.status(), text.trim_end())));
        }
        if head.framing != Framing::Length(left.length) {
            return Err(Break::Final("the sender answered with another length than was asked for".into()));
        }
        self.body(wire, left, intake)?;
        if head.keep_alive {
            *connection = Some(open);
        }
        Ok(())
    }

    fn body(&self, wire: &mut Wire, left: &mut Piece, intake: &mut dyn Intake) -> Result<(), Break> {
        let counters = self.shared.counters(self.from);
        let mut body = Body::new(Framing::Length(left.length));
        let mut part = BytesMut::with_capacity(PIECE_BYTES);
        while left.length > 0 {
            let outcome = wire.receive(&mut body, &mut part, Some(after(PATIENCE)));
            let complete = part.len() as u64 == left.length;
            // Bytes that came before a break are kept.
            if part.len() >= PIECE_BYTES || complete || outcome.is_err() {
                intake.write(left.segment, left.from, &part).map_err(Break::Final)?;
                counters.received_bytes.fetch_add(part.len() as u64, Ordering::Relaxed);
                left.from = left.from.saturating_add(part.len() as u64);
                left.length = left.length.saturating_sub(part.len() as u64);
                part.clear();
                self.go_on()?;
            }
            outcome?;
        }
        Ok(())
    }

    fn go_on(&self) -> Result<(), Break> {
        if self.cancelled.load(Ordering::SeqCst) {
            return Err(Break::Final("a newer snapshot is offered".into()));
        }
        if self.shared.is_stopping() { Err(Break::Final("the member stops".into())) } else { Ok(()) }
    }
}
