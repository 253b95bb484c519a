//! Discovery by another cluster: founding members write their URLs there, below a common token, until the announced number is reached.
//! The keys are etcd's, so founders of both kinds find each other.
//!
//! ```text
//! /_etcd/registry/<token>/_config/size     how many members there are to be; written by whoever plans the cluster
//! /_etcd/registry/<token>/members/<id>     name=URL[,name=URL...] of one member, its id in hexadecimal
//! ```

use super::bootstrap::Founders;
use super::grpc::{CallError, Channel, Endpoint};
use crate::config::{self, Discovery};
use api::etcdserverpb::{
    AuthenticateRequest, AuthenticateResponse, PutRequest, PutResponse, RangeRequest, RangeResponse,
};
use std::time::Duration;
use telemetry::logging::{self, Value};

/// Time between two reads while members are missing.
const LOOK: Duration = Duration::from_millis(500);
/// The longest pause before a failed request is tried again.
const PAUSE_MAX: Duration = Duration::from_secs(16);

/// Why the other cluster does not name the members. If it cannot be reached, the member waits instead.
#[derive(Debug, thiserror::Error)]
pub enum DiscoveryError {
    /// The discovery cluster has no key with the size.
    #[error("size key not found: put the number of members at `{0}` first")]
    SizeNotFound(String),
    /// The size is not a positive number.
    #[error("size key is bad: `{0}` must be a number above 0")]
    BadSize(String),
    /// Enough members registered before this one.
    #[error("cluster is full: {0} other members have registered under this token")]
    Full(usize),
    /// A registered value does not name members.
    #[error("invalid peer URL in `{0}`")]
    InvalidUrl(String),
    /// The other cluster does not let this member in.
    #[error("refused: {0}")]
    Refused(CallError),
    /// Its certificates cannot be used.
    #[error("{0}")]
    Tls(String),
    /// No thread or socket to ask with.
    #[error("{0}")]
    Io(#[from] std::io::Error),
}

/// Registers this member and waits until all founders have registered. Returns the name and URLs of each.
pub(super) fn join(discovery: &Discovery, member_id: u64, own: &str) -> Result<Founders, DiscoveryError> {
    let endpoints = Endpoint::all(&discovery.endpoints, &discovery.tls).map_err(DiscoveryError::Tls)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut registry = Registry { discovery, endpoints, channel: None, next: 0, pause: Duration::from_secs(1) };
        registry.join(member_id, own).await
    })
}

struct Registry<'a> {
    discovery: &'a Discovery,
    endpoints: Vec<Endpoint>,
    channel: Option<Channel>,
    /// The endpoint to be tried next.
    next: usize,
    pause: Duration,
}

/// One registered member.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Entry {
    key: String,
    urls: String,
    created: i64,
}

impl Registry<'_> {
    async fn join(&mut self, member_id: u64, own: &str) -> Result<Founders, DiscoveryError> {
        let key = format!("{}/members/{member_id:x}", self.prefix());
        let size = self.size().await?;
        check_place(&self.members().await?, &key, size)?;
        let put = PutRequest { key: key.clone().into(), value: own.to_string().into(), ..Default::default() };
        let _: PutResponse = self.call("/etcdserverpb.KV/Put", &put).await?;
        logging::info("registered with the discovery cluster", &[("key", (&key).into()), ("value", own.into())]);
        let mut told = 0;
        loop {
            let members = self.members().await?;
            check_place(&members, &key, size)?;
            if members.len() >= size {
                return founders(&members[..size]);
            }
            if members.len() != told {
                told = members.len();
                let fields = [("found-peers", told.into()), ("cluster-size", size.into())];
                logging::info("waiting for peers from the discovery cluster", &fields);
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    fn prefix(&self) -> String {
        format!("/_etcd/registry/{}", self.discovery.token)
    }

    async fn size(&mut self) -> Result<usize, DiscoveryError> {
        let key = format!("{}/_config/size", self.prefix());
        let request = RangeRequest { key: key.clone().into(), ..Default::default() };
        let answer: RangeResponse = self.call("/etcdserverpb.KV/Range", &request).await?;
        let Some(kv) = answer.kvs.first() else { return Err(DiscoveryError::SizeNotFound(key)) };
        let size = std::str::from_utf8(&kv.value).ok().and_then(|text| text.parse().ok());
        size.filter(|size| *size > 0).ok_or(DiscoveryError::BadSize(key))
    }

    /// All registered members, in the order of their registration.
    async fn members(&mut self) -> Result<Vec<Entry>, DiscoveryError> {
        let prefix = format!("{}/members", self.prefix());
        let mut end = prefix.clone().into_bytes();
        if let Some(last) = end.last_mut() {
            *last += 1;
        }
        let request = RangeRequest { key: prefix.into(), range_end: end.into(), ..Default::default() };
        let answer: RangeResponse = self.call("/etcdserverpb.KV/Range", &request).await?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_string();
        let entries = answer.kvs.iter().map(|kv| Entry {
            key: text(&kv.key),
            urls: text(&kv.value),
            created: kv.create_revision,
        });
        let mut entries: Vec<Entry> = entries.filter(|entry| entry.urls.contains('=')).collect();
        entries.sort_by_key(|entry| entry.created);
        Ok(entries)
    }

    /// Retries until there is an answer: the discovery cluster may come up later than this member.
    async fn call<A: api::Message + Default>(
        &mut self,
        method: &str,
        request: &impl api::Message,
    ) -> Result<A, DiscoveryError> {
        loop {
            let error = match self.try_call(method, request).await {
                Ok(answer) => {
                    self.pause = Duration::from_secs(1);
                    return Ok(answer);
                }
                // Codes that another endpoint would not change: wrong user, wrong password, not permitted.
                Err(error @ CallError::Status { code: 3 | 7 | 9 | 16, .. }) => {
                    return Err(DiscoveryError::Refused(error));
                }
                Err(error) => error,
            };
            self.channel = None;
            self.next += 1;
            logging::warn(
                "retry connecting to discovery service",
                &[("error", Value::Shown(&error)), ("backoff", Value::Shown(&format_args!("{:?}", self.pause)))],
            );
            tokio::time::sleep(self.pause).await;
            self.pause = (self.pause * 2).min(PAUSE_MAX);
        }
    }

    async fn try_call<A: api::Message + Default>(
        &mut self,
        method: &str,
        request: &impl api::Message,
    ) -> Result<A, CallError> {
        let patience = self.discovery.request_timeout;
        let channel = match &mut self.channel {
            Some(channel) => channel,
            none => {
                let endpoint = &self.endpoints[self.next % self.endpoints.len()];
                let mut channel = Channel::new(endpoint, self.discovery.dial_timeout);
                if let Some((name, password)) = &self.discovery.user {
                    let request = AuthenticateRequest { name: name.clone(), password: password.clone() };
                    let answer: AuthenticateResponse =
                        channel.unary("/etcdserverpb.Auth/Authenticate", &request, patience).await?;
                    channel.set_token(&answer.token);
                }
                none.insert(channel)
            }
        };
        channel.unary(method, request, patience).await
    }
}

/// Fails if all places were taken before this member registered.
fn check_place(members: &[Entry], own_key: &str, size: usize) -> Result<(), DiscoveryError> {
    match members.iter().position(|member| member.key == own_key) {
        Some(place) if place < size => Ok(()),
        None if members.len() < size => Ok(()),
        _ => Err(DiscoveryError::Full(size)),
    }
}

fn founders(members: &[Entry]) -> Result<Founders, DiscoveryError> {
    let mut founders = Founders::new();
    for member in members {
        let parsed = config::parse_members("discovery", &member.urls)
            .map_err(|_| DiscoveryError::InvalidUrl(format!("{}={}", member.key, member.urls)))?;
        founders.extend(parsed);
    }
    Ok(founders)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(key: &str, urls: &str, created: i64) -> Entry {
        Entry { key: key.into(), urls: urls.into(), created }
    }

    #[test]
    fn places_go_to_the_first() {
        let members = [entry("a", "a=http://x:1", 5), entry("b", "b=http://y:1", 6)];
        assert!(check_place(&members, "c", 3).is_ok());
        assert!(matches!(check_place(&members, "c", 2), Err(DiscoveryError::Full(2))));
        assert!(check_place(&members, "b", 2).is_ok());
        assert!(matches!(check_place(&members, "b", 1), Err(DiscoveryError::Full(1))));
        assert!(check_place(&[], "a", 1).is_ok());
    }

    #[test]
    fn founders_from_entries() {
        let found = founders(&[entry("a", "a=http://x:1,a=http://x:2", 5), entry("b", "b=http://y:1", 6)]);
        let found = found.unwrap_or_default();
        assert_eq!((found.len(), found[0].1.len()), (2, 2));
        assert!(matches!(founders(&[entry("a", "a=nowhere", 5)]), Err(DiscoveryError::InvalidUrl(_))));
    }
}
