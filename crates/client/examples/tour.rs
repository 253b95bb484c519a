//! Walks through the client against a cluster: `tour ENDPOINTS [USER PASSWORD]`. Ends with 1 at the first thing that is not as it should be.
//! `conformance/` runs it against Cairn and against the genuine etcd.

use std::time::Duration;

use api::etcdserverpb::compare::{CompareResult, CompareTarget, TargetUnion};
use api::etcdserverpb::request_op::Request;
use api::etcdserverpb::*;
use api::mvccpb::event::EventType;
use bytes::Bytes;
use client::{Client, Endpoint, Error, Options, prefix_end};

type Outcome<T = ()> = Result<T, Box<dyn std::error::Error>>;

/// What a step takes at most.
const PATIENCE: Duration = Duration::from_secs(20);

fn main() -> Outcome {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let endpoints = args.first().ok_or("usage: tour ENDPOINTS [USER PASSWORD]")?;
    let endpoints = endpoints.split(',').map(str::parse).collect::<Result<Vec<Endpoint>, _>>()?;
    let user = args.get(1).cloned().zip(args.get(2).cloned());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let client = Client::new(Options { endpoints, user, ..Options::default() })?;
        for (name, step) in [
            ("keys", Box::pin(keys(&client)) as std::pin::Pin<Box<dyn Future<Output = Outcome>>>),
            ("watches", Box::pin(watches(&client))),
            ("leases", Box::pin(leases(&client))),
            ("locks", Box::pin(locks(&client))),
            ("elections", Box::pin(elections(&client))),
            ("a cached prefix", Box::pin(cached(&client))),
            ("members", Box::pin(members(&client))),
        ] {
            tokio::time::timeout(PATIENCE, step).await.map_err(|_| format!("{name}: no end within {PATIENCE:?}"))??;
            println!("{name}: as they should be");
        }
        Ok(())
    })
}

/// Says what is wrong, unless `fact` holds.
fn check(fact: bool, what: &str) -> Outcome {
    if fact { Ok(()) } else { Err(what.into()) }
}

fn put(key: &str, value: &str) -> PutRequest {
    PutRequest { key: key.to_string().into(), value: value.to_string().into(), ..Default::default() }
}

async fn keys(client: &Client) -> Outcome {
    let all = Bytes::from_static(b"tour/");
    client
        .delete_range(DeleteRangeRequest { key: all.clone(), range_end: prefix_end(&all), ..Default::default() })
        .await?;
    for number in 0..5 {
        client.put(put(&format!("tour/{number}"), "value")).await?;
    }
    let found =
        client.range(RangeRequest { key: all.clone(), range_end: prefix_end(&all), ..Default::default() }).await?;
    check(found.count == 5 && found.kvs.len() == 5, "five keys were put")?;
    let compare = Compare {
        result: CompareResult::Equal as i32,
        target: CompareTarget::Version as i32,
        key: "tour/0".into(),
        target_union: Some(TargetUnion::Version(1)),
        ..Default::default()
    };
    let request = Some(Request::RequestPut(put("tour/0", "changed")));
    let txn = TxnRequest { compare: vec![compare], success: vec![RequestOp { request }], failure: Vec::new() };
    check(client.txn(txn.clone()).await?.succeeded, "the first version is there")?;
    check(!client.txn(txn).await?.succeeded, "the first version is there no more")?;
    let refused = client.put(PutRequest::default()).await;
    check(refused.is_err_and(|error| error.is(api::Error::EmptyKey)), "an empty key is refused by its text")
}

async fn watches(client: &Client) -> Outcome {
    let mut watcher = client.watch(WatchCreateRequest { key: "tour/watched".into(), ..Default::default() });
    watcher.created().await?;
    let mut revisions = Vec::new();
    for number in 0..3 {
        let answer = client.put(put("tour/watched", &number.to_string())).await?;
        revisions.push(answer.header.map_or(0, |header| header.revision));
    }
    let mut seen = Vec::new();
    while seen.len() < revisions.len() {
        let watched = watcher.next().await?;
        seen.extend(watched.events.iter().filter_map(|event| Some(event.kv.as_ref()?.mod_revision)));
    }
    check(seen == revisions, "every put is seen, in order")?;
    check(watcher.next_revision() == revisions[2] + 1, "the watch knows how far it is")?;
    watcher.request_progress().await?;
    let progress = watcher.next().await?;
    check(progress.events.is_empty() && progress.revision >= revisions[2], "progress has no events")?;
    // From a revision that is gone.
    client.compact(CompactionRequest { revision: revisions[2], physical: true }).await?;
    let request = WatchCreateRequest { key: "tour/watched".into(), start_revision: 1, ..Default::default() };
    let mut late = client.watch(request);
    let refused = late.next().await;
    check(matches!(refused, Err(Error::Compacted { revision }) if revision == revisions[2]), "history is compacted")
}

async fn leases(client: &Client) -> Outcome {
    let session = client.session(Duration::from_secs(5)).await?;
    let lease = session.lease();
    client.put(PutRequest { lease, ..put("tour/leased", "value") }).await?;
    let left = client.lease_time_to_live(LeaseTimeToLiveRequest { id: lease, keys: true }).await?;
    check(left.keys == [Bytes::from_static(b"tour/leased")], "the key hangs on the lease")?;
    let mut keep_alive = client.keep_alive(lease);
    check(keep_alive.next().await? == 5, "the lease is kept alive")?;
    check(client.keep_alive_once(lease).await?.ttl == 5, "and once more")?;
    session.close().await?;
    check(keep_alive.next().await == Err(Error::LeaseGone(lease)), "a revoked lease is gone")?;
    check(client.keep_alive_once(lease).await == Err(Error::LeaseGone(lease)), "for everyone")
}

async fn locks(client: &Client) -> Outcome {
    let first = client.session(Duration::from_secs(5)).await?.lock("tour/lock").await?;
    let second = client.session(Duration::from_secs(5)).await?;
    let Err(second) = second.try_lock("tour/lock").await? else { return Err("two hold the lock".into()) };
    let revision = first.revision();
    let waiting = tokio::spawn(async move { second.lock("tour/lock").await.map_err(|error| error.to_string()) });
    tokio::time::sleep(Duration::from_millis(100)).await;
    check(!waiting.is_finished(), "the second waits")?;
    first.unlock().await?.close().await?;
    let second = waiting.await??;
    check(second.revision() > revision, "later holders have later revisions")?;
    second.unlock().await?.close().await?;
    Ok(())
}

async fn elections(client: &Client) -> Outcome {
    let election = client.election("tour/election");
    check(matches!(election.leader().await, Err(Error::NoLeader(_))), "nobody leads")?;
    let mut observer = election.observe();
    let session = client.session(Duration::from_secs(5)).await?;
    let mut leadership = election.campaign(session, "one".into()).await?;
    check(&election.leader().await?.kvs[0].value[..] == b"one", "one leads")?;
    check(&observer.next().await?.kvs[0].value[..] == b"one", "one is seen to lead")?;
    leadership.proclaim("uno".into()).await?;
    check(&observer.next().await?.kvs[0].value[..] == b"uno", "what it proclaims is seen")?;
    let (own, session) = (election.clone(), client.session(Duration::from_secs(5)).await?);
    let waiting =
        tokio::spawn(async move { own.campaign(session, "two".into()).await.map_err(|error| error.to_string()) });
    tokio::time::sleep(Duration::from_millis(100)).await;
    check(!waiting.is_finished(), "two waits")?;
    leadership.resign().await?.close().await?;
    let leadership = waiting.await??;
    check(&observer.next().await?.kvs[0].value[..] == b"two", "two is seen to lead")?;
    leadership.resign().await?.close().await?;
    Ok(())
}

async fn cached(client: &Client) -> Outcome {
    let cached = client.cached_prefix("tour/").await?;
    let before = cached.len();
    let answer = client.put(put("tour/new", "value")).await?;
    cached.reached(answer.header.map_or(0, |header| header.revision)).await?;
    check(cached.len() == before + 1 && cached.get(b"tour/new").is_some(), "a put is seen")?;
    let mut deleted = client.watch(WatchCreateRequest { key: "tour/new".into(), ..Default::default() });
    deleted.created().await?;
    client.delete_range(DeleteRangeRequest { key: "tour/new".into(), ..Default::default() }).await?;
    let event = deleted.next().await?;
    check(event.events.iter().any(|event| event.r#type() == EventType::Delete), "a deletion is seen")?;
    cached.reached(event.revision).await?;
    check(cached.get(b"tour/new").is_none(), "and here as well")?;
    let (page, _) = cached.range(b"tour/1", Some(b"tour/3"), 10);
    check(page.len() == 2, "ranges are read from memory")
}

async fn members(client: &Client) -> Outcome {
    let listed = client.member_list(MemberListRequest { linearizable: true }).await?;
    check(!listed.members.is_empty(), "there are members")?;
    let endpoints: Vec<Endpoint> = client.endpoints().cloned().collect();
    for endpoint in &endpoints {
        let status = client.status(endpoint, StatusRequest {}).await?;
        check(status.leader != 0, "they have a leader")?;
    }
    Ok(())
}
