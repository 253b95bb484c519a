use super::test_support::{Site, message, request};
use crate::Known;
use api::Message as _;
use api::raftpb::MessageType;
use contain::lock;
use std::io::{Read, Write};
use std::net::TcpListener;

fn post(path: &str, body: &[u8]) -> Vec<u8> {
    let head = request(&format!("POST {path}"), &format!("Content-Length: {}\r\n", body.len()));
    [head.as_bytes(), body].concat()
}

#[test]
fn streams_are_refused_as_etcd_refuses_them() {
    let a = Site::new(1);
    a.peers.set(2, vec!["http://127.0.0.1:1".into()]);
    lock(&a.recorder.known).insert(3, Known::Removed);
    let get = |id: &str, more: &str| a.raw(request(&format!("GET /raft/stream/msgapp/{id}"), more).as_bytes());
    let good = get("2", "X-Raft-To: ff\r\n");
    assert!(good.starts_with("HTTP/1.1 412 ") && good.ends_with("to field mismatch\n"), "{good}");
    let unknown = get("9", "X-Raft-To: 1\r\n");
    assert!(unknown.starts_with("HTTP/1.1 404 ") && unknown.ends_with("error sender not found\n"), "{unknown}");
    let removed = get("3", "X-Raft-To: 1\r\n");
    assert!(removed.starts_with("HTTP/1.1 410 ") && removed.ends_with("removed member\n"), "{removed}");
    assert!(get("zz", "").starts_with("HTTP/1.1 404 "));
    assert!(a.raw(request("GET /raft/stream/other/2", "").as_bytes()).starts_with("HTTP/1.1 404 "));
    assert!(a.raw(request("DELETE /raft/stream/msgapp/2", "").as_bytes()).starts_with("HTTP/1.1 405 "));
}

#[test]
fn non_members_are_refused_in_words_that_peers_compare() {
    let a = Site::new(1);
    for path in [
        "GET /raft/stream/msgapp/2",
        "POST /raft",
        "POST /raft/snapshot",
        "POST /cairn/snapshot",
        "GET /cairn/snapshot/1/segment/1",
    ] {
        let other = request(path, "").replace("-Cluster-ID: c1", "-Cluster-ID: c2");
        let answer = a.raw(other.as_bytes());
        assert!(answer.starts_with("HTTP/1.1 412 ") && answer.ends_with("\r\n\r\ncluster ID mismatch\n"), "{answer}");
        assert!(answer.contains("x-etcd-cluster-id: c1\r\n"), "{answer}");
        let old = request(path, "").replace("Version: 3.7.3", "Version: 2.3.0");
        let answer = a.raw(old.as_bytes());
        assert!(answer.starts_with("HTTP/1.1 412 ") && answer.ends_with("\r\n\r\nincompatible version\n"), "{answer}");
    }
}

#[test]
fn posted_messages() {
    let a = Site::new(1);
    lock(&a.recorder.known).insert(3, Known::Removed);
    let good = message(MessageType::MsgVote, 2, 1, 4);
    let answer = a.raw(&post("/raft", &good.encode_to_vec()));
    assert!(answer.starts_with("HTTP/1.1 204 "), "{answer}");
    a.recorder.wait("the message", |seen| seen.messages == [good.clone()]);
    let answer = a.raw(&post("/raft", &message(MessageType::MsgVote, 3, 1, 4).encode_to_vec()));
    assert!(answer.starts_with("HTTP/1.1 403 ") && answer.contains("removed member"), "{answer}");
    let answer = a.raw(&post("/raft", &message(MessageType::MsgVote, 2, 9, 4).encode_to_vec()));
    assert!(answer.starts_with("HTTP/1.1 412 "), "{answer}");
    let answer = a.raw(&post("/raft", &message(MessageType::MsgSnap, 2, 1, 4).encode_to_vec()));
    assert!(answer.starts_with("HTTP/1.1 400 "), "{answer}");
    let answer = a.raw(&post("/raft", &[0xff; 20]));
    assert!(answer.starts_with("HTTP/1.1 400 "), "{answer}");
    assert!(a.raw(request("GET /raft", "").as_bytes()).starts_with("HTTP/1.1 405 "));
    assert_eq!(lock(&a.recorder.seen).messages.len(), 1);
}

/// Who reaches the port can name itself as a sender, and is answered where it says. Its word that this member was
/// removed must not end it.
#[test]
fn strangers_remove_nobody() {
    let a = Site::new(1);
    let stranger = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let url = format!("http://{}", stranger.local_addr().expect("bound"));
    let answers = std::thread::spawn(move || {
        let (mut socket, _) = stranger.accept().expect("a connection");
        // What the request says does not matter: only that it came.
        assert!(socket.read(&mut [0; 4096]).expect("a request") > 0);
        let text = "the member has been permanently removed from the cluster";
        write!(socket, "HTTP/1.1 403 Forbidden\r\nContent-Length: {}\r\n\r\n{text}", text.len()).expect("read");
    });
    let body = message(MessageType::MsgHeartbeat, 2, 1, 0).encode_to_vec();
    let head = request("POST /raft", &format!("X-PeerURLs: {url}\r\nContent-Length: {}\r\n", body.len()));
    let answer = a.raw(&[head.as_bytes(), &body].concat());
    assert!(answer.starts_with("HTTP/1.1 204 "), "{answer}");
    a.peers.send(&[message(MessageType::MsgAppResp, 1, 2, 0)]);
    a.recorder.wait("the refusal", |seen| seen.unreachable == [2]);
    answers.join().expect("it answered");
    assert_eq!(lock(&a.recorder.seen).removed, 0);
}

#[test]
fn probes() {
    let a = Site::new(1);
    let answer = a.raw(request("GET /raft/probing", "").as_bytes());
    assert!(answer.starts_with("HTTP/1.1 200 ") && answer.contains("{\"OK\":true,\"Now\":\"20"), "{answer}");
}
