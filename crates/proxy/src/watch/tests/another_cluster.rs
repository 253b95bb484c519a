//! Members that belong to another cluster than before, on a stream that has requests under way.

use super::*;
use api::etcdserverpb::WatchRequest;
use api::etcdserverpb::watch_request::RequestUnion;

fn created(cluster_id: u64, revision: i64, watch_id: WatchId) -> WatchResponse {
    let header = Some(ResponseHeader { cluster_id, revision, ..ResponseHeader::default() });
    WatchResponse { header, watch_id, created: true, ..WatchResponse::default() }
}

fn create(hub: &mut Hub, watch_id: WatchId) {
    let key = watch_id.to_string().into();
    hub.create(1, WatchCreateRequest { key, watch_id, ..WatchCreateRequest::default() });
}

/// What is asked for, and what the client is told, each by the numbers of the watches.
fn outputs(hub: &mut Hub) -> (Vec<FeedId>, Vec<WatchResponse>) {
    let (mut asked, mut told) = (Vec::new(), Vec::new());
    for output in hub.take() {
        match output {
            Output::Ask(_, WatchRequest { request_union: Some(RequestUnion::CreateRequest(request)) }) => {
                asked.push(request.watch_id);
            }
            Output::Tell(1, Telling::Plain(response)) => told.push(response),
            _ => {}
        }
    }
    (asked, told)
}

#[test]
fn answers_are_those_to_their_own_requests_after_a_change_of_cluster() {
    let mut hub = Hub::new(1, Live::default());
    hub.open(1);
    hub.up(Lane::Main);
    // More than members are asked for at once.
    for watch_id in 1..=4 {
        create(&mut hub, watch_id);
        hub.receive(Lane::Main, created(7, 5, watch_id));
    }
    hub.down(Lane::Main);
    hub.take();
    hub.up(Lane::Main);
    let (asked, _) = outputs(&mut hub);
    assert_eq!(asked.len(), 3);
    hub.receive(Lane::Main, created(8, 900, asked[0]));
    let (more, told) = outputs(&mut hub);
    assert!(more.is_empty() && told.len() == 4 && told.iter().all(|told| told.canceled), "{more:?} {told:?}");
    for watch_id in &asked[1..] {
        hub.receive(Lane::Main, created(8, 900, *watch_id));
    }
    // Nothing is under way any more: a new watch is asked for at once, and its client is told of its own answer.
    create(&mut hub, 10);
    create(&mut hub, 11);
    let (asked, told) = outputs(&mut hub);
    assert!(asked.len() == 2 && told.is_empty(), "{asked:?} {told:?}");
    for (feed, watch_id) in asked.into_iter().zip([10, 11]) {
        hub.receive(Lane::Main, created(8, 900, feed));
        let (_, told) = outputs(&mut hub);
        assert!(matches!(&told[..], [one] if one.created && one.watch_id == watch_id), "{watch_id}: {told:?}");
    }
}

/// The one that had room when the answer came is asked for then, and not with the next answer, which may never come.
#[test]
fn the_next_watch_is_asked_for_when_another_cluster_answers() {
    let mut hub = Hub::new(1, Live::default());
    hub.open(1);
    hub.up(Lane::Main);
    create(&mut hub, 1);
    hub.receive(Lane::Main, created(7, 5, 1));
    // All of them are gone with their client, but the feeds are there until that has been looked at.
    (2..=6).for_each(|watch_id| create(&mut hub, watch_id));
    hub.close(1);
    let (asked, _) = outputs(&mut hub);
    assert_eq!(asked.len(), 4);
    for answered in 0..2 {
        hub.receive(Lane::Main, created(8, 900, asked[1 + answered]));
        assert_eq!(outputs(&mut hub).0.len(), 1, "after {answered} before");
    }
}
