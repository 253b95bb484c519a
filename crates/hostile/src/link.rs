//! One connection to the member, plain or over TLS, which never waits for long.

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, ClientConnection, DigitallySignedStruct, Error, SignatureScheme};
use std::io::{self, Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpStream};
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::time::Duration;

/// How long a member may leave what is sent untaken before the rest is left out.
const WRITE_WAIT_MS: i32 = 20;
/// Handshakes are not what times are measured by, but must end.
const HANDSHAKE_WAIT: Duration = Duration::from_secs(5);
/// Bytes read at a time, and by one call.
const PIECE_BYTES: usize = 64 << 10;
const READ_BYTES_MAX: usize = 1 << 20;

/// A connection.
pub(crate) struct Link {
    socket: TcpStream,
    tls: Option<Box<ClientConnection>>,
    /// The member has closed it.
    pub(crate) is_over: bool,
}

impl Link {
    pub(crate) fn dial(address: SocketAddr, tls: Option<&Arc<ClientConfig>>) -> io::Result<Link> {
        Link::over(TcpStream::connect(address)?, tls)
    }

    pub(crate) fn over(mut socket: TcpStream, tls: Option<&Arc<ClientConfig>>) -> io::Result<Link> {
        socket.set_nodelay(true)?;
        let mut session = None;
        if let Some(config) = tls {
            let mut shaking = ClientConnection::new(config.clone(), name()).map_err(io::Error::other)?;
            socket.set_read_timeout(Some(HANDSHAKE_WAIT))?;
            while shaking.is_handshaking() {
                shaking.complete_io(&mut socket)?;
            }
            session = Some(Box::new(shaking));
        }
        socket.set_nonblocking(true)?;
        Ok(Link { socket, tls: session, is_over: false })
    }

    /// Waits until something can be read or written.
    fn wait(&self, events: i16, wait_ms: i32) -> bool {
        let mut poll = libc::pollfd { fd: self.socket.as_raw_fd(), events, revents: 0 };
        // SAFETY: the pointer is valid for the call.
        unsafe { libc::poll(&raw mut poll, 1, wait_ms) > 0 }
    }

    /// Sends what the member takes; a member that takes nothing loses the rest.
    pub(crate) fn send(&mut self, bytes: &[u8]) {
        match self.tls.take() {
            None => self.send_plain(bytes),
            Some(mut session) => {
                for piece in bytes.chunks(PIECE_BYTES) {
                    let mut sealed = Vec::new();
                    if session.writer().write_all(piece).is_err() || session.write_tls(&mut sealed).is_err() {
                        self.is_over = true;
                    }
                    while session.wants_write() && session.write_tls(&mut sealed).is_ok() {}
                    self.send_plain(&sealed);
                }
                self.tls = Some(session);
            }
        }
    }

    fn send_plain(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() && !self.is_over {
            match self.socket.write(bytes) {
                Ok(count) => bytes = &bytes[count..],
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    if !self.wait(libc::POLLOUT, WRITE_WAIT_MS) {
                        return;
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => self.is_over = true,
            }
        }
    }

    /// What has come; waits for the first of it.
    pub(crate) fn read(&mut self, wait_ms: i32) -> Vec<u8> {
        let (mut all, mut piece) = (Vec::new(), vec![0; PIECE_BYTES]);
        if self.is_over || !self.wait(libc::POLLIN, wait_ms) {
            return all;
        }
        while all.len() < READ_BYTES_MAX && !self.is_over {
            match self.socket.read(&mut piece) {
                Ok(0) => self.is_over = true,
                Ok(count) => all.extend_from_slice(&piece[..count]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(_) => self.is_over = true,
            }
        }
        match &mut self.tls {
            None => all,
            Some(session) => {
                let (mut sealed, mut plain) = (&all[..], Vec::new());
                while !sealed.is_empty()
                    && session.read_tls(&mut sealed).is_ok()
                    && session.process_new_packets().is_ok()
                {
                    // The end of what there is comes as an error here.
                    let _ = session.reader().read_to_end(&mut plain);
                }
                plain
            }
        }
    }

    /// Says that nothing more will be sent.
    pub(crate) fn close_half(&mut self) {
        let _ = self.socket.shutdown(Shutdown::Write);
    }

    /// Ends with a reset: what has not been read is thrown away by the kernel.
    pub(crate) fn abort(self) {
        let linger = libc::linger { l_onoff: 1, l_linger: 0 };
        // SAFETY: the pointer is valid for the call, and the length is the struct's.
        unsafe {
            libc::setsockopt(
                self.socket.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_LINGER,
                (&raw const linger).cast(),
                size_of::<libc::linger>() as libc::socklen_t,
            );
        }
    }
}

/// Takes every certificate: it is not clients that are tried here.
#[derive(Debug)]
struct Trusting;

impl ServerCertVerifier for Trusting {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        rustls::crypto::ring::default_provider().signature_verification_algorithms.supported_schemes()
    }
}

fn name() -> ServerName<'static> {
    ServerName::IpAddress(IpAddr::from([127, 0, 0, 1]).into())
}

/// How scripts speak TLS: with `h2` on offer, or nothing.
pub(crate) fn client_config(protocols: &[&[u8]]) -> Result<Arc<ClientConfig>, Error> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    let mut config = builder.dangerous().with_custom_certificate_verifier(Arc::new(Trusting)).with_no_client_auth();
    config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
    Ok(Arc::new(config))
}

/// The first bytes of a handshake.
pub(crate) fn hello(config: &Arc<ClientConfig>) -> Vec<u8> {
    let mut bytes = Vec::new();
    if let Ok(mut session) = ClientConnection::new(config.clone(), name()) {
        // Writing to a vector cannot fail.
        let _ = session.write_tls(&mut bytes);
    }
    bytes
}
