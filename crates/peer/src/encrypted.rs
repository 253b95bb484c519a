//! A connection between members over TLS.

use crate::stream::{Breaker, Duplex};
use contain::contain;
use rustls::Connection;
use socket2::Socket;
use std::io::{self, IoSlice, Read, Write};
use std::net::Shutdown;
use std::os::fd::{AsRawFd, RawFd};
use std::time::{Duration, Instant};
use trust::{describe, describe_io};

/// Limit of encrypted bytes that wait for the socket; a write takes no more.
const BUFFER_BYTES_MAX: usize = 256 << 10;

/// A socket with encryption over it.
pub(crate) struct Encrypted {
    socket: Socket,
    session: Connection,
}

impl Encrypted {
    /// Runs the TLS handshake, until `deadline` at the latest. The error has etcd's text.
    pub(crate) fn shake(socket: Socket, session: impl Into<Connection>, deadline: Instant) -> io::Result<Encrypted> {
        let mut session = session.into();
        session.set_buffer_limit(Some(BUFFER_BYTES_MAX));
        let mut stream = Encrypted { socket, session };
        while stream.session.is_handshaking() || stream.session.wants_write() {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(late());
            }
            stream.socket.set_read_timeout(Some(left))?;
            stream.socket.set_write_timeout(Some(left))?;
            let step = match stream.session.wants_write() {
                true => stream.push(),
                false => stream.pull().and_then(|count| match count {
                    0 => Err(io::Error::new(io::ErrorKind::UnexpectedEof, "EOF")),
                    _ => Ok(()),
                }),
            };
            match step {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Err(late()),
                other => other?,
            }
        }
        stream.socket.set_read_timeout(None)?;
        stream.socket.set_write_timeout(None)?;
        Ok(stream)
    }

    pub(crate) fn session(&self) -> &Connection {
        &self.session
    }

    /// Writes the encrypted bytes that wait.
    fn push(&mut self) -> io::Result<()> {
        while self.session.wants_write() {
            if self.session.write_tls(&mut Pipe(&self.socket))? == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
        }
        Ok(())
    }

    /// Reads encrypted bytes and decrypts them. Returns how many were read.
    fn pull(&mut self) -> io::Result<usize> {
        let count = self.session.read_tls(&mut Pipe(&self.socket))?;
        let processed = contain(|| self.session.process_new_packets().map(drop)).map_err(io::Error::other)?;
        if let Err(error) = processed {
            // Sends the alert with the reason, as far as the socket takes it.
            let _ = self.push();
            return Err(io::Error::new(io::ErrorKind::InvalidData, describe(&error)));
        }
        Ok(count)
    }
}

fn late() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, "the TLS handshake took too long")
}

/// The socket as a session reads and writes it.
struct Pipe<'a>(&'a Socket);

impl Read for Pipe<'_> {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        self.0.read(room)
    }
}

impl Write for Pipe<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes)
    }

    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        self.0.write_vectored(slices)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Read for Encrypted {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.session.reader().read(room) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                // Closed without TLS's closing alert: the protocol above knows itself whether data is missing.
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(0),
                Err(error) => return Err(io::Error::new(error.kind(), describe_io(&error))),
                Ok(count) => return Ok(count),
            }
            // Sends answers of the session itself, such as to a change of keys.
            match self.push() {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                other => other?,
            }
            self.pull()?;
        }
    }
}

impl Write for Encrypted {
    /// Encrypts as many bytes as there is room for, and writes as many as the socket takes. The rest is written first
    /// next time.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.push()?;
        let count = self.session.writer().write(bytes)?;
        match self.push() {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(count),
            other => other.map(|()| count),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.push()
    }
}

impl Duplex for Encrypted {
    fn descriptor(&self) -> RawFd {
        self.socket.as_raw_fd()
    }

    fn set_read_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        self.socket.set_read_timeout(timeout)
    }

    fn set_write_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        self.socket.set_write_timeout(timeout)
    }

    fn set_nonblocking(&self, nonblocking: bool) -> io::Result<()> {
        self.socket.set_nonblocking(nonblocking)
    }

    fn finish(&mut self) -> io::Result<()> {
        self.session.send_close_notify();
        self.push()?;
        self.socket.shutdown(Shutdown::Write)
    }

    fn breaker(&self) -> io::Result<Breaker> {
        Breaker::of(&self.socket)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustls::pki_types::{PrivateKeyDer, ServerName};
    use rustls::{ClientConfig, ClientConnection, RootCertStore, ServerConfig, ServerConnection};
    use std::os::fd::OwnedFd;
    use std::os::unix::net::UnixStream;
    use std::sync::Arc;

    const PATIENCE: Duration = Duration::from_secs(10);

    /// Two ends after the handshake: the server's, then the client's.
    fn ends() -> (Encrypted, Encrypted) {
        let made = rcgen::generate_simple_self_signed(["localhost".to_string()]).expect("a certificate");
        let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).expect("a key");
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let server = ServerConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_no_client_auth()
            .with_single_cert(vec![made.cert.der().clone()], key)
            .expect("a pair");
        let mut roots = RootCertStore::empty();
        roots.add(made.cert.der().clone()).expect("an authority");
        let client = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_root_certificates(roots)
            .with_no_client_auth();
        let (here, there) = UnixStream::pair().expect("sockets");
        let deadline = Instant::now() + PATIENCE;
        let name = ServerName::try_from("localhost").expect("a name");
        let dialled = std::thread::spawn(move || {
            let session = ClientConnection::new(Arc::new(client), name).expect("a session");
            Encrypted::shake(Socket::from(OwnedFd::from(there)), session, deadline).expect("shaken")
        });
        let session = ServerConnection::new(Arc::new(server)).expect("a session");
        let taken = Encrypted::shake(Socket::from(OwnedFd::from(here)), session, deadline).expect("shaken");
        (taken, dialled.join().expect("no panic"))
    }

    /// A peer that takes nothing does not delay the writer, and the bytes that wait for it are limited.
    #[test]
    fn what_waits_is_bounded_and_comes_whole() {
        let (mut writer, mut reader) = ends();
        writer.set_nonblocking(true).expect("a socket");
        let bytes: Vec<u8> = (0..1 << 20).map(|index| (index % 251) as u8).collect();
        let mut accepted = 0;
        loop {
            match writer.write(&bytes[accepted % bytes.len()..]) {
                Ok(count) => accepted += count,
                Err(error) => break assert_eq!(error.kind(), io::ErrorKind::WouldBlock),
            }
            assert!(accepted < 16 << 20, "it takes ever more");
        }
        reader.set_read_timeout(Some(PATIENCE)).expect("a socket");
        let reading = std::thread::spawn(move || {
            let mut seen = vec![0; accepted];
            reader.read_exact(&mut seen).expect("all of it");
            seen
        });
        let deadline = Instant::now() + PATIENCE;
        while let Err(error) = writer.flush() {
            assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
            assert!(Instant::now() < deadline, "it is never written");
            std::thread::sleep(Duration::from_millis(1));
        }
        let seen = reading.join().expect("no panic");
        assert!(seen.iter().enumerate().all(|(index, byte)| *byte == (index % bytes.len() % 251) as u8), "in order");
    }

    #[test]
    fn whoever_does_not_shake_hands_is_left() {
        let (here, mut there) = UnixStream::pair().expect("sockets");
        there.write_all(b"GET / HTTP/1.1\r\n\r\n").expect("a socket");
        let made = rcgen::generate_simple_self_signed(["localhost".to_string()]).expect("a certificate");
        let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).expect("a key");
        let config = ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_no_client_auth()
            .with_single_cert(vec![made.cert.der().clone()], key)
            .expect("a pair");
        let config = Arc::new(config);
        let take = |socket: UnixStream| {
            let session = ServerConnection::new(config.clone()).expect("a session");
            let deadline = Instant::now() + Duration::from_millis(200);
            Encrypted::shake(Socket::from(OwnedFd::from(socket)), session, deadline).err().expect("refused")
        };
        assert_eq!(take(here).to_string(), "tls: first record does not look like a TLS handshake");
        let (here, _silent) = UnixStream::pair().expect("sockets");
        assert_eq!(take(here).kind(), io::ErrorKind::TimedOut);
    }
}
