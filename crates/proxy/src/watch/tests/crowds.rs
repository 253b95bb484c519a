//! Many watches that are told of one large deletion.

use super::*;
use crate::watch::picked::Selection;
use std::sync::Arc;

const KEYS: usize = 10_000;

/// A hub whose only feed has all keys with `x` and these watches, which ask for what they lack beside their numbers.
fn with_watches(requests: Vec<WatchCreateRequest>) -> Hub {
    let (mut hub, history) = (Hub::new(1, Live::default()), History { revision: 5, ..History::default() });
    let mut streams = [(); 2].map(|()| Stream { knows_token: true, is_up: true, ..Stream::default() });
    hub.open(1);
    LANES.into_iter().for_each(|lane| hub.up(lane));
    for (number, request) in requests.into_iter().enumerate() {
        hub.create(1, WatchCreateRequest { watch_id: 1 + number as i64, ..request });
    }
    for round in 0..20 {
        answered(&mut hub, &history, &mut streams, round * 1_000);
    }
    assert_eq!(hub.feeds(), 1);
    hub
}

/// The deletion of all keys in one revision comes: what each watch is told.
fn deleted(hub: &mut Hub) -> BTreeMap<WatchId, Selection> {
    let event = |number: usize| {
        let kv = KeyValue { key: format!("x{number:05}").into(), mod_revision: 6, ..KeyValue::default() };
        Event { r#type: EventType::Delete as i32, kv: Some(kv), prev_kv: None }
    };
    let header = Some(History::default().header(6));
    let watch_id = *hub.feeds.keys().next().expect("a feed");
    let events = (0..KEYS).map(event).collect();
    hub.receive(Lane::Main, WatchResponse { header, watch_id, events, ..WatchResponse::default() });
    let told = hub.take().into_iter().filter_map(|output| match output {
        Output::Tell(1, Telling::Events { watch, selection, .. }) => Some((watch, selection)),
        _ => None,
    });
    told.collect()
}

/// What there is beside the one batch, in bytes: each list once, however many share it.
fn beside(told: &BTreeMap<WatchId, Selection>) -> usize {
    let batches: BTreeSet<_> = told.values().map(|selection| Arc::as_ptr(&selection.batch)).collect();
    assert_eq!(batches.len(), 1);
    let lists: BTreeMap<_, usize> =
        told.values().filter_map(|told| told.about.as_ref()).map(|list| (Arc::as_ptr(list), list.bytes())).collect();
    lists.values().sum()
}

#[test]
fn filters_copy_no_events() {
    let request = |filter: FilterType| WatchCreateRequest {
        key: "x".into(),
        range_end: "y".into(),
        filters: vec![filter as i32],
        ..WatchCreateRequest::default()
    };
    let filtered = |count: usize, filter: FilterType| vec![request(filter); count];
    let requests = [filtered(500, FilterType::Noput), filtered(5, FilterType::Nodelete)].concat();
    let told = deleted(&mut with_watches(requests));
    assert!(told.keys().copied().eq(1..=500), "those that want no deletions are told nothing");
    assert_eq!(beside(&told), 0);
    assert!(told.values().all(|selection| selection.events().count() == KEYS));
}

#[test]
fn parts_of_a_range_copy_no_events() {
    let range = |key: &str, range_end: &str| WatchCreateRequest {
        key: key.to_string().into(),
        range_end: range_end.to_string().into(),
        ..WatchCreateRequest::default()
    };
    let noput = vec![FilterType::Noput as i32];
    // All of it, 30 parts that have all keys, one that has half of them, and single keys; each part with and without a filter.
    let mut requests = vec![range("x", "y")];
    requests.extend((0..30).map(|number| range("x", &format!("x9{number:02}~~~"))));
    requests.push(range("x", "x05000"));
    requests.extend((0..10).map(|_| range("x00007", "")));
    let filtered = requests.clone().into_iter().map(|request| WatchCreateRequest { filters: noput.clone(), ..request });
    requests.extend(filtered.collect::<Vec<_>>());
    let told = deleted(&mut with_watches(requests.clone()));
    assert_eq!(told.len(), requests.len());
    let bytes = beside(&told);
    let all = KEYS * size_of::<u32>();
    assert!(bytes <= 33 * all, "{bytes} bytes for 31 parts");
    for (watch, selection) in told {
        let request = &requests[watch as usize - 1];
        let of = Subject {
            key: request.key.clone(),
            range_end: request.range_end.clone(),
            prev_kv: false,
            no_events: false,
        };
        let keys = selection.events().filter_map(|event| event.kv.as_ref()).map(|kv| kv.key.clone());
        let wanted = (0..KEYS).map(|number| Bytes::from(format!("x{number:05}"))).filter(|key| of.has(key));
        assert!(keys.eq(wanted), "watch {watch} of {of:?}");
    }
}
