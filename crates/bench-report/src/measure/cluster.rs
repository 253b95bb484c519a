//! A cluster beside its loads: who is in it, and what is kept there.

use std::collections::BTreeMap;
use std::future::Future;
use std::time::Duration;

use api::etcdserverpb::{
    AlarmRequest, AlarmType, CompactionRequest, DefragmentRequest, DeleteRangeRequest, MemberListRequest, PutRequest,
    RangeRequest, StatusRequest, StatusResponse,
};
use bench::{BenchError, Cost, Meter, Place};
use client::{Client, Endpoint, Error, Options, prefix_end};

use super::flags::Access;
use super::load::{Kind, Load};
use super::metrics::{Look, look, used};
use super::task::{Task, measured, rate};
use crate::runfile::{Beside, Measured, Member, Side};

/// How long a call may take: it may have to wait for the end of a load.
const CALL_TIME_MAX: Duration = Duration::from_secs(60);
/// How long a member may take to report its status.
const STATUS_TIME_MAX: Duration = Duration::from_secs(5);
/// Keys that are deleted at a time, so that a deletion does not block the server's other work.
const DELETED_AT_ONCE: i64 = 20_000;
/// How often deleted keys may appear again.
const REPEATS_MAX: u32 = 10;

/// A cluster, and a connection to each of its endpoints.
pub(crate) struct Cluster {
    runtime: tokio::runtime::Runtime,
    client: Client,
    /// A client that does not wait for long.
    asking: Client,
    access: Access,
    endpoints: Vec<Endpoint>,
    /// The cluster's id.
    id: u64,
    /// The page of metrics of each member.
    pages: Vec<Place>,
    /// The smallest known quota.
    pub(crate) quota_bytes: Option<u64>,
}

impl Cluster {
    /// Connects to the cluster; every endpoint must answer.
    pub(crate) fn connect(access: &Access) -> Result<Cluster, BenchError> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| BenchError::Io("cannot start".into(), error))?;
        let options = Options {
            endpoints: access.endpoints.clone(),
            user: access.user.clone(),
            security: access.security.clone(),
            call_timeout: Some(CALL_TIME_MAX),
            ..Options::default()
        };
        let asking = Options { call_timeout: Some(STATUS_TIME_MAX), ..options.clone() };
        let make = |options| Client::new(options).map_err(|error| BenchError::Usage(error.to_string()));
        let (client, asking) = (make(options)?, make(asking)?);
        let endpoints = access.endpoints.clone();
        let mut cluster = Cluster {
            runtime,
            client,
            asking,
            access: access.clone(),
            endpoints,
            id: 0,
            pages: Vec::new(),
            quota_bytes: None,
        };
        cluster.endpoints = cluster.members()?;
        for endpoint in &cluster.endpoints {
            cluster.pages.push(access.page_place(endpoint)?);
        }
        let looks = cluster.runtime.block_on(look(&cluster.pages));
        cluster.quota_bytes =
            looks.iter().flatten().filter_map(|look| look.quota_bytes).filter(|quota| *quota > 0).min();
        cluster.log_in()?;
        Ok(cluster)
    }

    /// The endpoints, one for each member. Fails unless all belong to the same cluster.
    fn members(&mut self) -> Result<Vec<Endpoint>, BenchError> {
        let mut members: Vec<(u64, Endpoint)> = Vec::new();
        for (number, endpoint) in self.endpoints.iter().enumerate() {
            let header = self.status(endpoint)?.header.unwrap_or_default();
            if number == 0 {
                self.id = header.cluster_id;
            } else if header.cluster_id != self.id {
                let text = format!(
                    "{} is of cluster {:x}, and {endpoint} of {:x}: name members of one",
                    self.endpoints[0], self.id, header.cluster_id
                );
                return Err(BenchError::Server(text));
            }
            match members.iter().find(|(member, _)| *member == header.member_id) {
                Some((_, other)) => flags::say!("{endpoint} is the same member as {other}, and counts once."),
                None => members.push((header.member_id, endpoint.clone())),
            }
        }
        Ok(members.into_iter().map(|(_, endpoint)| endpoint).collect())
    }

    /// The endpoints, one for each member.
    pub(crate) fn endpoints(&self) -> &[Endpoint] {
        &self.endpoints
    }

    /// Whether `other` is the same cluster. The ID is not enough: it is made from names and addresses, which are often
    /// the same. `key` is written temporarily.
    pub(crate) fn is_same(&self, other: &Cluster, key: &[u8]) -> Result<bool, BenchError> {
        if self.id != other.id {
            return Ok(false);
        }
        let value = format!("{} {:?}", std::process::id(), std::time::Instant::now());
        let put = PutRequest { key: key.to_vec().into(), value: value.clone().into(), ..PutRequest::default() };
        self.wait("write a key", self.client.put(put))?;
        let read = RangeRequest { key: key.to_vec().into(), ..RangeRequest::default() };
        let found = other.wait("read a key", other.client.range(read));
        self.delete(key)?;
        Ok(found?.kvs.first().is_some_and(|kv| kv.value == value))
    }

    /// A token for a load, which cannot log in by itself. Tokens expire, so each load gets its own.
    fn log_in(&self) -> Result<Option<String>, BenchError> {
        let Some(user) = &self.access.user else { return Ok(None) };
        let load = Load { user: user.clone(), ..Load::new(Kind::Authenticate, Vec::new(), 0, 1) };
        let task = Task {
            load,
            places: vec![self.access.place(&self.endpoints[0])?],
            connections: 1,
            calls: 1,
            threads: 1,
            requests: Some(1),
            time: None,
            rate: None,
            token: None,
        };
        let (meter, _) = task.run()?;
        match (meter.tokens.first(), meter.examples.values().next()) {
            (Some(token), _) => Ok(Some(token.clone())),
            (None, why) => Err(BenchError::Server(format!("cannot log in: {}", why.map_or("no answer", |why| why)))),
        }
    }

    fn wait<T>(&self, what: &str, work: impl Future<Output = Result<T, Error>>) -> Result<T, BenchError> {
        self.runtime.block_on(work).map_err(|error| BenchError::Server(format!("cannot {what}: {error}")))
    }

    fn status(&self, endpoint: &Endpoint) -> Result<StatusResponse, BenchError> {
        self.wait(&format!("ask {endpoint} how it is"), self.asking.status(endpoint, StatusRequest::default()))
    }

    /// Checks that every endpoint still answers.
    pub(crate) fn answers(&self) -> Result<(), BenchError> {
        self.endpoints.iter().try_for_each(|endpoint| self.status(endpoint).map(|_| ()))
    }

    /// The description of the cluster for a run.
    pub(crate) fn describe(&self, name: &str) -> Result<Side, BenchError> {
        let status = self.status(&self.endpoints[0])?;
        let list = self.wait("list the members", self.client.member_list(MemberListRequest::default()))?;
        let looks = self.runtime.block_on(look(&self.pages));
        let looks: Vec<&Look> = looks.iter().flatten().collect();
        let members = list.members.into_iter().map(|member| Member {
            name: member.name,
            id: format!("{:x}", member.id),
            is_learner: member.is_learner,
            client_urls: member.client_ur_ls,
        });
        Ok(Side {
            name: if name.is_empty() { server_name(&looks).to_owned() } else { name.to_owned() },
            version: status.version,
            cluster: format!("{:x}", status.header.unwrap_or_default().cluster_id),
            endpoints: self.endpoints.iter().map(ToString::to_string).collect(),
            members: members.collect(),
            settings: settings(&looks, self.pages.len()),
        })
    }

    /// The places of all endpoints.
    pub(crate) fn places(&self) -> Result<Vec<Place>, BenchError> {
        self.endpoints.iter().map(|endpoint| self.access.place(endpoint)).collect()
    }

    /// The place of the leader. `None` if it is not one of the endpoints.
    pub(crate) fn leader(&self) -> Result<Option<Place>, BenchError> {
        for endpoint in &self.endpoints {
            let status = self.status(endpoint)?;
            if status.leader != 0 && status.header.unwrap_or_default().member_id == status.leader {
                return self.access.place(endpoint).map(Some);
            }
        }
        Ok(None)
    }

    /// The free part of the quota, and whether its alarm is raised.
    pub(crate) fn space(&self) -> Result<(Option<u64>, bool), BenchError> {
        let mut used = 0;
        for endpoint in &self.endpoints {
            used = used.max(self.status(endpoint)?.db_size.unsigned_abs());
        }
        let alarms = self.wait("ask for alarms", self.client.alarm(AlarmRequest::default()))?;
        let is_full = alarms.alarms.iter().any(|alarm| alarm.alarm == AlarmType::Nospace as i32);
        Ok((self.quota_bytes.map(|quota| quota.saturating_sub(used)), is_full))
    }

    /// How many keys begin with `prefix`, and how many there are altogether.
    pub(crate) fn keys(&self, prefix: &[u8]) -> Result<(u64, u64), BenchError> {
        let count = |key: &[u8], range_end: bytes::Bytes| {
            let request =
                RangeRequest { key: key.to_vec().into(), range_end, count_only: true, ..RangeRequest::default() };
            self.wait("count keys", self.client.range(request)).map(|answer| answer.count.unsigned_abs())
        };
        Ok((count(prefix, prefix_end(prefix))?, count(b"\0", bytes::Bytes::from_static(b"\0"))?))
    }

    /// Deletes all keys with `prefix`, a few at a time.
    pub(crate) fn delete(&self, prefix: &[u8]) -> Result<(), BenchError> {
        let (mut deleted, mut repeats) = (bytes::Bytes::new(), 0);
        loop {
            let request = RangeRequest {
                key: prefix.to_vec().into(),
                range_end: prefix_end(prefix),
                limit: DELETED_AT_ONCE,
                keys_only: true,
                ..RangeRequest::default()
            };
            let found = self.wait("list keys", self.client.range(request))?;
            let (Some(first), Some(last)) = (found.kvs.first(), found.kvs.last()) else { return Ok(()) };
            // The last puts of a load may still arrive, but not forever.
            repeats += u32::from(first.key <= deleted);
            if repeats > REPEATS_MAX {
                let text = format!("`{}` is deleted again and again, and still there", first.key.escape_ascii());
                return Err(BenchError::Server(text));
            }
            deleted = last.key.clone();
            let range_end = [&last.key[..], b"\0"].concat().into();
            let request = DeleteRangeRequest { key: first.key.clone(), range_end, prev_kv: false };
            self.wait("delete keys", self.client.delete_range(request))?;
        }
    }

    /// Compacts the store to free the space of deleted keys. This drops the history of all keys.
    pub(crate) fn compact(&self) -> Result<(), BenchError> {
        let request =
            RangeRequest { key: bytes::Bytes::from_static(b"\0"), count_only: true, ..RangeRequest::default() };
        let now = self.wait("ask for the revision", self.client.range(request))?;
        let revision = now.header.unwrap_or_default().revision;
        let request = CompactionRequest { revision, physical: true };
        match self.runtime.block_on(self.client.compact(request)) {
            Ok(_) => {}
            // Nothing was written since the last time.
            Err(error) if error.is(api::Error::Compacted) => {}
            Err(error) => return Err(BenchError::Server(format!("cannot compact: {error}"))),
        }
        for endpoint in &self.endpoints {
            let work = self.client.defragment(endpoint, DefragmentRequest::default());
            self.wait(&format!("defragment {endpoint}"), work)?;
        }
        Ok(())
    }

    /// Runs `task`, and `other` at the same time from beginning to end.
    pub(crate) fn measure(&self, task: &Task, other: Option<&Task>) -> Result<Measured, BenchError> {
        let token = self.log_in()?;
        let task = &Task { token: token.clone(), ..task.clone() };
        let other = other.map(|other| Task { token, ..other.clone() });
        let before = self.runtime.block_on(look(&self.pages));
        let (outcome, beside) = std::thread::scope(|scope| {
            let beside = other.as_ref().map(|other| scope.spawn(|| other.run()));
            let outcome = task.run();
            (outcome, beside.map(|beside| beside.join()))
        });
        let after = self.runtime.block_on(look(&self.pages));
        let (meter, cost) = outcome?;
        let used = used(&before, &after);
        let Some(beside) = beside else { return Ok(measured(&meter, &cost, &used, meter.succeeded)) };
        let panicked = |_| BenchError::Server("a thread has panicked".into());
        let (other, other_cost): (_, Cost) = beside.map_err(panicked)??;
        let all = meter.succeeded + other.succeeded;
        // One process generates both loads.
        let cost = Cost { own_cpu: cost.own_cpu.max(other_cost.own_cpu), ..cost };
        let own = measured(&other, &other_cost, &used, all);
        let mut result = measured(&meter, &cost, &used, all);
        // Only answers that came while both loads ran count: the last answers of one come when the other is over.
        let rate = |meter: &Meter, otherwise| task.time.map_or(otherwise, |time| rate(meter.in_time, time));
        result.rate = rate(&meter, result.rate);
        result.unsent += own.unsent;
        let beside = Beside {
            load: "put".into(),
            rate: rate(&other, own.rate),
            p99_us: own.latency_us.map(|latency| latency.p99),
            errors: own.errors_all(),
        };
        for (name, count) in own.errors {
            *result.errors.entry(format!("put: {name}")).or_default() += count;
        }
        for (name, text) in own.examples {
            result.examples.entry(format!("put: {name}")).or_insert(text);
        }
        Ok(Measured { beside: Some(beside), ..result })
    }
}

/// The server's name, as far as its metrics show it.
fn server_name(looks: &[&Look]) -> &'static str {
    match looks.first() {
        None => "server",
        Some(look) if look.go_version.as_ref().is_some_and(|version| version.starts_with("go")) => "etcd",
        Some(_) => "cairn",
    }
}

/// The part of the configuration that the metrics show.
fn settings(looks: &[&Look], pages: usize) -> BTreeMap<String, String> {
    let mut settings = BTreeMap::new();
    let mut put = |name: &str, value: Option<String>| value.map(|value| settings.insert(name.to_owned(), value));
    put("quota", looks.iter().find_map(|look| look.quota_bytes).map(|quota| crate::report_page::bytes(quota as f64)));
    put("open files", looks.iter().find_map(|look| look.files_max).map(crate::report_page::count));
    let go = |look: &&Look| look.go_version.clone().filter(|version| version.starts_with("go"));
    put("runtime", looks.iter().find_map(go));
    let sync = looks.iter().find_map(|look| look.sync_mean_us).map(crate::report_page::time_us);
    put("log sync, mean", sync.map(|mean| format!("{mean} before the run")));
    put("metrics", (looks.len() < pages).then(|| format!("of {} of {pages} members", looks.len())));
    settings
}
