//! Watches that want no events at all.

use super::*;

#[test]
fn a_watch_that_wants_nothing_has_no_history_brought() {
    let (mut hub, mut history) = (Hub::new(1, Live::default()), History::default());
    let mut streams = [(); 2].map(|()| Stream { knows_token: true, is_up: true, ..Stream::default() });
    for revision in 1..=100 {
        let kv = Some(KeyValue { key: "a".into(), mod_revision: revision, ..KeyValue::default() });
        history.events.push(Event { kv, ..Event::default() });
        history.revision = revision;
    }
    hub.open(1);
    LANES.into_iter().for_each(|lane| hub.up(lane));
    let filters = vec![FilterType::Noput as i32, FilterType::Nodelete as i32];
    for (watch_id, filters) in [(1, filters.clone()), (2, Vec::new()), (3, filters.clone())] {
        let request =
            WatchCreateRequest { key: "a".into(), watch_id, start_revision: 1, filters, ..Default::default() };
        hub.create(1, request);
    }
    let mut told = answered(&mut hub, &history, &mut streams, 0);
    let of_member: Vec<_> = streams[0].watches.values().map(|(request, _)| request.filters.clone()).collect();
    assert!(of_member.contains(&filters) && of_member.contains(&Vec::new()), "{of_member:?}");
    // Those that are alike share, and are told of progress like others.
    hub.progress(1);
    told.extend(answered(&mut hub, &history, &mut streams, 1_000));
    assert_eq!(hub.feeds(), 2);
    let with_events = |id| told.iter().filter(|told| told.watch_id == id).map(|told| told.events.len()).sum::<usize>();
    assert_eq!([1, 2, 3].map(with_events), [0, 100, 0]);
    let mut progress = told.iter().filter(|told| told.watch_id == NO_WATCH).filter_map(|told| told.header.as_ref());
    assert_eq!(progress.next_back().map(|header| header.revision), Some(100));
    // A beginning that is compacted is told of.
    history.compacted = 50;
    let request = WatchCreateRequest { key: "a".into(), watch_id: 4, start_revision: 1, filters, ..Default::default() };
    hub.create(1, request);
    let told = answered(&mut hub, &history, &mut streams, 2_000);
    let is_end = |told: &&WatchResponse| told.watch_id == 4 && told.canceled;
    assert_eq!(told.iter().find(is_end).map(|told| told.compact_revision), Some(50), "{told:?}");
}
