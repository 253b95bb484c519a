//! Clients with many watches that stall and resume, and ranges that end for many.

use super::*;

/// Works until nothing is left; returns how many turns that took, and the most that the hub wanted done or feeds it made or ended in one.
fn worked(hub: &mut Hub) -> (usize, usize) {
    let (mut turns, mut most) = (0, 0);
    while hub.has_work() {
        let before = hub.feeds();
        hub.work();
        (turns, most) = (turns + 1, most.max(hub.take().len()).max(hub.feeds().abs_diff(before)));
    }
    (turns, most)
}

#[test]
fn a_client_with_many_watches_stalls_and_resumes_a_little_at_a_time() {
    let (mut hub, history) = (Hub::new(1, Live::default()), History { revision: 5, ..History::default() });
    let mut streams = [(); 2].map(|()| Stream { knows_token: true, is_up: true, ..Stream::default() });
    hub.open(1);
    LANES.into_iter().for_each(|lane| hub.up(lane));
    for watch_id in 1..=300 {
        let key = watch_id.to_string().into();
        hub.create(1, WatchCreateRequest { key, watch_id, ..WatchCreateRequest::default() });
    }
    (0..15).for_each(|round| drop(answered(&mut hub, &history, &mut streams, round * 1_000)));
    hub.stall(1);
    assert!(hub.take().len() < 10 && hub.feeds() > 290, "{} feeds are left", hub.feeds());
    let (turns, most) = worked(&mut hub);
    assert!(turns > 50 && most < 10 && hub.feeds() == 0, "{turns} turns of {most} at most");
    hub.resume(1);
    assert!(hub.feeds() < 10, "{} feeds at once", hub.feeds());
    let (turns, most) = worked(&mut hub);
    assert!(turns > 50 && most < 10 && hub.feeds() == 300, "{turns} turns of {most} at most");
    // One that does both in turns gets to all of its watches.
    hub.stall(1);
    worked(&mut hub);
    let mut seen = BTreeSet::new();
    for _ in 0..300 {
        hub.resume(1);
        hub.work();
        seen.extend(hub.feeds.values().flat_map(|feed| feed.audience.ids()));
        hub.stall(1);
        hub.work();
    }
    assert_eq!(seen.len(), 300);
}

#[test]
fn a_range_that_ends_for_many_keys_is_broken_up_a_little_at_a_time() {
    let (mut hub, mut history) = (Hub::new(1, Live::default()), History { revision: 5, ..History::default() });
    let mut streams = [(); 2].map(|()| Stream { knows_token: true, is_up: true, ..Stream::default() });
    hub.open(1);
    LANES.into_iter().for_each(|lane| hub.up(lane));
    let all = WatchCreateRequest { key: "a".into(), range_end: "b".into(), watch_id: 500, ..Default::default() };
    hub.create(1, all);
    for watch_id in 1..=300 {
        let key = format!("a{watch_id}").into();
        hub.create(1, WatchCreateRequest { key, watch_id, ..WatchCreateRequest::default() });
    }
    (0..30).for_each(|round| drop(answered(&mut hub, &history, &mut streams, round * 1_000)));
    assert_eq!(hub.feeds(), 1);
    hub.cancel(1, 500);
    assert!(hub.feeds() < 10, "{} feeds at once", hub.feeds());
    // What comes meanwhile is told once.
    for _ in 0..50 {
        hub.work();
    }
    for key in ["a1", "a150", "a300"] {
        let kv = Some(KeyValue { key: key.into(), mod_revision: 6, ..KeyValue::default() });
        history.events.push(Event { kv, ..Event::default() });
    }
    history.revision = 6;
    let mut told = Vec::new();
    (30..60).for_each(|round| told.extend(answered(&mut hub, &history, &mut streams, round * 1_000)));
    let mut told: Vec<WatchId> =
        told.iter().filter(|response| !response.events.is_empty()).map(|response| response.watch_id).collect();
    told.sort_unstable();
    assert_eq!((told, hub.feeds()), (vec![1, 150, 300], 300));
}

#[test]
fn what_comes_for_a_client_that_stalls_is_told_once_when_it_resumes() {
    let (mut hub, mut history) = (Hub::new(1, Live::default()), History { revision: 5, ..History::default() });
    let mut streams = [(); 2].map(|()| Stream { knows_token: true, is_up: true, ..Stream::default() });
    hub.open(1);
    LANES.into_iter().for_each(|lane| hub.up(lane));
    for watch_id in 1..=30 {
        hub.create(1, WatchCreateRequest { key: "a".into(), watch_id, ..WatchCreateRequest::default() });
    }
    (0..3).for_each(|round| drop(answered(&mut hub, &history, &mut streams, round * 1_000)));
    assert_eq!(hub.feeds(), 1);
    let kv = Some(KeyValue { key: "a".into(), mod_revision: 6, ..KeyValue::default() });
    history.events.push(Event { kv, ..Event::default() });
    history.revision = 6;
    hub.stall(1);
    hub.work();
    // Some are on their feed, and some are not.
    streams[0].view = 6;
    streams[0].deliver(&history, &mut Dice(1), true);
    streams[0].responses.drain(..).for_each(|response| hub.receive(Lane::Main, response));
    let is_told = |output: &Output| matches!(output, Output::Tell(..));
    assert!(!hub.out.iter().any(is_told), "{:?}", hub.out);
    hub.resume(1);
    hub.cancel(1, 30);
    hub.progress(1);
    let (mut told, mut progress) = (Vec::new(), Vec::new());
    for round in 3..12 {
        for response in answered(&mut hub, &history, &mut streams, round * 1_000) {
            match response.watch_id {
                NO_WATCH => progress.push((told.len(), response.header.expect("a header").revision)),
                number if !response.canceled => told.push(number),
                _ => {}
            }
        }
    }
    told.sort_unstable();
    assert_eq!((told, progress), ((1..30).collect(), vec![(29, 6)]));
}

#[test]
fn a_line_that_does_not_end_keeps_no_watches_of_clients_that_have_gone() {
    let (mut hub, history) = (Hub::new(1, Live::default()), History { revision: 5, ..History::default() });
    let mut streams = [(); 2].map(|()| Stream { knows_token: true, is_up: true, ..Stream::default() });
    LANES.into_iter().for_each(|lane| hub.up(lane));
    hub.open(1);
    hub.open(2);
    for watch_id in 1..=30 {
        for (client, keys) in [(1, "a"), (2, "b")] {
            let key = format!("{keys}{watch_id}").into();
            hub.create(client, WatchCreateRequest { key, watch_id, ..WatchCreateRequest::default() });
        }
    }
    (0..25).for_each(|round| drop(answered(&mut hub, &history, &mut streams, round * 1_000)));
    let feeds: Vec<FeedId> = hub.feeds.keys().copied().collect();
    hub.close(2);
    let mut turns = 0;
    while hub.feeds() > 30 && turns < 1_000 {
        // All feeds stand in line again before their turn.
        for watch_id in &feeds {
            let header = Some(history.header(5));
            hub.receive(Lane::Main, WatchResponse { header, watch_id: *watch_id, ..WatchResponse::default() });
        }
        hub.work();
        turns += 1;
    }
    assert!(feeds.len() == 60 && turns <= 60, "{turns} turns and {} feeds", hub.feeds());
}
