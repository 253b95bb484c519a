//! systemd's journal, by its own protocol: one datagram for each line.

use super::Level;
use std::io;
use std::os::unix::net::UnixDatagram;

const SOCKET: &str = "/run/systemd/journal/socket";
const IDENTIFIER: &str = "etcd";
/// A longer line is cut off, since a datagram cannot have more than the socket's buffer.
const LINE_BYTES_MAX: usize = 48 << 10;

pub(super) struct Journal {
    socket: UnixDatagram,
}

impl Journal {
    pub(super) fn open() -> io::Result<Journal> {
        let socket = UnixDatagram::unbound()?;
        socket.connect(SOCKET)?;
        Ok(Journal { socket })
    }

    pub(super) fn write(&self, level: Level, line: &str) -> io::Result<()> {
        self.socket.send(&entry(level, line)).map(drop)
    }
}

/// The fields of an entry. A message is written with its length, so that nothing in it can look like a field.
fn entry(level: Level, line: &str) -> Vec<u8> {
    let line = line.trim_end_matches('\n').as_bytes();
    let line = &line[..line.len().min(LINE_BYTES_MAX)];
    let mut fields = format!("PRIORITY={}\nSYSLOG_IDENTIFIER={IDENTIFIER}\nMESSAGE\n", priority(level)).into_bytes();
    fields.extend_from_slice(&(line.len() as u64).to_le_bytes());
    fields.extend_from_slice(line);
    fields.push(b'\n');
    fields
}

/// Priorities of syslog.
fn priority(level: Level) -> u8 {
    match level {
        Level::Debug => 7,
        Level::Info => 6,
        Level::Warn => 4,
        Level::Error => 3,
        Level::Panic | Level::Fatal => 2,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_one_field() {
        let mut wanted = b"PRIORITY=4\nSYSLOG_IDENTIFIER=etcd\nMESSAGE\n".to_vec();
        wanted.extend_from_slice(&[3, 0, 0, 0, 0, 0, 0, 0]);
        wanted.extend_from_slice(b"a=b\n");
        assert_eq!(entry(Level::Warn, "a=b\n"), wanted);
        assert!(entry(Level::Info, &"x".repeat(1 << 20)).len() < 64 << 10);
    }
}
