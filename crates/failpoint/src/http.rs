//! The requests that control points, answered as gofail answers them.
//!
//! | request | answer |
//! |---|---|
//! | `GET /` | all points, or those that `EXPECT_FAILPOINTS_LISTED` names, `name=terms` a line |
//! | `GET /name`, `GET /name/count` | its terms, how often they acted; 404 |
//! | `PUT /name` with terms | 204; 400 if there is no such point or the terms cannot be read |
//! | `PUT /failpoints` with `a=terms;b=terms` | the same |
//! | `DELETE /name` | 204; 400 if it was not set |

use crate::control::{self, Refusal};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Names the points that are listed, the others not; any can be set. etcd's suites pass variables that begin with EXPECT_ on to members, and few
/// others.
const LISTED: &str = "EXPECT_FAILPOINTS_LISTED";
/// Longest line of a request's head, and most lines of it.
const LINE_BYTES_MAX: u64 = 8 << 10;
const LINES_MAX: usize = 100;
const BODY_BYTES_MAX: usize = 64 << 10;
/// A client that is silent for longer loses its connection, so that others get their turn.
const PATIENCE: Duration = Duration::from_secs(10);

static ANSWERING: Mutex<()> = Mutex::new(());

/// Waits until no request is being answered, and keeps others from being.
pub(crate) fn answering() -> MutexGuard<'static, ()> {
    ANSWERING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Listens on `address` and answers on a thread of its own, one request after the other.
#[cfg(feature = "on")]
pub(crate) fn serve(address: &str) -> io::Result<()> {
    let listener = std::net::TcpListener::bind(address)?;
    std::thread::Builder::new().name("failpoints".into()).spawn(move || {
        for stream in listener.incoming().flatten() {
            // A client that goes away learns nothing.
            let _ = converse(&stream);
        }
    })?;
    Ok(())
}

/// One request, one answer.
fn converse(mut stream: &TcpStream) -> io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let request = read_request(&mut BufReader::new(stream))?;
    let _answering = answering();
    let (status, text) = match request {
        Some(request) => answer(&request),
        None => ("400 Bad Request", "malformed request\n".into()),
    };
    let head = format!("HTTP/1.1 {status}\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\n");
    let length = if status.starts_with("204") { String::new() } else { format!("Content-Length: {}\r\n", text.len()) };
    stream.write_all(format!("{head}{length}\r\n{text}").as_bytes())?;
    stream.flush()
}

struct Request {
    method: String,
    /// Without the slash before it.
    key: String,
    body: String,
}

/// `None` if it is not a request that is understood.
fn read_request(reader: &mut impl BufRead) -> io::Result<Option<Request>> {
    let mut line = String::new();
    let mut next = |reader: &mut dyn BufRead| -> io::Result<String> {
        line.clear();
        reader.take(LINE_BYTES_MAX).read_line(&mut line)?;
        Ok(line.trim_end().to_string())
    };
    let first = next(reader)?;
    let mut words = first.split(' ');
    let (Some(method), Some(path)) = (words.next(), words.next()) else { return Ok(None) };
    let Some(key) = path.strip_prefix('/') else { return Ok(None) };
    let (method, key) = (method.to_string(), key.to_string());
    let mut length = 0;
    for _ in 0..LINES_MAX {
        let header = next(reader)?;
        if header.is_empty() {
            let mut body = vec![0; length];
            reader.read_exact(&mut body)?;
            return Ok(String::from_utf8(body).ok().map(|body| Request { method, key, body }));
        }
        if let Some((name, value)) = header.split_once(':')
            && name.eq_ignore_ascii_case("content-length")
        {
            match value.trim().parse() {
                Ok(bytes) if bytes <= BODY_BYTES_MAX => length = bytes,
                _ => return Ok(None),
            }
        }
    }
    Ok(None)
}

fn answer(request: &Request) -> (&'static str, String) {
    const OK: &str = "200 OK";
    const DONE: &str = "204 No Content";
    const BAD: &str = "400 Bad Request";
    let Request { method, key, body } = request;
    match (method.as_str(), key.as_str()) {
        ("PUT", "failpoints") => match control::set_all(body) {
            Ok(()) => (DONE, String::new()),
            Err(error) => (BAD, format!("fail to set failpoint: {error}\n")),
        },
        ("PUT", name) => match control::set(name, body) {
            Ok(()) => (DONE, String::new()),
            Err(refusal) => (BAD, format!("fail to set failpoint: {refusal}\n")),
        },
        ("GET", "") => (OK, control::list(&std::env::var(LISTED).unwrap_or_default())),
        ("GET", path) => {
            let (name, counts) = path.strip_suffix("/count").map_or((path, false), |name| (name, true));
            match control::find(name).and_then(|point| point.status().ok_or(Refusal::Unset)) {
                Ok((_, acted)) if counts => (OK, acted.to_string()),
                Ok((terms, _)) => (OK, terms + "\n"),
                Err(Refusal::Unset) if counts => {
                    ("500 Internal Server Error", format!("failed to GET: {}\n", Refusal::Unset))
                }
                Err(refusal) => ("404 Not Found", format!("failed to GET: {refusal}\n")),
            }
        }
        ("DELETE", name) => match control::unset(name) {
            Ok(()) => (DONE, String::new()),
            Err(refusal) => (BAD, format!("failed to delete failpoint {refusal}\n")),
        },
        _ => ("405 Method Not Allowed", "Method not allowed\n".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::points::ALL;
    use std::net::TcpListener;

    fn ask(text: &str) -> Option<(&'static str, String)> {
        let request = read_request(&mut text.as_bytes()).ok()??;
        Some(answer(&request))
    }

    fn put(path: &str, terms: &str) -> Option<(&'static str, String)> {
        ask(&format!("PUT /{path} HTTP/1.1\r\nHost: x\r\ncontent-length: {}\r\n\r\n{terms}", terms.len()))
    }

    fn get(path: &str) -> String {
        ask(&format!("GET /{path} HTTP/1.1\r\n\r\n")).map(|(status, text)| format!("{status}: {text}")).expect("whole")
    }

    #[test]
    fn points_are_set_shown_and_unset() {
        // No code of this test binary passes these.
        let name = "defragBeforeRename";
        assert!(get("").contains(&format!("\n{name}=\n")));
        assert_eq!(get("").lines().count(), ALL.len());
        assert_eq!(control::list("raftBeforeSave,nothing,beforeCommit"), "beforeCommit=\nraftBeforeSave=\n");
        assert_eq!(get(name), "404 Not Found: failed to GET: failpoint: failpoint is disabled\n");
        assert_eq!(put(name, "sleep(100)"), Some(("204 No Content", String::new())));
        assert_eq!(get(name), "200 OK: sleep(100)\n");
        assert_eq!(get(&format!("{name}/count")), "200 OK: 0");
        assert_eq!(put(name, "slep(100)").map(|(status, _)| status), Some("400 Bad Request"));
        assert_eq!(get(name), "200 OK: sleep(100)\n", "a wrong text changes nothing");
        let delete = format!("DELETE /{name} HTTP/1.1\r\n\r\n");
        assert_eq!(ask(&delete).map(|(status, _)| status), Some("204 No Content"));
        assert_eq!(ask(&delete).map(|(status, _)| status), Some("400 Bad Request"));
        assert_eq!(
            put("failpoints", "defragBeforeCopy=off;beforePublishing=1*print").map(|(status, _)| status),
            Some("204 No Content")
        );
        assert_eq!(get("defragBeforeCopy"), "200 OK: off\n");
        assert_eq!(get("beforePublishing"), "200 OK: 1*print\n");
        for wrong in ["nothing=off", "defragBeforeCopy"] {
            assert_eq!(put("failpoints", wrong).map(|(status, _)| status), Some("400 Bad Request"), "{wrong}");
        }
    }

    #[test]
    fn unknown_points_and_methods_are_refused() {
        assert_eq!(get("nothing"), "404 Not Found: failed to GET: failpoint: failpoint does not exist\n");
        assert!(get("nothing/count").starts_with("404"));
        assert_eq!(put("nothing", "off").map(|(status, _)| status), Some("400 Bad Request"));
        assert_eq!(ask("POST / HTTP/1.1\r\n\r\n").map(|(status, _)| status), Some("405 Method Not Allowed"));
        let long = format!("PUT /x HTTP/1.1\r\ncontent-length: {}\r\n\r\n", BODY_BYTES_MAX + 1);
        assert_eq!(ask(&long), None);
        assert_eq!(ask("nothing"), None);
        assert_eq!(ask(&format!("GET / HTTP/1.1\r\n{}\r\n", "a: b\r\n".repeat(LINES_MAX))), None);
    }

    /// Over a socket, as Go's client asks: the answer ends the connection.
    #[test]
    fn a_socket_is_answered() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("bound");
        let client = std::thread::spawn(move || {
            let mut stream = TcpStream::connect(address).expect("listening");
            stream.write_all(b"GET /nothing/count HTTP/1.1\r\nHost: a\r\n\r\n").expect("sent");
            let mut text = String::new();
            stream.read_to_string(&mut text).expect("text");
            text
        });
        let (stream, _) = listener.accept().expect("a client");
        converse(&stream).expect("answered");
        drop(stream);
        let text = client.join().expect("ended");
        assert!(text.starts_with("HTTP/1.1 404 Not Found\r\n") && text.contains("\r\nConnection: close\r\n"), "{text}");
    }
}
