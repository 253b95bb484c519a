//! Reporting the progress of a process to the service manager: `sd_notify`.

use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use telemetry::logging::{self, Value};

/// The variable that names the manager's socket. A name that begins with `@` is one without a file.
const VARIABLE: &str = "NOTIFY_SOCKET";

/// Tells the service manager, if there is one, that the process serves.
pub fn ready() {
    tell("READY=1");
}

/// Tells it that the process is about to end.
pub fn stopping() {
    tell("STOPPING=1");
}

fn tell(state: &str) {
    let Some(socket) = std::env::var_os(VARIABLE).filter(|name| !name.is_empty()) else { return };
    logging::info("notifying init daemon", &[("state", state.into())]);
    match send(&socket, state) {
        Ok(()) => logging::info("successfully notified init daemon", &[]),
        Err(error) => {
            let fields = [("socket", Value::Shown(&socket.display())), ("error", Value::Shown(&error))];
            logging::error("failed to notify systemd for readiness", &fields);
        }
    }
}

fn send(socket: &OsStr, state: &str) -> io::Result<()> {
    let address = match socket.as_bytes() {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
        path => SocketAddr::from_pathname(OsStr::from_bytes(path))?,
    };
    UnixDatagram::unbound()?.send_to_addr(state.as_bytes(), &address).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sockets_with_and_without_a_file() {
        let path = std::env::temp_dir().join(format!("cairn-notify-{}", std::process::id()));
        let name = format!("cairn-notify-{}", std::process::id());
        let without = SocketAddr::from_abstract_name(&name).expect("a name");
        let listeners = [UnixDatagram::bind(&path).expect("bound"), UnixDatagram::bind_addr(&without).expect("bound")];
        for (listener, socket) in listeners.iter().zip([path.as_os_str(), OsStr::new(&format!("@{name}"))]) {
            send(socket, "READY=1").expect("sent");
            let mut state = [0; 16];
            let bytes = listener.recv(&mut state).expect("received");
            assert_eq!(&state[..bytes], b"READY=1");
        }
        drop(std::fs::remove_file(&path));
        assert!(send(path.as_os_str(), "READY=1").is_err(), "nobody listens");
    }
}
