use super::test_support::{Memory, PATIENCE, Site, append, message, request};
use crate::{Fed, Feed, Follow, Known, Unfollowed};
use api::raftpb::{ConfState, Message, MessageType, Snapshot, SnapshotMetadata};
use contain::lock;
use std::io::{Read, Write};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

/// Sends what a test gives it, and heartbeats in between.
struct Scripted(Vec<u64>, Receiver<Fed>);

impl Feed for Scripted {
    fn way(&self) -> Vec<u64> {
        self.0.clone()
    }

    fn next(&mut self) -> Result<Fed, String> {
        match self.1.recv_timeout(Duration::from_millis(20)) {
            Ok(fed) => Ok(fed),
            Err(std::sync::mpsc::RecvTimeoutError::Timeout) => {
                Ok(Fed::Message(message(MessageType::MsgHeartbeat, 1, 7, 0)))
            }
            Err(std::sync::mpsc::RecvTimeoutError::Disconnected) => Err("the script ends".into()),
        }
    }

    fn goes_on(&mut self) -> Result<(), String> {
        Ok(())
    }
}

/// A site that feeds whoever comes; what it sends goes in at the returned end.
fn feeding(way: &[u64]) -> (Site, Sender<Fed>) {
    let site = Site::new(1);
    let (give, given) = channel();
    let (way, given) = (way.to_vec(), std::sync::Mutex::new(Some(given)));
    *lock(&site.recorder.feeder) = Some(Box::new(move |_| {
        // The first who comes has the script, the others heartbeats.
        let given = lock(&given).take().unwrap_or_else(|| {
            let (silent, given) = channel();
            std::mem::forget(silent);
            given
        });
        Ok(Box::new(Scripted(way.clone(), given)))
    }));
    (site, give)
}

#[derive(Default)]
struct Taken {
    way: Vec<u64>,
    messages: Vec<Message>,
    /// Ends after so many messages that are no heartbeats.
    ends_after: usize,
}

impl Follow for Taken {
    fn last(&self) -> (u64, u64) {
        (5, 2)
    }

    fn tail(&self, _: u64) -> Vec<u64> {
        vec![u64::MAX, 0, 7]
    }

    fn begin(&mut self, way: &[u64]) -> Result<(), String> {
        self.way = way.to_vec();
        Ok(())
    }

    fn take(&mut self, message: Message) -> Result<(), String> {
        if message.r#type() != MessageType::MsgHeartbeat {
            self.messages.push(message);
        }
        if self.messages.len() >= self.ends_after { Err("enough".into()) } else { Ok(()) }
    }
}

fn follow(observer: &Site, url: &str, taken: &mut Taken) -> Unfollowed {
    observer.peers.follow(url, ("o", &["http://c:1".to_string()]), PATIENCE, taken)
}

#[test]
fn what_is_fed_arrives_in_order() {
    let (source, give) = feeding(&[9, 1]);
    let observer = Site::new(7);
    let sent: Vec<Message> = (5..30).map(|index| append(1, 7, index, 100_000)).collect();
    for message in &sent {
        give.send(Fed::Message(message.clone())).expect("it runs");
    }
    let mut taken = Taken { ends_after: sent.len(), ..Taken::default() };
    let end = follow(&observer, &source.url, &mut taken);
    assert!(matches!(end, Unfollowed::NotTaken(why) if why == "enough"));
    assert_eq!((taken.way, taken.messages), (vec![9, 1], sent));
    let come = lock(&source.recorder.followers).first().cloned().expect("it came");
    assert_eq!((come.id, come.name.as_str(), come.last), (7, "o", (5, 2)));
    assert_eq!((come.client_urls, come.tail), (vec!["http://c:1".to_string()], vec![u64::MAX, 0, 7]));
    // The side that is followed ends it, too.
    drop(give);
    let (source, give) = feeding(&[1]);
    drop(give);
    let end = follow(&observer, &source.url, &mut Taken { ends_after: 1, ..Taken::default() });
    assert!(matches!(end, Unfollowed::Fault(_)), "{end}");
}

#[test]
fn a_snapshot_is_fetched_while_the_stream_stays_open() {
    let (source, give) = feeding(&[1]);
    let observer = Site::new(7);
    let segments: Vec<Vec<u8>> = vec![vec![1; 300_000], vec![2; 10]];
    super::snapshots::accepts(&observer, &Arc::default());
    let metadata = SnapshotMetadata {
        index: Some(9),
        term: Some(3),
        conf_state: Some(ConfState { voters: vec![1], ..Default::default() }),
    };
    let snapshot = Snapshot { metadata: Some(metadata), data: None };
    let offer = Message { snapshot: Some(snapshot), ..message(MessageType::MsgSnap, 1, 7, 0) };
    give.send(Fed::Snapshot(offer, Arc::new(Memory(segments.clone())))).expect("it runs");
    let end = follow(&observer, &source.url, &mut Taken { ends_after: 1, ..Taken::default() });
    assert!(matches!(end, Unfollowed::Installed), "{end}");
    let seen = lock(&observer.recorder.seen);
    let (message, bytes) = seen.installed.first().expect("it was installed");
    assert_eq!((message.r#type(), bytes), (MessageType::MsgSnap, &segments.concat()));
    assert!(message.context.is_none() && message.snapshot.as_ref().is_some_and(|snapshot| snapshot.data.is_none()));
}

#[test]
fn who_may_not_follow_is_told_why() {
    let (source, _give) = feeding(&[0xa, 1]);
    lock(&source.recorder.known).extend([(3, Known::Member), (4, Known::Removed)]);
    let get = |path: &str| source.raw(request(&format!("GET /cairn/follow/{path}"), "").as_bytes());
    for (path, status, text) in [
        ("0?after=1&term=1", "400", "invalid id of an observer\n"),
        ("1?after=1&term=1", "400", "invalid id of an observer\n"),
        ("x?after=1&term=1", "400", "invalid id of an observer\n"),
        ("7", "400", "the last entry of the observer is not named\n"),
        ("7?after=-1&term=1", "400", "the last entry of the observer is not named\n"),
        ("3?after=1&term=1", "403", "this id is a member's: members do not observe\n"),
        ("4?after=1&term=1", "403", "this id is a member's: members do not observe\n"),
        ("a?after=1&term=1", "409", "entries come to this observer by way of a,1\n"),
    ] {
        let answer = get(path);
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")) && answer.ends_with(text), "{path}: {answer}");
    }
    let other = request("GET /cairn/follow/7?after=1&term=1", "").replace("-Cluster-ID: c1", "-Cluster-ID: c2");
    assert!(source.raw(other.as_bytes()).starts_with("HTTP/1.1 412 "));
    let post = request("POST /cairn/follow/7?after=1&term=1", "");
    assert!(source.raw(post.as_bytes()).starts_with("HTTP/1.1 405 "));
    let named = request("GET /cairn/follow/7?after=1&term=1", &format!("X-Cairn-Name: {}\r\n", "x".repeat(2000)));
    assert!(source.raw(named.as_bytes()).starts_with("HTTP/1.1 400 "));
    // A process that feeds nobody says so, and the observer goes on to the next.
    let plain = Site::new(1);
    let end = follow(&Site::new(7), &plain.url, &mut Taken::default());
    assert!(matches!(end, Unfollowed::Refused(http::StatusCode::NOT_FOUND, _)), "{end}");
}

#[test]
fn followers_are_few_and_leave_the_places_of_others() {
    let (source, _give) = feeding(&[1]);
    let come = |id: usize| {
        let mut stream = source.dial();
        let head = request(&format!("GET /cairn/follow/{id:x}?after=1&term=1"), "");
        stream.write_all(head.as_bytes()).expect("connected");
        let mut status = [0; 12];
        stream.read_exact(&mut status).expect("an answer");
        (stream, String::from_utf8_lossy(&status).into_owned())
    };
    let streams: Vec<_> = (0x100..0x140).map(come).collect();
    assert!(streams.iter().all(|(_, status)| status == "HTTP/1.1 200"));
    assert_eq!(come(0x140).1, "HTTP/1.1 503");
    let deadline = std::time::Instant::now() + PATIENCE;
    while source.peers.shared.places.taken() != (0, 0) {
        assert!(std::time::Instant::now() < deadline, "{:?}", source.peers.shared.places.taken());
        std::thread::sleep(Duration::from_millis(5));
    }
    // Who comes again has the place it had.
    assert_eq!(come(0x100).1, "HTTP/1.1 200");
    source.peers.end_followers();
    for (mut stream, _) in streams {
        assert!(stream.read_to_end(&mut Vec::new()).is_ok(), "its stream has ended");
    }
}
