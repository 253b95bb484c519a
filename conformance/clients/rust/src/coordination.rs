//! Leases, and the server's own locks and elections.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use etcd_client::{Client, LeaseTimeToLiveOptions, LockOptions, ProclaimOptions, PutOptions, ResignOptions};
use tokio::time::sleep;

use crate::{Outcome, connect, equal, refused};

pub async fn leases() -> Outcome {
    let mut client = connect(None).await?;
    let lease = client.lease_grant(60, None).await?.id();
    client.put("rs/lease/a", "1", Some(PutOptions::new().with_lease(lease))).await?;
    let info = client.lease_time_to_live(lease, Some(LeaseTimeToLiveOptions::new().with_keys())).await?;
    equal(info.granted_ttl(), 60)?;
    equal(info.keys(), &[b"rs/lease/a".to_vec()])?;
    let (mut keeper, mut renewals) = client.lease_keep_alive(lease).await?;
    keeper.keep_alive().await?;
    equal(renewals.message().await?.ok_or("no renewal")?.ttl(), 60)?;
    equal(client.leases().await?.leases().len(), 1)?;
    client.lease_revoke(lease).await?;
    equal(client.get("rs/lease/a", None).await?.count(), 0)?;
    let late = client.put("rs/lease/a", "1", Some(PutOptions::new().with_lease(lease))).await;
    refused(late, "requested lease not found")?;

    let short = client.lease_grant(2, None).await?.id();
    client.put("rs/lease/b", "1", Some(PutOptions::new().with_lease(short))).await?;
    for _ in 0..100 {
        if client.get("rs/lease/b", None).await?.count() == 0 {
            return Ok(());
        }
        sleep(Duration::from_millis(200)).await;
    }
    Err("a lease does not end".into())
}

pub async fn locks() -> Outcome {
    let mut client = connect(None).await?;
    let (inside, total) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let workers: Vec<_> =
        (0..4).map(|_| tokio::spawn(work(client.clone(), Arc::clone(&inside), Arc::clone(&total)))).collect();
    for worker in workers {
        worker.await??;
    }
    equal(total.load(SeqCst), 20)?;

    // Who waits gets the lock when its owner's lease is over.
    let short = client.lease_grant(2, None).await?.id();
    client.lock("rs/expiry", Some(LockOptions::new().with_lease(short))).await?;
    let lease = client.lease_grant(60, None).await?.id();
    client.lock("rs/expiry", Some(LockOptions::new().with_lease(lease))).await?;
    let unknown = client.lock("rs/expiry", Some(LockOptions::new().with_lease(4711))).await;
    refused(unknown, "requested lease not found")?;
    client.lease_revoke(lease).await?;
    elections(client).await
}

async fn work(mut client: Client, inside: Arc<AtomicUsize>, total: Arc<AtomicUsize>) -> Outcome {
    // Without a lease of the caller's the server makes one, of a minute.
    for _ in 0..5 {
        let held = client.lock("rs/lock", None).await?;
        equal(inside.fetch_add(1, SeqCst), 0)?;
        sleep(Duration::from_millis(5)).await;
        inside.fetch_sub(1, SeqCst);
        total.fetch_add(1, SeqCst);
        client.unlock(held.key()).await?;
    }
    Ok(())
}

async fn elections(mut client: Client) -> Outcome {
    let lease = client.lease_grant(60, None).await?.id();
    let other = client.lease_grant(60, None).await?.id();
    let first = client.campaign("rs/elect", "one", lease).await?;
    let leader = first.leader().ok_or("no leader")?.clone();
    let mut leaders = client.observe("rs/elect").await?;
    equal(leaders.message().await?.as_ref().and_then(|seen| seen.kv()).ok_or("no leader")?.value_str()?, "one")?;
    client.proclaim("still one", Some(ProclaimOptions::new().with_leader(leader.clone()))).await?;
    equal(client.leader("rs/elect").await?.kv().ok_or("no leader")?.value_str()?, "still one")?;
    let mut second = client.clone();
    let campaign = tokio::spawn(async move { second.campaign("rs/elect", "two", other).await });
    sleep(Duration::from_millis(200)).await;
    equal(campaign.is_finished(), false)?;
    client.resign(Some(ResignOptions::new().with_leader(leader))).await?;
    campaign.await??;
    equal(client.leader("rs/elect").await?.kv().ok_or("no leader")?.value_str()?, "two")?;
    client.lease_revoke(lease).await?;
    client.lease_revoke(other).await?;
    Ok(())
}
