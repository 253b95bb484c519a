//! A query for SRV records: one question to the name servers of `/etc/resolv.conf`, over UDP, and over TCP when the answer does
//! not fit. A whole resolver crate would be a hundred times this.

use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

const TYPE_SRV: u16 = 33;
const CLASS_IN: u16 = 1;
/// How long a name server may take; each is asked twice.
const PATIENCE: Duration = Duration::from_secs(2);
/// Bytes of a name as it is sent, RFC 1035 section 3.1.
const NAME_BYTES_MAX: usize = 255;
/// Labels followed through compression pointers in one name, so that a loop ends.
const JUMPS_MAX: usize = 32;

/// One SRV record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Where the service is, without the final dot.
    pub target: String,
    /// Its port.
    pub port: u16,
    /// Records with a lower one are to be used first.
    pub priority: u16,
    /// The share of the clients among records of the same priority; 0 for a record that is to get few.
    pub weight: u16,
}

/// Why there are no records.
#[derive(Debug, thiserror::Error)]
pub enum DnsError {
    /// The name has none.
    #[error("no SRV records for `{0}`")]
    NotFound(String),
    /// No name server answered.
    #[error("no name server answers for `{name}`: {reason}")]
    NoAnswer {
        /// What was asked for.
        name: String,
        /// What the last one said.
        reason: String,
    },
}

/// The name servers of this machine.
pub fn servers() -> Vec<SocketAddr> {
    let text = std::fs::read_to_string("/etc/resolv.conf").unwrap_or_default();
    let servers = text.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        (words.next() == Some("nameserver")).then(|| words.next())??.parse::<IpAddr>().ok()
    });
    let mut servers: Vec<SocketAddr> = servers.map(|ip| SocketAddr::new(ip, 53)).collect();
    if servers.is_empty() {
        servers.push(SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 53));
    }
    servers
}

/// The SRV records of a name, asked for under the number `id`.
///
/// # Errors
/// If the name has none, or no server answers.
pub fn srv(servers: &[SocketAddr], name: &str, id: u16) -> Result<Vec<Record>, DnsError> {
    let none = || DnsError::NotFound(name.into());
    let question = question(name, id).ok_or_else(none)?;
    let mut reason = String::from("there is none");
    for server in servers.iter().chain(servers) {
        match ask(*server, &question) {
            Ok(answer) => match parse(&answer, id) {
                Some(Answer::Records(records)) if !records.is_empty() => return Ok(records),
                Some(Answer::Records(_) | Answer::NoSuchName) => return Err(none()),
                Some(Answer::Failed(code)) => reason = format!("{server} answers with code {code}"),
                None => reason = format!("{server} answers something unreadable"),
            },
            Err(error) => reason = format!("{server}: {error}"),
        }
    }
    Err(DnsError::NoAnswer { name: name.into(), reason })
}

fn question(name: &str, id: u16) -> Option<Vec<u8>> {
    let mut message = Vec::with_capacity(512);
    message.extend_from_slice(&id.to_be_bytes());
    // Recursion desired; one question.
    message.extend_from_slice(&[1, 0, 0, 1, 0, 0, 0, 0, 0, 0]);
    let before = message.len();
    for label in name.trim_end_matches('.').split('.') {
        let len = u8::try_from(label.len()).ok().filter(|len| (1..64).contains(len))?;
        message.push(len);
        message.extend_from_slice(label.as_bytes());
    }
    message.push(0);
    if message.len().saturating_sub(before) > NAME_BYTES_MAX {
        return None;
    }
    message.extend_from_slice(&TYPE_SRV.to_be_bytes());
    message.extend_from_slice(&CLASS_IN.to_be_bytes());
    Some(message)
}

fn ask(server: SocketAddr, question: &[u8]) -> io::Result<Vec<u8>> {
    let any: IpAddr =
        if server.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { std::net::Ipv6Addr::UNSPECIFIED.into() };
    let socket = UdpSocket::bind((any, 0))?;
    socket.set_read_timeout(Some(PATIENCE))?;
    socket.connect(server)?;
    socket.send(question)?;
    let mut room = [0; 4096];
    let began = Instant::now();
    let answer = loop {
        let len = socket.recv(&mut room)?;
        let answer = room.get(..len).unwrap_or_default();
        // An answer to an older question may come late.
        if answer.first_chunk::<2>() == question.first_chunk() {
            break answer.to_vec();
        }
        if began.elapsed() >= PATIENCE {
            return Err(io::ErrorKind::TimedOut.into());
        }
    };
    let truncated = answer.get(2).is_some_and(|flags| flags & 2 != 0);
    if truncated { ask_at_length(server, question) } else { Ok(answer) }
}

fn ask_at_length(server: SocketAddr, question: &[u8]) -> io::Result<Vec<u8>> {
    let mut stream = TcpStream::connect_timeout(&server, PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let len = u16::try_from(question.len()).map_err(io::Error::other)?;
    let mut framed = len.to_be_bytes().to_vec();
    framed.extend_from_slice(question);
    stream.write_all(&framed)?;
    let mut len = [0; 2];
    stream.read_exact(&mut len)?;
    let mut answer = vec![0; usize::from(u16::from_be_bytes(len))];
    stream.read_exact(&mut answer)?;
    Ok(answer)
}

#[derive(Debug, PartialEq, Eq)]
enum Answer {
    Records(Vec<Record>),
    NoSuchName,
    Failed(u8),
}

fn parse(message: &[u8], id: u16) -> Option<Answer> {
    let word = |at: usize| message.get(at..)?.first_chunk().copied().map(u16::from_be_bytes);
    let is_answer = message.get(2)? & 0x80 != 0;
    if word(0)? != id || !is_answer {
        return None;
    }
    match message.get(3)? & 0x0f {
        0 => {}
        3 => return Some(Answer::NoSuchName),
        code => return Some(Answer::Failed(code)),
    }
    let (questions, answers) = (word(4)?, word(6)?);
    let mut at = 12;
    for _ in 0..questions {
        at = name(message, at)?.1.checked_add(4)?;
    }
    let mut records = Vec::new();
    for _ in 0..answers {
        at = name(message, at)?.1;
        let (kind, len) = (word(at)?, usize::from(word(at.checked_add(8)?)?));
        let data = at.checked_add(10)?;
        if kind == TYPE_SRV {
            records.push(Record {
                priority: word(data)?,
                weight: word(data.checked_add(2)?)?,
                port: word(data.checked_add(4)?)?,
                target: name(message, data.checked_add(6)?)?.0,
            });
        }
        at = data.checked_add(len)?;
    }
    Some(Answer::Records(records))
}

/// The name at a place, and the place after it.
fn name(message: &[u8], mut at: usize) -> Option<(String, usize)> {
    let mut text = String::new();
    let mut behind = None;
    let mut jumps = 0_usize;
    loop {
        let (&len, rest) = message.get(at..)?.split_first()?;
        let next = at.checked_add(1)?;
        match len {
            0 => return Some((text, behind.unwrap_or(next))),
            1..64 => {
                let label = rest.get(..usize::from(len))?;
                if !text.is_empty() {
                    text.push('.');
                }
                text.push_str(std::str::from_utf8(label).ok()?);
                at = next.checked_add(label.len())?;
            }
            0xc0.. => {
                behind.get_or_insert(next.checked_add(1)?);
                at = usize::from(u16::from_be_bytes([len & 0x3f, *rest.first()?]));
                jumps = jumps.saturating_add(1);
            }
            _ => return None,
        }
        if jumps > JUMPS_MAX || text.len() > 255 {
            return None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An answer with two records, the second with a compressed name.
    fn answer(id: u16, flags: [u8; 2]) -> Vec<u8> {
        let mut message = question("_etcd-server._tcp.example.com", id).unwrap_or_default();
        message[2..4].copy_from_slice(&flags);
        message[7] = 2;
        for (port, host) in [(2380u16, &b"\x02m1\xc0\x1e"[..]), (2381, b"\x02m2\x07example\x03com\x00")] {
            message.extend_from_slice(b"\xc0\x0c\x00\x21\x00\x01\x00\x00\x00\x3c\x00");
            message.push(6 + host.len() as u8);
            message.extend_from_slice(&[0, 10, 0, 20]);
            message.extend_from_slice(&port.to_be_bytes());
            message.extend_from_slice(host);
        }
        message
    }

    #[test]
    fn records_are_read() {
        let whole = answer(7, [0x81, 0x80]);
        let record = |target: &str, port| Record { target: target.into(), port, priority: 10, weight: 20 };
        let records = vec![record("m1.example.com", 2380), record("m2.example.com", 2381)];
        assert_eq!(parse(&whole, 7), Some(Answer::Records(records)));
        assert_eq!(parse(&whole, 8), None, "an answer to another question");
        assert_eq!(parse(&answer(7, [0x81, 0x83]), 7), Some(Answer::NoSuchName));
        assert_eq!(parse(&answer(7, [0x81, 0x82]), 7), Some(Answer::Failed(2)));
        for len in 0..whole.len() {
            assert_eq!(parse(&whole[..len], 7), None, "{len} bytes");
        }
        let mut looped = whole;
        looped[12..14].copy_from_slice(&[0xc0, 0x0c]);
        assert_eq!(parse(&looped, 7), None);
    }

    #[test]
    fn no_name_is_longer_than_255_bytes() {
        // Four labels with their lengths, and the end.
        let name = |last: usize| [63, 63, 63, last].map(|len| "a".repeat(len)).join(".");
        assert!(question(&name(61), 1).is_some());
        assert!(question(&name(62), 1).is_none());
    }

    #[test]
    fn asks_a_server() {
        let Ok(server) = UdpSocket::bind("127.0.0.1:0") else { panic!("no socket") };
        let Ok(address) = server.local_addr() else { panic!("no address") };
        let serving = std::thread::spawn(move || {
            let mut asked = [0; 512];
            let Ok((_, from)) = server.recv_from(&mut asked) else { return };
            let _ = server.send_to(&answer(u16::from_be_bytes([asked[0], asked[1]]), [0x81, 0x80]), from);
        });
        let records = srv(&[address], "_etcd-server._tcp.example.com", 99);
        assert_eq!(records.map(|records| records.len()).ok(), Some(2));
        let _ = serving.join();
        assert!(matches!(srv(&[], "a..b", 1), Err(DnsError::NotFound(_))));
    }
}
