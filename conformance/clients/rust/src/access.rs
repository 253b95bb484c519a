//! Users, roles and permissions.

use std::env;

use etcd_client::{GetOptions, Permission, Txn, TxnOp, WatchOptions};

use crate::data::{absent, events};
use crate::{Outcome, connect, equal, refused};

pub async fn auth() -> Outcome {
    let mut client = connect(None).await?;
    client.user_add("root", "secret", None).await?;
    client.role_add("root").await?;
    client.user_grant_role("root", "root").await?;
    client.user_add("alice", "wonder", None).await?;
    client.role_add("reader").await?;
    client.role_grant_permission("reader", Permission::read_write("rs/auth/").with_prefix()).await?;
    client.user_grant_role("alice", "reader").await?;
    equal(client.role_get("reader").await?.permissions().len(), 1)?;
    client.auth_enable().await?;
    // A certificate without a common name stands for a user without a name, whom nobody knows.
    let nobody = if env::var("CA").is_ok() { "permission denied" } else { "user name is empty" };
    let denied = refused(client.get("rs/auth/a", None).await, nobody);
    let allowed = alice().await;
    connect(Some(("root", "secret"))).await?.auth_disable().await?;
    denied.and(allowed)?;
    equal(client.get("rs/auth/a", None).await?.kvs()[0].value_str()?, "1")
}

async fn alice() -> Outcome {
    match connect(Some(("alice", "wrong"))).await {
        Err(error) if error.to_string().contains("invalid user ID or password") => {}
        other => return Err(format!("a wrong password led to {:?}", other.err()).into()),
    }
    let mut client = connect(Some(("alice", "wonder"))).await?;
    client.put("rs/auth/a", "1", None).await?;
    equal(client.get("rs/auth/a", None).await?.kvs()[0].value_str()?, "1")?;
    refused(client.get("rs/other", None).await, "permission denied")?;
    refused(client.get("rs/", Some(GetOptions::new().with_prefix())).await, "permission denied")?;
    let outside = Txn::new().when([absent("rs/auth/none")]).and_then([TxnOp::put("rs/other", "1", None)]);
    refused(client.txn(outside).await, "permission denied")?;
    refused(client.user_list().await, "permission denied")?;
    let mut stream = client.watch("rs/auth/b", Some(WatchOptions::new())).await?;
    equal(stream.message().await?.ok_or("the stream ended")?.created(), true)?;
    client.put("rs/auth/b", "2", None).await?;
    equal(events(&mut stream, 1).await?[0].1.as_str(), "rs/auth/b")
}
