//! One direction of a connection: what one socket sends, the other one gets, and the end of it.
//!
//! Bytes are copied through a buffer that all connections of a thread share. A receiver that does not take all of a read has the
//! rest kept for it (`Room` bounds how much that may be for all), and nothing more is read for it before it has taken that. While `Room`
//! has nothing left, bytes stay in the sender's socket until the receiver has taken them. A sender that fills the buffer has its bytes
//! moved by the kernel, through a pipe.

use socket2::SockRef;
use std::cell::{Cell, RefCell};
use std::io;
use std::mem::MaybeUninit;
use std::net::Shutdown;
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;
use tokio::io::Interest;
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::pipe::{PIPE_BYTES, Pipe};

/// What one read takes.
pub(crate) const BUFFER_BYTES: usize = 64 * 1024;
/// A pipe that moves less than this at a time, over and over, is given up.
const WORTHWHILE_BYTES: usize = BUFFER_BYTES / 4;
/// How often in a row that may be.
const SMALL_MAX: u32 = 16;
/// Moves before others have their turn.
const MOVES_MAX: u32 = 16;

/// How long the last words of a client that is gone may wait for the member.
const LAST_WORDS: Duration = Duration::from_secs(5);
/// A pipe through which nothing comes for so long is given up.
const PIPE_IDLE: Duration = Duration::from_millis(100);

/// What the connections of a thread share.
#[derive(Debug)]
pub(crate) struct Room {
    buffer: RefCell<Box<[u8]>>,
    free_bytes: Cell<usize>,
    free_pipes: Cell<usize>,
}

/// A part of a [`Room`], given back when it is dropped.
struct Claim<'a> {
    of: &'a Cell<usize>,
    amount: usize,
}

impl<'a> Claim<'a> {
    fn new(of: &'a Cell<usize>, amount: usize) -> Option<Claim<'a>> {
        of.set(of.get().checked_sub(amount)?);
        Some(Claim { of, amount })
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        self.of.set(self.of.get().saturating_add(self.amount));
    }
}

impl Room {
    /// Room for so many pipes, and so many bytes that receivers do not take.
    pub(crate) fn new(pipes: usize, held_bytes: usize) -> Rc<Room> {
        let buffer = RefCell::new(vec![0; BUFFER_BYTES].into_boxed_slice());
        Rc::new(Room { buffer, free_bytes: Cell::new(held_bytes), free_pipes: Cell::new(pipes) })
    }
}

/// How a move through the buffer ended.
enum Moved {
    /// The sender has ended.
    End,
    /// All that was read was taken.
    All,
    /// The same of a read that filled the buffer.
    AllOfMany,
    /// The receiver has not taken this.
    Rest(Vec<u8>),
    /// The receiver takes nothing, and there is no room to keep anything for it.
    Full,
}

/// Moves what is said in both directions, until both have ended or one side has failed.
pub(crate) async fn join(client: &TcpStream, member: &TcpStream, room: &Room) -> io::Result<()> {
    // A side that has not been told the end is reset when its socket is closed, also by the end of this process: otherwise it would take
    // what it got for all that there is.
    for socket in [client, member] {
        SockRef::from(socket).set_linger(Some(Duration::ZERO))?;
    }
    let (mut up, mut down) = (pin!(forward(client, member, room)), pin!(forward(member, client, room)));
    let both = async {
        tokio::select! {
            ended = &mut up => {
                ended?;
                down.await
            }
            ended = &mut down => {
                ended?;
                // Nobody reads from the member any more, and so finds that it is gone.
                tokio::select! {
                    ended = up => ended,
                    ended = failed(member) => ended,
                }
            }
        }
    };
    // A client that is gone is not found while its last words wait for a member that takes nothing, nor after them.
    let gone = async {
        let failed = failed(client).await;
        tokio::time::sleep(LAST_WORDS).await;
        failed
    };
    tokio::select! {
        ended = both => ended,
        failed = gone => failed,
    }
}

/// Returns once a socket has failed: it was reset, or the other side answers no more questions.
async fn failed(socket: &TcpStream) -> io::Result<()> {
    socket.ready(Interest::ERROR).await?;
    // The error is left to whoever reads: taken here, a read would find the end instead.
    Err(io::ErrorKind::ConnectionReset.into())
}

/// Moves everything from one socket to the other, and then the end of it.
async fn forward(from: &TcpStream, to: &TcpStream, room: &Room) -> io::Result<()> {
    let mut moves = 0_u32;
    loop {
        moves = moves.saturating_add(1);
        if moves.is_multiple_of(MOVES_MAX) {
            tokio::task::yield_now().await;
        }
        from.readable().await?;
        let moved =
            if room.free_bytes.get() >= BUFFER_BYTES { copy(from, to, room) } else { copy_taken(from, to, room) };
        match moved {
            Ok(Moved::End) => break,
            Ok(Moved::AllOfMany) => {
                through_pipe(from, to, room).await?;
            }
            Ok(Moved::All) => {}
            Ok(Moved::Rest(rest)) => {
                // There was room for a whole buffer, and nobody else had a turn.
                let _claim = Claim::new(&room.free_bytes, rest.len());
                write_all(to, &rest).await?;
            }
            Ok(Moved::Full) => to.writable().await?,
            Err(error) if is_passing(&error) => {}
            Err(error) => return Err(error),
        }
    }
    let to = SockRef::from(to);
    // Its close waits for what is on its way again. One that is gone needs no end any more.
    let _ = to.set_linger(None);
    let _ = to.shutdown(Shutdown::Write);
    Ok(())
}

/// Whether the call is to be made again.
fn is_passing(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}

/// How much of `bytes` the socket takes.
fn offer(to: &TcpStream, bytes: &[u8]) -> io::Result<usize> {
    match to.try_write(bytes) {
        Err(error) if is_passing(&error) => Ok(0),
        taken => taken,
    }
}

/// Moves what one read takes.
fn copy(from: &TcpStream, to: &TcpStream, room: &Room) -> io::Result<Moved> {
    let mut buffer = room.buffer.borrow_mut();
    let len = match read(from, &mut buffer)? {
        0 => return Ok(Moved::End),
        len => len,
    };
    let bytes = buffer.get(..len).unwrap_or_default();
    match bytes.get(offer(to, bytes)?..) {
        None | Some([]) if len == BUFFER_BYTES => Ok(Moved::AllOfMany),
        None | Some([]) => Ok(Moved::All),
        Some(rest) => Ok(Moved::Rest(rest.to_vec())),
    }
}

/// Reads what the socket has. One that had less than the buffer takes is empty now: it is waited for without a second read, which would
/// only find that.
fn read(from: &TcpStream, buffer: &mut [u8]) -> io::Result<usize> {
    let mut len = None;
    let tried = from.try_io(Interest::READABLE, || {
        let read = SockRef::from(from).recv(as_uninit(buffer))?;
        len = Some(read);
        // What comes after this read is told of anew; an end that came with it is not forgotten.
        if (1..buffer.len()).contains(&read) { Err(io::ErrorKind::WouldBlock.into()) } else { Ok(()) }
    });
    match len {
        Some(len) => Ok(len),
        None => Err(tried.err().unwrap_or_else(|| io::ErrorKind::WouldBlock.into())),
    }
}

/// Moves only what the receiver takes: looks at what there is before it is read.
fn copy_taken(from: &TcpStream, to: &TcpStream, room: &Room) -> io::Result<Moved> {
    let mut buffer = room.buffer.borrow_mut();
    let len = from.try_io(Interest::READABLE, || SockRef::from(from).peek(as_uninit(&mut buffer)))?;
    if len == 0 {
        return Ok(Moved::End);
    }
    let taken = offer(to, buffer.get(..len).unwrap_or_default())?;
    let mut left = taken;
    while left > 0 {
        // They are there: they were seen.
        let seen = buffer.get_mut(..left).unwrap_or_default();
        match SockRef::from(from).recv(as_uninit(seen))? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            read => left = left.saturating_sub(read),
        }
    }
    Ok(if taken == 0 { Moved::Full } else { Moved::All })
}

/// The same bytes, for calls that only write them.
fn as_uninit(bytes: &mut [u8]) -> &mut [MaybeUninit<u8>] {
    // SAFETY: both have one layout, and the calls that get it write no byte that is not initialized.
    unsafe { &mut *(std::ptr::from_mut(bytes) as *mut [MaybeUninit<u8>]) }
}

async fn write_all(to: &TcpStream, mut rest: &[u8]) -> io::Result<()> {
    while !rest.is_empty() {
        to.writable().await?;
        let taken = offer(to, rest)?;
        rest = rest.get(taken..).unwrap_or_default();
    }
    Ok(())
}

/// Moves bytes through a pipe as long as they come in plenty. Where the pipe gets nothing, a read says whether that is their end.
async fn through_pipe(from: &TcpStream, to: &TcpStream, room: &Room) -> io::Result<()> {
    let claims = (Claim::new(&room.free_pipes, 1), Claim::new(&room.free_bytes, PIPE_BYTES));
    let (Some(_), Some(_)) = &claims else { return Ok(()) };
    // Without one, the buffer does.
    let Ok(mut pipe) = Pipe::new() else { return Ok(()) };
    let mut small = 0_u32;
    while small < SMALL_MAX {
        // It may be silent for ever, and others need the pipe.
        let Ok(readable) = timeout(PIPE_IDLE, from.readable()).await else { return Ok(()) };
        readable?;
        match from.try_io(Interest::READABLE, || pipe.fill(from)) {
            Ok(0) => return Ok(()),
            Ok(moved) if moved < WORTHWHILE_BYTES => small = small.saturating_add(1),
            Ok(_) => small = 0,
            Err(error) if is_passing(&error) => continue,
            // This kind of socket has no splice.
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => return Ok(()),
            Err(error) => return Err(error),
        }
        while pipe.held() > 0 {
            to.writable().await?;
            match to.try_io(Interest::WRITABLE, || pipe.drain(to)) {
                Err(error) if !is_passing(&error) => return Err(error),
                _ => {}
            }
        }
        tokio::task::yield_now().await;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
