use super::test_support::{PATIENCE, Site, alone, append, connector, message, request};
use crate::{Listener, Origin, client};
use api::raftpb::MessageType;
use contain::lock;
use http::Request;
use std::io::{ErrorKind, Read};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixListener;
use std::time::Duration;

#[test]
fn messages_arrive_whole_and_in_order() {
    let (a, b) = (Site::new(1), Site::new(2));
    a.meet(&b);
    let mut sent = Vec::new();
    for round in 0..500 {
        let batch = vec![
            append(1, 2, 2 * round, 100),
            append(1, 2, 2 * round + 1, (round as usize % 7) * 1000),
            message(MessageType::MsgHeartbeat, 1, 2, round),
        ];
        a.peers.send(&batch);
        sent.extend(batch);
    }
    b.recorder.wait("all messages", |seen| seen.messages.len() == sent.len());
    let is_append = |message: &api::raftpb::Message| message.r#type() == MessageType::MsgApp;
    let seen = lock(&b.recorder.seen);
    for appends in [true, false] {
        let of = |all: &[api::raftpb::Message]| -> Vec<_> {
            all.iter().filter(|message| is_append(message) == appends).cloned().collect()
        };
        assert!(of(&seen.messages) == of(&sent), "appends: {appends}");
    }
    assert!(a.peers.active_since(2).is_some() && b.peers.active_since(1).is_some());
}

#[test]
fn large_messages_arrive() {
    let _alone = alone();
    let (a, b) = (Site::new(1), Site::new(2));
    a.meet(&b);
    let sent = [append(1, 2, 0, 9 << 20), append(1, 2, 1, 3 << 20), message(MessageType::MsgHeartbeat, 1, 2, 9)];
    a.peers.send(&sent);
    b.recorder.wait("large messages", |seen| seen.messages.len() == 3);
    let mut seen = std::mem::take(&mut lock(&b.recorder.seen).messages);
    seen.sort_by_key(|message| message.index());
    assert!(seen == sent);
}

#[test]
fn a_peer_that_comes_back_is_found_again() {
    let a = Site::new(1);
    let b = Site::new(2);
    a.meet(&b);
    let (address, since) = (b.address().to_string(), a.peers.active_since(2).expect("active"));
    drop(b);
    // Messages sent meanwhile are lost and reported as lost.
    let deadline = std::time::Instant::now() + PATIENCE;
    while a.peers.active_since(2).is_some() {
        assert!(std::time::Instant::now() < deadline, "the loss is not noticed");
        a.peers.send(&[message(MessageType::MsgHeartbeat, 1, 2, 1)]);
        std::thread::sleep(Duration::from_millis(20));
    }
    a.recorder.wait("a report", |seen| seen.unreachable.contains(&2));
    let b = Site::on(2, TcpListener::bind(&address).expect("its old port"));
    a.meet(&b);
    a.peers.send(&[append(1, 2, 7, 10)]);
    b.recorder.wait("a message after the return", |seen| seen.messages.iter().any(|message| message.index() == 7));
    assert!(a.peers.active_since(2).expect("active") > since);
}

#[test]
fn a_peer_that_is_hung_up_on_is_dialled_again() {
    let (a, b) = (Site::new(1), Site::new(2));
    a.meet(&b);
    a.peers.hang_up(2);
    // Messages written to the closed streams are lost.
    while lock(&b.recorder.seen).unreachable.is_empty() {
        b.peers.send(&[append(2, 1, 1, 10), message(MessageType::MsgHeartbeat, 2, 1, 1)]);
        std::thread::sleep(Duration::from_millis(20));
    }
    b.await_streams(1);
    b.peers.send(&[append(2, 1, 7, 10)]);
    a.recorder.wait("a message on a new stream", |seen| seen.messages.iter().any(|message| message.index() == 7));
    let seen = lock(&a.recorder.seen);
    let last = seen.messages.iter().zip(&seen.origins).find(|(message, _)| message.index() == 7);
    assert_eq!(last.map(|(_, origin)| *origin), Some(Origin::Stream));
    drop(seen);
    // Hanging up on an unknown peer has no effect.
    a.peers.hang_up(9);
}

#[test]
fn without_streams_messages_are_posted() {
    let (a, b) = (Site::new(1), Site::new(2));
    // Only one member knows the other: b dials no stream.
    a.peers.set(2, vec![b.url.clone()]);
    a.peers.send(&[message(MessageType::MsgVote, 1, 2, 1), append(1, 2, 2, 10)]);
    b.recorder.wait("posted messages", |seen| seen.messages.len() == 2);
    assert_eq!(lock(&b.recorder.seen).origins, [Origin::Request; 2]);
    // The sender has named its URLs.
    b.peers.send(&[message(MessageType::MsgVoteResp, 2, 1, 1)]);
    a.recorder.wait("an answer", |seen| seen.messages.len() == 1);
}

/// What is Cairn's own goes to members of Cairn only.
#[test]
fn own_fields_go_to_members_of_cairn() {
    let (a, b) = (Site::new(1), Site::new(2));
    let vote = api::raftpb::Message {
        commit_term: Some(3),
        headroom: Some(4),
        headroom_index: Some(5),
        ..message(MessageType::MsgVote, 1, 2, 1)
    };
    // It has not dialled this member yet: it may be etcd.
    a.peers.set(2, vec![b.url.clone()]);
    assert!(!a.peers.is_cairn(2) && !a.peers.is_cairn(9));
    a.peers.send(std::slice::from_ref(&vote));
    b.recorder.wait("a vote", |seen| seen.messages.len() == 1);
    assert_eq!(lock(&b.recorder.seen).messages, [message(MessageType::MsgVote, 1, 2, 1)]);
    a.meet(&b);
    assert!(a.peers.is_cairn(2));
    a.peers.send(std::slice::from_ref(&vote));
    b.recorder.wait("another vote", |seen| seen.messages.len() == 2);
    assert_eq!(lock(&b.recorder.seen).messages[1], vote);
}

#[test]
fn all_urls_of_a_peer_are_tried() {
    let (a, b) = (Site::new(1), Site::new(2));
    // Nobody listens at port 1.
    a.peers.set(2, vec!["http://127.0.0.1:1".into(), "http://no.such.host.invalid:1".into(), b.url.clone()]);
    b.peers.set(1, vec![a.url.clone()]);
    b.await_streams(1);
    b.peers.send(&[append(2, 1, 1, 10)]);
    a.recorder.wait("a message", |seen| seen.messages.len() == 1);
}

#[test]
fn unix_sockets_carry_it_too() {
    let path = std::env::temp_dir().join(format!("cairn-peers-{}", std::process::id()));
    let site = |id: u64| {
        let path = path.with_extension(id.to_string());
        let _ = std::fs::remove_file(&path);
        let socket = UnixListener::bind(&path).expect("bound");
        let url = format!("unix://{}", path.display());
        Site::with(id, Listener::unix(socket, move || drop(std::fs::remove_file(path))).expect("a thread"), url)
    };
    let (a, b) = (site(1), site(2));
    a.meet(&b);
    a.peers.send(&[append(1, 2, 1, 10)]);
    b.recorder.wait("a message", |seen| seen.messages.len() == 1);
    let answer = client::call(&connector(), &a.url, Request::new(vec![]), PATIENCE).expect("an answer");
    assert_eq!(answer.body(), b"/ ");
    let paths = [1, 2].map(|id: u64| path.with_extension(id.to_string()));
    assert!(paths.iter().all(|path| path.exists()));
    drop((a, b));
    assert!(!paths.iter().any(|path| path.exists()), "what is to be done once a socket is closed was not done");
}

#[test]
fn calls_are_answered_by_the_handler() {
    let a = Site::new(1);
    let mut request = Request::new(b"what".to_vec());
    *request.method_mut() = http::Method::POST;
    *request.uri_mut() = "/members/promote/7?x=y".parse().expect("a path");
    let answer = client::call(&connector(), &a.url, request.clone(), PATIENCE).expect("an answer");
    assert_eq!((answer.status().as_u16(), &answer.body()[..]), (200, &b"/members/promote/7 what"[..]));
    assert_eq!(answer.headers().get("x-etcd-cluster-id").expect("a header"), "c1");
    let url = a.url.clone();
    drop(a);
    let error = client::call(&connector(), &url, request.clone(), Duration::from_secs(1)).expect_err("nobody is there");
    assert!(error.to_string().contains(&url), "{error}");
    let silent = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let url = format!("http://{}", silent.local_addr().expect("bound"));
    let began = std::time::Instant::now();
    let error = client::call(&connector(), &url, request, Duration::from_millis(300)).expect_err("nobody answers");
    assert!(error.to_string().contains("nothing came in time"), "{error}");
    assert!(began.elapsed() < Duration::from_secs(30));
}

#[test]
fn calls_that_follow_each_other_have_one_connection() {
    let a = Site::new(1);
    let (address, url) = (a.address().to_string(), a.url.clone());
    let mut kept = client::Kept::default();
    let mut ask = |path: &str| {
        let mut request = Request::new(b"what".to_vec());
        *request.method_mut() = http::Method::POST;
        *request.uri_mut() = path.parse().expect("a path");
        kept.call(&connector(), &url, request, PATIENCE).expect("an answer").status().as_u16()
    };
    for _ in 0..3 {
        assert_eq!((ask("/leases"), ask("/nothing")), (200, 404));
        assert_eq!(a.peers.shared.places.taken().0, 1);
    }
    // The other side has restarted meanwhile.
    drop(a);
    let _again = Site::on(1, TcpListener::bind(address).expect("the same port"));
    assert_eq!((ask("/leases"), ask("/nothing")), (200, 404));
}

#[test]
fn removed_peers_are_left_alone() {
    let (a, b) = (Site::new(1), Site::new(2));
    a.meet(&b);
    // The order matters: a member applies the change before it removes the peer. Otherwise the peer, which dials again
    // at once, would count as one that this member has not heard of yet, and be posted to.
    lock(&a.recorder.known).insert(2, crate::Known::Removed);
    a.peers.remove(2);
    assert!(a.peers.active_since(2).is_none());
    a.peers.send(&[append(1, 2, 1, 10)]);
    // The peer dials again, and is told of its removal.
    b.recorder.wait("the news", |seen| seen.removed == 1);
    assert!(lock(&b.recorder.seen).messages.is_empty());
}

#[test]
fn metrics_have_etcds_names() {
    let (a, b) = (Site::new(1), Site::new(2));
    a.meet(&b);
    a.peers.send(&[append(1, 2, 1, 10)]);
    b.recorder.wait("a message", |seen| seen.messages.len() == 1);
    let mut page = telemetry::metrics::Page::default();
    b.peers.render(&mut page);
    for line in [
        "etcd_network_active_peers{Local=\"2\",Remote=\"1\"} 1",
        "etcd_network_disconnected_peers_total{Local=\"2\",Remote=\"1\"} 0",
        "etcd_network_peer_sent_failures_total{To=\"1\"} 0",
        "etcd_network_peer_round_trip_time_seconds_bucket{To=\"1\",le=\"0.0001\"} 0",
        "etcd_network_peer_round_trip_time_seconds_bucket{To=\"1\",le=\"3.2768\"} 0",
        "etcd_network_snapshot_send_total_duration_seconds_bucket{To=\"1\",le=\"51.2\"} 0",
        "etcd_network_snapshot_receive_inflights_total{From=\"1\"} 0",
    ] {
        assert!(page.text().contains(line), "{line} is not in\n{}", page.text());
    }
}

#[test]
fn whoever_comes_too_early_is_sent_away_at_once() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("bound");
    let closed = Listener::over(listener).expect("a thread");
    for _ in 0..3 {
        let mut early = TcpStream::connect(address).expect("accepted");
        early.set_read_timeout(Some(PATIENCE)).expect("a socket");
        let is_sent_away = match early.read(&mut [0]) {
            Ok(count) => count == 0,
            Err(error) => error.kind() == ErrorKind::ConnectionReset,
        };
        assert!(is_sent_away, "it is kept waiting");
    }
    let (a, b) = (Site::new(1), Site::with(2, closed, format!("http://{address}")));
    a.meet(&b);
    drop(b);
    assert!(TcpStream::connect(address).is_err(), "it still listens");
    drop(Listener::over(TcpListener::bind(address).expect("its old port")).expect("a thread"));
    assert!(TcpStream::connect(address).is_err(), "one that was never opened still listens");
}

#[test]
fn a_call_knows_who_makes_it_and_whether_they_wait() {
    let a = Site::new(1);
    let ask = || {
        let mut stream = a.dial();
        std::io::Write::write_all(&mut stream, request("GET /wait", "").as_bytes()).expect("written");
        stream
    };
    let non_member = ask();
    a.recorder.wait("the call", |seen| seen.waiting == [false]);
    a.peers.set(2, vec!["http://127.0.0.1:1".into()]);
    let member = ask();
    a.recorder.wait("the call", |seen| seen.waiting == [false, true]);
    assert_eq!(lock(&a.recorder.seen).gone, 0);
    drop(non_member);
    a.recorder.wait("its end", |seen| seen.gone == 1);
    drop(member);
    a.recorder.wait("its end", |seen| seen.gone == 2);
}
