//! What the proxy does of its own accord: it follows the list of members, registers itself, and knows the other proxies.

use api::Message as _;
use api::etcdserverpb::{Member, MemberListRequest, PutRequest, RangeRequest};
use bytes::Bytes;
use client::{Client, Endpoint, Error};
use parking_lot::RwLock;
use serde_json::{Value as Json, json};
use std::io;
use std::sync::Arc;
use std::time::Duration;
use telemetry::logging::{self, Pace, Value};

use crate::order::Order;
use crate::upstream::Upstream;

/// How long a call of the proxy's own may take.
const PATIENCE: Duration = Duration::from_secs(5);
/// The pause before something that failed is tried again.
const RETRY: Duration = Duration::from_secs(1);
/// The shortest time between two looks at the list of members.
const SYNC_MIN: Duration = Duration::from_millis(100);

/// How the proxy is found: `--resolver-prefix`, `--resolver-ttl` and `--advertise-client-url`.
#[derive(Clone, Debug)]
pub(crate) struct Registration {
    /// With the namespace, in which etcd's proxy registers itself too.
    pub(crate) prefix: String,
    pub(crate) ttl: Duration,
    pub(crate) address: String,
}

/// The proxies that have registered themselves.
#[derive(Clone, Debug, Default)]
pub(crate) struct Proxies(Arc<RwLock<Vec<Member>>>);

impl Proxies {
    /// As `MemberList` shows them; none as long as they are not known.
    pub(crate) fn members(&self) -> Vec<Member> {
        self.0.read().clone()
    }
}

/// The name of this machine.
pub(crate) fn host_name() -> String {
    std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default().trim().into()
}

/// Starts the thread for what was asked for, if there is anything.
///
/// # Errors
/// If there can be no thread.
pub(crate) fn start(
    upstream: Arc<Upstream>,
    sync_interval: Duration,
    registration: Option<Registration>,
) -> io::Result<Proxies> {
    let proxies = Proxies::default();
    if sync_interval.is_zero() && registration.is_none() {
        return Ok(proxies);
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let known = proxies.clone();
    std::thread::Builder::new().name("upkeep".into()).spawn(move || {
        runtime.block_on(async {
            let syncing = async {
                if !sync_interval.is_zero() {
                    sync(&upstream, sync_interval.max(SYNC_MIN)).await;
                }
            };
            let registering = async {
                if let Some(registration) = &registration {
                    tokio::join!(register(&upstream, registration), follow(&upstream, registration, &known));
                }
            };
            tokio::join!(syncing, registering)
        });
    })?;
    Ok(proxies)
}

/// Asks for the members again and again, and goes on with those that there are.
async fn sync(upstream: &Upstream, interval: Duration) {
    static PACE: Pace = Pace::new();
    loop {
        tokio::time::sleep(interval).await;
        let why = match endpoints(upstream).await {
            Ok(endpoints) => {
                let names: Vec<String> = endpoints.iter().map(ToString::to_string).collect();
                if upstream.set_endpoints(endpoints) {
                    logging::info("the members have changed", &[("endpoints", Value::List(&names))]);
                }
                continue;
            }
            Err(why) => why,
        };
        if let Some(left_out) = PACE.line() {
            let fields = [("error", (&why).into()), ("lines-left-out", left_out.into())];
            logging::warn("cannot get the list of members", &fields);
        }
    }
}

/// Where voting members that have started serve clients.
async fn endpoints(upstream: &Upstream) -> Result<Vec<Endpoint>, String> {
    let client = upstream.client().map_err(|status| status.message.to_string())?;
    let asked = client.member_list(MemberListRequest { linearizable: true });
    let list = within(asked).await?;
    let started = list.members.into_iter().filter(|member| !member.name.is_empty() && !member.is_learner);
    let urls = started.flat_map(|member| member.client_ur_ls);
    urls.map(|url| url.parse().map_err(|error| format!("{url}: {error}"))).collect()
}

async fn within<T>(call: impl Future<Output = Result<T, Error>>) -> Result<T, String> {
    match tokio::time::timeout(PATIENCE, call).await {
        Ok(done) => done.map_err(|error| error.to_string()),
        Err(_) => Err(format!("no answer within {PATIENCE:?}")),
    }
}

/// Keeps the proxy registered: under a lease, which is another one if it was lost or other members are asked.
async fn register(upstream: &Upstream, registration: &Registration) {
    loop {
        let once = async {
            match registered(upstream, registration).await {
                Ok(()) => logging::warn("the lease of the registration is lost; registering again", &[]),
                Err(why) => logging::warn("cannot register", &[("error", (&why).into())]),
            }
        };
        tokio::select! {
            () = once => {}
            () = upstream.changed() => {}
        }
        tokio::time::sleep(RETRY).await;
    }
}

/// Registers the proxy once, and waits until that is lost.
async fn registered(upstream: &Upstream, registration: &Registration) -> Result<(), String> {
    let Registration { prefix, ttl, address } = registration;
    let client = upstream.client().map_err(|status| status.message.to_string())?;
    let mut session = within(client.session(*ttl)).await?;
    let (key, value) = (format!("{prefix}/{address}").into(), record(address, &host_name()).into());
    within(client.put(PutRequest { key, value, lease: session.lease(), ..PutRequest::default() })).await?;
    logging::info("registered session with lease", &[("addr", address.into()), ("lease-ttl", ttl.as_secs().into())]);
    session.lost().await;
    Ok(())
}

/// What etcd's naming resolver reads.
fn record(address: &str, name: &str) -> String {
    let metadata = json!({ "name": name }).to_string();
    json!({ "Op": 0, "Addr": address, "Metadata": metadata }).to_string()
}

/// The proxy that a record is about.
fn proxy_of(record: &[u8]) -> Option<Member> {
    let record: Json = serde_json::from_slice(record).ok()?;
    let address = record.get("Addr")?.as_str()?.to_string();
    let metadata = record.get("Metadata").and_then(Json::as_str);
    let metadata: Option<Json> = metadata.and_then(|text| serde_json::from_str(text).ok());
    let name = metadata.as_ref().and_then(|metadata| metadata.get("name")).and_then(Json::as_str);
    Some(Member { name: name.unwrap_or_default().into(), client_ur_ls: vec![address], ..Member::default() })
}

/// Follows the records of all proxies.
async fn follow(upstream: &Upstream, registration: &Registration, proxies: &Proxies) {
    loop {
        let following = async {
            let why = match upstream.client() {
                Ok(client) => follow_with(&client, registration, proxies).await.to_string(),
                Err(status) => status.message.to_string(),
            };
            logging::warn("cannot follow the registered proxies", &[("error", (&why).into())]);
        };
        tokio::select! {
            () = following => {}
            () = upstream.changed() => {}
        }
        tokio::time::sleep(RETRY).await;
    }
}

/// The same with one client, until that fails.
async fn follow_with(client: &Client, registration: &Registration, proxies: &Proxies) -> Error {
    let mut records = match client.cached_prefix(Bytes::from(format!("{}/", registration.prefix))).await {
        Ok(records) => records,
        Err(error) => return error,
    };
    loop {
        let (pairs, _) = records.range(b"", None, usize::MAX);
        *proxies.0.write() = pairs.iter().filter_map(|kv| proxy_of(&kv.value)).collect();
        if let Err(error) = records.changed().await {
            return error;
        }
    }
}

/// Waits for a linearizable read: what is shown from then on is not older than that.
///
/// # Errors
/// If there can be no runtime.
pub(crate) fn recover_order(upstream: &Upstream, order: &Order) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    logging::info("waiting for linearized read from cluster to recover ordering", &[]);
    runtime.block_on(async {
        loop {
            let request = RangeRequest { key: "_".into(), keys_only: true, ..RangeRequest::default() };
            let asked = async {
                let client = upstream.client().map_err(|status| status.message.to_string())?;
                within(client.range(request)).await
            };
            match asked.await {
                Ok(answer) => return order.shows(&answer.encode_to_vec().into()),
                Err(why) => logging::warn("ordering recovery failed, retrying in 1s", &[("error", (&why).into())]),
            }
            tokio::time::sleep(RETRY).await;
        }
    });
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_those_of_etcd() {
        let text = record("10.0.0.1:23790", "a \"host\"");
        let read: Json = serde_json::from_str(&text).expect("JSON");
        assert_eq!(read["Metadata"], json!("{\"name\":\"a \\\"host\\\"\"}"));
        let proxy = proxy_of(text.as_bytes()).expect("a proxy");
        assert_eq!((&*proxy.name, proxy.client_ur_ls), ("a \"host\"", vec!["10.0.0.1:23790".to_string()]));
        let other = proxy_of(br#"{"Op":0,"Addr":"b:1","Metadata":null}"#).expect("a proxy");
        assert_eq!((&*other.name, other.client_ur_ls), ("", vec!["b:1".to_string()]));
        assert!(proxy_of(b"no record").is_none() && proxy_of(b"{}").is_none());
    }
}
