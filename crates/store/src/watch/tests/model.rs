//! Random histories, watchers and readers against what each watcher must get.

use api::etcdserverpb::WatchCreateRequest;
use proptest::prelude::*;
use std::sync::atomic::Ordering;

use super::checker::Checker;
use super::fake::Fake;
use crate::watch::{History, Options};

const STREAMS: usize = 3;

#[derive(Clone, Debug)]
enum Step {
    Write(Vec<(u8, bool)>),
    Create { stream: usize, key: u8, reach: u8, back: i64, flags: u8, id: i64 },
    Cancel { stream: usize, nth: usize },
    Poll { stream: usize, times: usize },
    Compact { back: i64 },
    Progress { stream: usize },
    Tick { stream: usize },
    Forget,
    Unbuilt,
    Reopen { stream: usize },
}

fn step() -> impl Strategy<Value = Step> {
    let stream = 0..STREAMS;
    prop_oneof![
        10 => prop::collection::vec((0u8..8, prop::bool::weighted(0.7)), 1..5).prop_map(Step::Write),
        4 => (stream.clone(), 0u8..9, 0u8..10, -3i64..25, any::<u8>(), prop_oneof![4 => Just(0i64), 1 => 1i64..6])
            .prop_map(|(stream, key, reach, back, flags, id)| Step::Create { stream, key, reach, back, flags, id }),
        2 => (stream.clone(), 0usize..6).prop_map(|(stream, nth)| Step::Cancel { stream, nth }),
        6 => (stream.clone(), 1usize..12).prop_map(|(stream, times)| Step::Poll { stream, times }),
        1 => (0i64..20).prop_map(|back| Step::Compact { back }),
        1 => stream.clone().prop_map(|stream| Step::Progress { stream }),
        1 => stream.clone().prop_map(|stream| Step::Tick { stream }),
        1 => Just(Step::Forget),
        1 => Just(Step::Unbuilt),
        1 => Just(Step::Unbuilt),
        1 => stream.prop_map(|stream| Step::Reopen { stream }),
    ]
}

fn options() -> impl Strategy<Value = Options> {
    (1usize..20, 1i64..6, 1usize..400, 1usize..20, 0i64..12, 1usize..800, 0usize..30, 1usize..40).prop_map(
        |(
            queue_events_max,
            catch_up_revisions_max,
            catch_up_bytes_max,
            poll_records_max,
            join_gap_revisions,
            delivery_bytes_max,
            route_hits_max,
            all_queues_events_max,
        )| {
            Options {
                queue_events_max,
                all_queues_events_max,
                long_queue_events: 2,
                short_queues_events_max: all_queues_events_max / 2,
                catch_up_revisions_max,
                catch_up_bytes_max,
                poll_records_max,
                join_gap_revisions,
                fragment_bytes: 200,
                delivery_bytes_max,
                route_hits_max,
            }
        },
    )
}

fn request(store: &Fake, key: u8, reach: u8, back: i64, flags: u8, watch_id: i64) -> WatchCreateRequest {
    let start = if back == 0 { 0 } else { store.revision() + 1 - back };
    WatchCreateRequest {
        key: if key == 8 { Vec::new() } else { vec![b'a' + key] }.into(),
        range_end: match reach {
            0..=3 => Vec::new(),
            4 => vec![0],
            _ => vec![b'a' + key + reach - 5],
        }
        .into(),
        start_revision: start,
        progress_notify: flags & 1 != 0,
        filters: [0, 1].into_iter().filter(|filter| flags & (6 << (2 * filter)) == 0).collect(),
        prev_kv: flags & 32 != 0,
        watch_id,
        fragment: flags & 64 != 0,
    }
}

fn run(options: Options, steps: Vec<Step>) -> (usize, usize, usize) {
    let store = Fake::new(options);
    let mut streams: Vec<Checker> = (0..STREAMS).map(|_| Checker::new(&store, || {})).collect();
    for (number, step) in steps.into_iter().enumerate() {
        match step {
            Step::Write(mut ops) => {
                ops.sort_by_key(|op| op.0);
                ops.dedup_by_key(|op| op.0);
                let keys: Vec<([u8; 1], bool)> = ops.iter().map(|(key, put)| ([b'a' + key], *put)).collect();
                let value = number.to_string();
                let ops: Vec<(&[u8], Option<&[u8]>)> =
                    keys.iter().map(|(key, put)| (&key[..], put.then_some(value.as_bytes()))).collect();
                store.write(&ops);
            }
            Step::Create { stream, key, reach, back, flags, id } => {
                streams[stream].create(request(&store, key, reach, back, flags, id));
            }
            Step::Cancel { stream, nth } => {
                let ids = streams[stream].ids();
                if !ids.is_empty() {
                    streams[stream].cancel(ids[nth % ids.len()]);
                }
            }
            Step::Poll { stream, times } => {
                for _ in 0..times {
                    streams[stream].poll_once();
                }
            }
            Step::Compact { back } => {
                let revision = store.revision() - back;
                if revision > store.compact_revision().max(1) {
                    store.compact(revision);
                }
            }
            Step::Progress { stream } => streams[stream].progress(),
            Step::Tick { stream } => streams[stream].periodic_progress(),
            Step::Unbuilt => store.unbuilt.store(true, Ordering::SeqCst),
            Step::Forget => store.forgetful.store(true, Ordering::SeqCst),
            Step::Reopen { stream } => streams[stream] = Checker::new(&store, || {}),
        }
        store.hub().check_queues();
    }
    let mut sums = (0, 0, 0);
    for stream in &mut streams {
        stream.drain();
        stream.assert_complete();
        sums = (sums.0 + stream.received, sums.1 + stream.progressed, sums.2 + stream.compacted);
    }
    let metrics = store.hub().metrics();
    assert_eq!((metrics.pending_events(), metrics.streams()), (0, STREAMS as i64));
    assert_eq!(metrics.slow_watchers(), 0, "all are level once all is read");
    drop(streams);
    assert_eq!((metrics.watchers(), metrics.slow_watchers(), metrics.streams()), (0, 0, 0));
    assert!(store.hub().is_idle());
    sums
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_watcher_gets_its_events_once(options in options(), steps in prop::collection::vec(step(), 1..150)) {
        run(options, steps);
    }
}
