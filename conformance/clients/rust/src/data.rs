//! Keys, transactions and watches.

use etcd_client::{
    Client, CompactionOptions, Compare, CompareOp, DeleteOptions, EventType, GetOptions, PutOptions, SortOrder,
    SortTarget, Txn, TxnOp, TxnOpResponse, TxnResponse, WatchOptions, WatchStream,
};

use crate::{Outcome, connect, equal, refused};

pub async fn keys() -> Outcome {
    let mut client = connect(None).await?;
    client.put("rs/kv/a", "1", None).await?;
    client.put("rs/kv/b", [0u8, 255], None).await?;
    let revision = client.put("rs/kv/a", "2", None).await?.header().ok_or("no header")?.revision();
    equal(client.get("rs/kv/a", None).await?.kvs()[0].version(), 2)?;
    equal(client.get("rs/kv/none", None).await?.count(), 0)?;
    let before = GetOptions::new().with_revision(revision - 1);
    equal(client.get("rs/kv/a", Some(before)).await?.kvs()[0].value_str()?, "1")?;
    let backwards = GetOptions::new().with_prefix().with_sort(SortTarget::Key, SortOrder::Descend);
    let found = client.get("rs/kv/", Some(backwards)).await?;
    let keys = found.kvs().iter().map(|pair| pair.key_str()).collect::<Result<Vec<_>, _>>()?;
    equal(keys, vec!["rs/kv/b", "rs/kv/a"])?;
    equal(client.get("rs/kv/", Some(GetOptions::new().with_prefix().with_limit(1))).await?.more(), true)?;
    let previous = client.put("rs/kv/a", "3", Some(PutOptions::new().with_prev_key())).await?;
    equal(previous.prev_key().ok_or("no previous pair")?.value_str()?, "2")?;
    client.put("rs/kv/big", "x".repeat(1_000_000), None).await?;
    equal(client.get("rs/kv/big", None).await?.kvs()[0].value().len(), 1_000_000)?;

    // The same in pieces.
    let mut pieces = client.kv_client().get_stream("rs/kv/", Some(GetOptions::new().with_prefix())).await?;
    let mut streamed = 0;
    while let Some(piece) = pieces.message().await? {
        streamed += piece.kvs().len();
    }
    equal(streamed, 3)?;
    equal(client.delete("rs/kv/", Some(DeleteOptions::new().with_prefix())).await?.deleted(), 3)?;
    client.compact(revision, Some(CompactionOptions::new().with_physical())).await?;
    let compacted = client.get("rs/kv/a", Some(GetOptions::new().with_revision(1))).await;
    refused(compacted, "required revision has been compacted")?;
    equal(client.member_list().await?.members().len(), 1)
}

pub async fn transactions() -> Outcome {
    let mut client = connect(None).await?;
    equal(claim(&mut client, "1").await?.succeeded(), true)?;
    let second = claim(&mut client, "2").await?;
    equal(second.succeeded(), false)?;
    equal(got(&second, 0)?, "1".into())?;
    let compares = [
        Compare::value("rs/txn/a", CompareOp::Equal, "1"),
        Compare::create_revision("rs/txn/a", CompareOp::Greater, 0),
    ];
    let inner = Txn::new().when([absent("rs/txn/c")]).and_then([TxnOp::put("rs/txn/c", "4", None)]);
    let both = Txn::new().when(compares).and_then([
        TxnOp::delete("rs/txn/a", None),
        TxnOp::put("rs/txn/b", "3", None),
        TxnOp::get("rs/txn/b", None),
        TxnOp::txn(inner),
    ]);
    equal(got(&client.txn(both).await?, 2)?, "3".into())?;
    equal(client.get("rs/txn/c", None).await?.kvs()[0].value_str()?, "4")?;
    let twice = Txn::new().and_then([TxnOp::put("rs/txn/d", "1", None), TxnOp::put("rs/txn/d", "2", None)]);
    refused(client.txn(twice).await, "duplicate key given in txn request")
}

async fn claim(client: &mut Client, value: &str) -> Outcome<TxnResponse> {
    let claim = Txn::new()
        .when([absent("rs/txn/a")])
        .and_then([TxnOp::put("rs/txn/a", value, None)])
        .or_else([TxnOp::get("rs/txn/a", None)]);
    Ok(client.txn(claim).await?)
}

pub fn absent(key: &str) -> Compare {
    Compare::version(key, CompareOp::Equal, 0)
}

/// The value that the operation of that number read.
fn got(answer: &TxnResponse, operation: usize) -> Outcome<String> {
    match answer.op_responses().get(operation) {
        Some(TxnOpResponse::Get(found)) => Ok(found.kvs()[0].value_str()?.to_owned()),
        other => Err(format!("{other:?} where a read should be").into()),
    }
}

pub async fn watches() -> Outcome {
    let mut client = connect(None).await?;
    let before = client.put("rs/watch/a", "0", None).await?.header().ok_or("no header")?.revision();
    let since = WatchOptions::new().with_prefix().with_start_revision(before).with_prev_key();
    let mut stream = client.watch("rs/watch/", Some(since)).await?;
    client.put("rs/watch/b", "1", None).await?;
    client.delete("rs/watch/a", None).await?;
    let want = [
        (EventType::Put, "rs/watch/a".to_owned(), None),
        (EventType::Put, "rs/watch/b".to_owned(), None),
        (EventType::Delete, "rs/watch/a".to_owned(), Some("0".to_owned())),
    ];
    equal(events(&mut stream, want.len()).await?, want.to_vec())?;

    // Another watch on the same stream, of a revision that is gone.
    let last = client.put("rs/watch/a", "1", None).await?.header().ok_or("no header")?.revision();
    client.compact(last, None).await?;
    stream.watch("rs/watch/none", Some(WatchOptions::new().with_start_revision(1))).await?;
    loop {
        let answer = stream.message().await?.ok_or("the stream ended")?;
        if answer.canceled() {
            return equal(answer.compact_revision(), last);
        }
    }
}

/// The next changes: kind, key, value before.
pub async fn events(stream: &mut WatchStream, count: usize) -> Outcome<Vec<(EventType, String, Option<String>)>> {
    let mut seen = Vec::new();
    while seen.len() < count {
        for event in stream.message().await?.ok_or("the stream ended")?.events() {
            let key = event.kv().ok_or("no pair")?.key_str()?.to_owned();
            let before = event.prev_kv().map(|pair| pair.value_str().map(str::to_owned)).transpose()?;
            seen.push((event.event_type(), key, before));
        }
    }
    Ok(seen)
}
