//! Panics on purpose, in tests only: over a message or an answer that asks for one.
//!
//! The test below starts a member as a process of its own, which is this test's binary again, and has it panic.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use contain::planted::SLIP;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

/// The store panics half-way through an entry that contains this.
const HALF: &[u8] = b"cairn: an entry is half applied";

fn contains(bytes: &[u8], word: &[u8]) -> bool {
    bytes.len() >= word.len() && bytes.windows(word.len()).any(|window| window == word)
}

/// Answers that contain this are not encoded.
const ANSWER: &[u8] = b"cairn: an encoder slips";

/// In the middle of encoding an answer, of which these are some `bytes`.
pub(crate) fn panic_over_answer(bytes: &[u8]) {
    assert!(!contains(bytes, ANSWER), "planted in an encoder");
}

/// In the middle of applying an entry.
pub(crate) fn panic_half_way(entry: &[u8]) {
    assert!(!contains(entry, HALF), "planted in the apply path");
}

const DIRECTORY: &str = "CAIRN_PLANTED_DIRECTORY";
/// Only a test that fails waits so long.
const PATIENCE: Duration = Duration::from_secs(120);

/// What the process of the test below does; nothing when it runs as a test.
#[test]
fn member() {
    let Some(directory) = std::env::var_os(DIRECTORY).map(PathBuf::from) else { return };
    let url = |name: &str| format!("unix://{}", directory.join(name).display());
    let (client, peer) = (url("client"), url("peer"));
    let code = crate::run([
        "--name=m".to_string(),
        format!("--data-dir={}", directory.join("data").display()),
        format!("--listen-client-urls={client}"),
        format!("--advertise-client-urls={client}"),
        format!("--listen-peer-urls={peer}"),
        format!("--initial-advertise-peer-urls={peer}"),
        format!("--initial-cluster=m={peer}"),
    ]);
    std::process::exit(code);
}

struct Member {
    directory: PathBuf,
    process: Child,
    lines: Receiver<String>,
}

impl Member {
    fn start() -> Member {
        let directory = std::env::temp_dir().join(format!("cairn-planted-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&directory);
        std::fs::create_dir_all(&directory).expect("a directory");
        let mut command = Command::new(std::env::current_exe().expect("a program"));
        command.args(["--exact", "planted::member", "--nocapture"]).env(DIRECTORY, &directory);
        command.env_remove("RUST_BACKTRACE").stdout(Stdio::null()).stderr(Stdio::piped());
        let mut process = command.spawn().expect("started");
        let (tell, lines) = channel();
        let errors = BufReader::new(process.stderr.take().expect("piped"));
        std::thread::spawn(move || errors.lines().map_while(Result::ok).for_each(|line| drop(tell.send(line))));
        let member = Member { directory, process, lines };
        member.line_with("ready to serve client requests");
        member
    }

    /// Waits for a line of the log.
    fn line_with(&self, word: &str) -> String {
        loop {
            let line = self.lines.recv_timeout(PATIENCE).unwrap_or_else(|_| panic!("no line with {word:?}"));
            if line.contains(word) {
                return line;
            }
        }
    }

    fn client(&self) -> UnixStream {
        connect(&self.directory.join("client"))
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

fn connect(path: &Path) -> UnixStream {
    let stream = UnixStream::connect(path).expect("connected");
    stream.set_read_timeout(Some(PATIENCE)).expect("set");
    stream
}

fn request(line: &str, headers: &str, body: &[u8]) -> Vec<u8> {
    let length = body.len();
    let head = format!("{line} HTTP/1.1\r\nhost: x\r\n{headers}content-length: {length}\r\n\r\n");
    [head.as_bytes(), body].concat()
}

/// Sends a request, and returns the response with its whole body.
fn ask(stream: &mut UnixStream, request: &[u8]) -> String {
    stream.write_all(request).expect("sent");
    let mut response = Vec::new();
    while !response.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).expect("a head");
        response.push(byte[0]);
    }
    let head = String::from_utf8(response).expect("text");
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
    let mut body = vec![0; length.expect("a length").parse().expect("a number")];
    stream.read_exact(&mut body).expect("a body");
    head + &String::from_utf8_lossy(&body)
}

/// A call about the key `k`.
fn about_k(path: &str, more: &str) -> Vec<u8> {
    let json = format!("{{\"key\":\"{}\"{more}}}", STANDARD.encode("k"));
    request(&format!("POST /v3/kv/{path}"), "", json.as_bytes())
}

fn put(value: &[u8]) -> Vec<u8> {
    about_k("put", &format!(",\"value\":\"{}\"", STANDARD.encode(value)))
}

fn panics(stream: &mut UnixStream) -> String {
    let page = ask(stream, &request("GET /metrics", "", b""));
    page.lines().find_map(|line| line.strip_prefix("cairn_panics_total ")).expect("the counter").to_string()
}

#[test]
fn a_slip_over_a_message_ends_a_connection_and_a_slip_over_state_the_member() {
    let mut member = Member::start();
    let mut other = member.client();
    assert!(ask(&mut other, &put(b"before")).starts_with("HTTP/1.1 200"));
    assert_eq!(panics(&mut other), "0");

    // A client's message.
    let mut one = member.client();
    assert!(ask(&mut one, &put(b"its own")).starts_with("HTTP/1.1 200"));
    let answer = ask(&mut one, &put(SLIP));
    assert!(answer.starts_with("HTTP/1.1 500") && answer.contains("connection: close\r\n"), "{answer}");
    assert!(answer.contains("internal error: a panic, which is in the log"), "{answer}");
    assert_eq!(one.read(&mut [0]).expect("the end"), 0, "its connection is over");
    let line = member.line_with("its connection is closed");
    assert!(line.contains("planted in a decoder") && line.contains("planted.rs") && line.contains("rpc-"), "{line}");
    assert_eq!(panics(&mut other), "1");

    // A peer's.
    let mut peer = connect(&member.directory.join("peer"));
    let answer = ask(&mut peer, &request("GET /raft/probing", "", b""));
    let cluster = answer.lines().find(|line| line.starts_with("x-etcd-cluster-id: ")).expect("its cluster");
    let (version, min) = (api::version::ETCD, api::version::MIN_CLUSTER);
    let headers = format!("{cluster}\r\nx-server-version: {version}\r\nx-min-cluster-version: {min}\r\n");
    let answer = ask(&mut peer, &request("POST /raft", &headers, SLIP));
    assert!(answer.starts_with("HTTP/1.1 400"), "{answer}");
    member.line_with("its connection is closed");
    assert_eq!(panics(&mut other), "2");
    assert!(ask(&mut other, &put(b"after")).starts_with("HTTP/1.1 200"), "the others are served");

    // Answers: of a read, of a write that is applied, and one that is made while it is sent.
    let mut contained = 2;
    let long = [ANSWER, &[b'x'; 500_000]].concat();
    for (value, call) in [
        (ANSWER, about_k("range", "")),
        (ANSWER, about_k("deleterange", ",\"prev_kv\":true")),
        (&long[..], about_k("range", "")),
        (&long[..], about_k("deleterange", ",\"prev_kv\":true")),
    ] {
        assert!(ask(&mut other, &put(value)).starts_with("HTTP/1.1 200"), "nothing of it is in the answer");
        let mut one = member.client();
        one.write_all(&call).expect("sent");
        let mut answer = Vec::new();
        // The connection ends. It may be reset.
        let _ = one.read_to_end(&mut answer);
        let answer = String::from_utf8_lossy(&answer);
        assert!(!answer.contains(&STANDARD.encode(ANSWER)[..20]), "{answer}");
        let line = member.line_with("its connection is closed");
        assert!(line.contains("planted in an encoder"), "{line}");
        contained += 1;
        assert_eq!(panics(&mut other), contained.to_string());
    }
    let deleted = ask(&mut other, &about_k("range", ""));
    assert!(deleted.starts_with("HTTP/1.1 200") && !deleted.contains("kvs"), "the deletion is applied: {deleted}");

    // Half applied.
    other.write_all(&put(HALF)).expect("sent");
    let mut answer = Vec::new();
    let _ = other.read_to_end(&mut answer);
    assert!(answer.is_empty(), "nobody is answered: {}", String::from_utf8_lossy(&answer));
    let line = member.line_with("the member ends");
    assert!(line.contains("planted in the apply path"), "{line}");
    assert_eq!(member.process.wait().expect("ended").signal(), Some(libc::SIGABRT));
}
