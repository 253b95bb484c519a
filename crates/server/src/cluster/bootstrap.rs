//! The ids of a member without data: as a founder of a new cluster, or as a member added to an existing one.

use super::addresses::{self, AddressError};
use super::{cluster_mismatch, discovery, remote, srv};
use crate::config::Config;
use peer::Connector;
use replica::Bootstrap;
use std::collections::BTreeSet;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use store::Member;
use telemetry::logging::{self, Value};

/// How long a founder that is up may take to answer for its members.
const ASK_FOUNDERS: Duration = Duration::from_secs(1);
/// Pause before founders that belong to another cluster are asked again.
const ASK_AGAIN: Duration = Duration::from_millis(500);
/// How long a member of the cluster to join may take to answer.
const ASK_CLUSTER: Duration = Duration::from_secs(10);

/// How long an observer without data waits for one of those that it is to follow.
const OBSERVED: Duration = Duration::from_secs(30);

/// Name and peer URLs of founding members.
pub(crate) type Founders = Vec<(String, Vec<String>)>;

/// How a member without data starts.
pub(crate) enum FirstStart {
    /// A founder: the first entries of the log.
    Found(Bootstrap),
    /// A member that was added to a running cluster, which sends it the log.
    Join(Joining),
    /// An observer, which is in no cluster's configuration.
    Observe(Observing),
}

/// The identity of a new observer.
pub(crate) struct Observing {
    /// The id that it has given itself.
    pub(crate) id: u64,
    /// The cluster's id.
    pub(crate) cluster_id: u64,
}

/// The identity of a member that was added to a cluster.
pub(crate) struct Joining {
    /// The id that the member got when it was added.
    pub(crate) member_id: u64,
    /// The cluster's id.
    pub(crate) cluster_id: u64,
    /// The other members, which send it the log.
    pub(crate) remotes: Vec<Member>,
}

/// Why a member without data cannot begin. No data was written.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)]
pub enum BootstrapError {
    #[error("couldn't find local name {0:?} in the initial cluster configuration")]
    NotAFounder(String),
    #[error("initial cluster {0} has duplicate url")]
    DuplicateUrl(String),
    #[error("two members of the initial cluster {0} have the same id {1:x}: each needs URLs of its own")]
    DuplicateId(String, u64),
    #[error("{flag} has {missing} but missing from {other}={text}")]
    Advertised { flag: &'static str, missing: String, other: &'static str, text: String },
    #[error("--initial-advertise-peer-urls and --initial-cluster do not name the same places: {0}")]
    Address(#[from] AddressError),
    #[error(
        "{0}. Nobody could reach this member: --initial-advertise-peer-urls must name a host that has an address (it was looked \
         up for {PATIENCE:?})", PATIENCE = addresses::PATIENCE
    )]
    OwnAddress(AddressError),
    #[error(
        "member {0:x} has already been bootstrapped: its cluster runs and knows it, but this data directory is empty. Remove \
         the member from the cluster and add it anew (`--initial-cluster-state existing`), or restore its data directory"
    )]
    AlreadyBootstrapped(u64),
    #[error(
        "cluster ID mismatch: `{url}` belongs to cluster {theirs:x}, but --initial-cluster and --initial-cluster-token give \
         cluster {ours:x}. Give every founding member the same two flags, and other URLs to another cluster"
    )]
    OtherCluster { url: String, theirs: u64, ours: u64 },
    #[error(
        "cannot fetch cluster info from peer urls: could not retrieve cluster information from the given URLs ({0}). Is a \
         member of the cluster running at one of them?"
    )]
    NoAnswer(String),
    #[error("error validating peerURLs {existing}: {reason}")]
    NoMatch { existing: String, reason: String },
    #[error("the cluster to join has {found} learners, more than --max-learners={max}")]
    TooManyLearners { found: usize, max: usize },
    #[error("incompatible with current running cluster: {0}")]
    Incompatible(String),
    #[error("discovery URL should not be set when joining existing initial cluster")]
    DiscoveryOfExisting,
    #[error("discovery: {0}")]
    Discovery(#[from] discovery::DiscoveryError),
    #[error("DNS discovery: {0}")]
    Srv(#[from] srv::SrvError),
}

/// Finds the identity of this member. Asks peers, name servers and the discovery cluster, and may wait for them.
pub(crate) fn begin(config: &Config, connector: &Connector) -> Result<FirstStart, BootstrapError> {
    if !config.follow.is_empty() {
        return observe(config, connector).map(FirstStart::Observe);
    }
    let founders = match &config.srv {
        Some(srv) => srv::founders(srv, &config.name, &config.advertise_peer_urls)?,
        None => config.initial_cluster.clone(),
    };
    if config.join_existing {
        join(config, connector, &founders).map(FirstStart::Join)
    } else {
        found(config, connector, founders)
    }
}

fn shown(founders: &Founders) -> String {
    let parts = founders.iter().flat_map(|(name, urls)| urls.iter().map(move |url| format!("{name}={url}")));
    parts.collect::<Vec<_>>().join(",")
}

fn own<'a>(config: &Config, founders: &'a Founders) -> Result<&'a [String], BootstrapError> {
    // As with etcd, an empty name is none, even if `--initial-cluster` stands for it.
    let own = founders.iter().find(|founder| founder.0 == config.name && !config.name.is_empty());
    own.map(|founder| founder.1.as_slice()).ok_or_else(|| BootstrapError::NotAFounder(config.name.clone()))
}

fn check_duplicates(founders: &Founders) -> Result<(), BootstrapError> {
    let mut seen = BTreeSet::new();
    if founders.iter().flat_map(|founder| &founder.1).all(|url| seen.insert(url)) {
        return Ok(());
    }
    Err(BootstrapError::DuplicateUrl(shown(founders)))
}

/// Checks that the founders form one cluster, and that this member's advertised URLs are those listed for its name.
fn check(config: &Config, founders: &Founders) -> Result<(), BootstrapError> {
    let own = own(config, founders)?;
    let deadline = Instant::now() + addresses::PATIENCE;
    if let Err(error) = addresses::same(&config.advertise_peer_urls, own, deadline) {
        let missing = |of: &[String], from: &[String]| of.iter().find(|url| !from.contains(url)).cloned();
        if let Some(url) = missing(own, &config.advertise_peer_urls) {
            return Err(BootstrapError::Advertised {
                flag: "--initial-cluster",
                missing: format!("{}={url}", config.name),
                other: "--initial-advertise-peer-urls",
                text: config.advertise_peer_urls.join(","),
            });
        }
        if let Some(url) = missing(&config.advertise_peer_urls, own) {
            return Err(BootstrapError::Advertised {
                flag: "--initial-advertise-peer-urls",
                missing: url,
                other: "--initial-cluster",
                text: shown(founders),
            });
        }
        return Err(error.into());
    }
    check_duplicates(founders)?;
    // Only this member's own hosts must resolve: the other members may come up, and appear in DNS, later.
    addresses::resolvable(&config.advertise_peer_urls, deadline).map_err(BootstrapError::OwnAddress)
}

fn found(config: &Config, connector: &Connector, mut founders: Founders) -> Result<FirstStart, BootstrapError> {
    check(config, &founders)?;
    let first = bootstrap(config, &founders)?;
    ask_founders(config, connector, &founders, &first)?;
    if let Some(discovery) = &config.discovery {
        founders = discovery::join(discovery, first.member_id, &shown(&founders))?;
        check_duplicates(&founders)?;
        return Ok(FirstStart::Found(bootstrap(config, &founders)?));
    }
    Ok(FirstStart::Found(first))
}

fn bootstrap(config: &Config, founders: &Founders) -> Result<Bootstrap, BootstrapError> {
    let mut ids = BTreeSet::new();
    for (_, urls) in founders {
        let id = replica::member_id(urls, &config.cluster_token, None);
        if !ids.insert(id) {
            return Err(BootstrapError::DuplicateId(shown(founders), id));
        }
    }
    replica::bootstrap(founders, &config.name, &config.cluster_token)
        .ok_or_else(|| BootstrapError::NotAFounder(config.name.clone()))
}

/// Asks the founders that are up whether this member ran before, and whether they belong to the same cluster. Waits a
/// while for members of another cluster to go: a new cluster may replace an old one at the same addresses, one member
/// after the other.
fn ask_founders(
    config: &Config,
    connector: &Connector,
    founders: &Founders,
    first: &Bootstrap,
) -> Result<(), BootstrapError> {
    let deadline = Instant::now() + cluster_mismatch::PATIENCE;
    let mut is_told = false;
    loop {
        let mut strange = Vec::new();
        for (_, urls) in founders.iter().filter(|founder| founder.0 != config.name) {
            let answer = urls.iter().find_map(|url| Some((url, remote::members(connector, url, ASK_FOUNDERS).ok()?)));
            let Some((url, cluster)) = answer else { continue };
            let ran = |member: &Member| member.id == first.member_id && !member.client_urls.is_empty();
            if cluster.id != first.cluster_id && config.discovery.is_none() {
                strange.push((url, cluster.id));
            } else if cluster.members.iter().any(ran) {
                return Err(BootstrapError::AlreadyBootstrapped(first.member_id));
            } else {
                return Ok(());
            }
        }
        let Some((url, theirs)) = strange.first().filter(|_| founders.len() - strange.len() <= founders.len() / 2)
        else {
            return Ok(());
        };
        let mismatch = BootstrapError::OtherCluster { url: (*url).clone(), theirs: *theirs, ours: first.cluster_id };
        if Instant::now() >= deadline {
            return Err(mismatch);
        }
        if !std::mem::replace(&mut is_told, true) {
            let fields = [("error", Value::Shown(&mismatch))];
            logging::warn("most founders belong to another cluster; waiting a moment for them to go", &fields);
        }
        std::thread::sleep(ASK_AGAIN);
    }
}

/// URLs of the other founders, in a fixed order.
fn others(name: &str, founders: &Founders) -> Vec<String> {
    let others = founders.iter().filter(|founder| founder.0 != name);
    let mut urls: Vec<String> = others.flat_map(|founder| founder.1.iter().cloned()).collect();
    urls.sort_unstable();
    urls
}

fn join(config: &Config, connector: &Connector, named: &Founders) -> Result<Joining, BootstrapError> {
    own(config, named)?;
    check_duplicates(named)?;
    if config.discovery.is_some() {
        return Err(BootstrapError::DiscoveryOfExisting);
    }
    let cluster = ask_cluster(connector, &others(&config.name, named), named.len())?;
    let member_id = match_members(config, named, &cluster.members)?;
    let learners = cluster.members.iter().filter(|member| member.is_learner).count();
    if learners > config.max_learners {
        return Err(BootstrapError::TooManyLearners { found: learners, max: config.max_learners });
    }
    let remotes: Vec<Member> = cluster.members.into_iter().filter(|member| member.id != member_id).collect();
    check_versions(connector, &remotes)?;
    logging::info(
        "joining a cluster",
        &[
            ("cluster-id", Value::Id(cluster.id)),
            ("local-member-id", Value::Id(member_id)),
            ("other-members", remotes.len().into()),
        ],
    );
    Ok(Joining { member_id, cluster_id: cluster.id, remotes })
}

/// Finds the cluster of what is to be followed; waits for it a while, since it may be starting too.
fn observe(config: &Config, connector: &Connector) -> Result<Observing, BootstrapError> {
    let deadline = Instant::now() + OBSERVED;
    let cluster = loop {
        match ask_cluster(connector, &config.follow, 1) {
            Err(error) if Instant::now() >= deadline => return Err(error),
            Err(_) => std::thread::sleep(ASK_AGAIN),
            Ok(cluster) => break cluster,
        }
    };
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    // Nobody gives observers their ids. A name and the time make one that no member has, whose ids come of its URLs.
    let salt = [config.name.clone(), format!("{:?}", config.data_dir), std::process::id().to_string()];
    let id = replica::member_id(&salt, "observer", Some(since_epoch.as_nanos() as i64));
    logging::info(
        "beginning to observe a cluster",
        &[
            ("cluster-id", Value::Id(cluster.id)),
            ("local-member-id", Value::Id(id)),
            ("members", cluster.members.len().into()),
        ],
    );
    Ok(Observing { id, cluster_id: cluster.id })
}

/// Asks the cluster who its members are. The first answer counts, unless it names fewer than are `expected`: then the member asked may
/// not have heard of the last one, and the next one of the same cluster is asked.
fn ask_cluster(connector: &Connector, urls: &[String], expected: usize) -> Result<remote::Cluster, BootstrapError> {
    let (mut reasons, mut behind) = (Vec::new(), None::<remote::Cluster>);
    for url in urls {
        match remote::members(connector, url, ASK_CLUSTER) {
            Ok(cluster) => {
                if behind.as_ref().is_some_and(|first| first.id != cluster.id) {
                    continue;
                }
                if cluster.members.len() >= expected {
                    return Ok(cluster);
                }
                behind.get_or_insert(cluster);
            }
            Err(error) => {
                let address = format!("{url}/members");
                let fields = [("address", (&address).into()), ("error", Value::Shown(&error))];
                logging::warn("failed to get cluster response", &fields);
                reasons.push(format!("{url}: {error}"));
            }
        }
    }
    behind.ok_or_else(|| BootstrapError::NoAnswer(reasons.join("; ")))
}

/// Checks that `named` has the URLs of every member of the cluster. Returns the id of this member in the cluster.
fn match_members(config: &Config, named: &Founders, existing: &[Member]) -> Result<u64, BootstrapError> {
    let list: Vec<String> =
        existing.iter().map(|member| format!("{{{:x} {} {:?}}}", member.id, member.name, member.peer_urls)).collect();
    let fail = |reason: String| BootstrapError::NoMatch { existing: list.join(" "), reason };
    if existing.len() != named.len() {
        return Err(fail(format!(
            "member count is unequal: the cluster has {} members, --initial-cluster names {}",
            existing.len(),
            named.len()
        )));
    }
    let deadline = Instant::now() + addresses::PATIENCE;
    let mut own_id = None;
    for member in existing {
        let mut last = String::new();
        let found = named.iter().find(|(_, urls)| match addresses::same(&member.peer_urls, urls, deadline) {
            Ok(()) => true,
            Err(error) => {
                last = error.to_string();
                false
            }
        });
        let Some((name, _)) = found else {
            let (id, urls) = (member.id, &member.peer_urls);
            return Err(fail(format!("PeerURLs: no match found for existing member ({id:x}, {urls:?}): {last}")));
        };
        if *name == config.name {
            own_id = Some(member.id);
        }
    }
    own_id.ok_or_else(|| fail(format!("none of them is this member ({:?})", config.name)))
}

/// At least one member must report a cluster version that this release supports, and no member may report another.
fn check_versions(connector: &Connector, remotes: &[Member]) -> Result<(), BootstrapError> {
    let mut seen = 0;
    let mut last = String::from("no member told its version");
    for member in remotes {
        let Some(versions) =
            member.peer_urls.iter().find_map(|url| match remote::versions(connector, url, ASK_CLUSTER) {
                Ok(versions) => Some(versions),
                Err(error) => {
                    last = format!("member {:x}: {error}", member.id);
                    None
                }
            })
        else {
            continue;
        };
        // A member whose cluster has not decided its version reports none.
        let Some(version) = super::versions::minor(&versions.cluster) else { continue };
        let (low, high) =
            (super::versions::minor(api::version::MIN_CLUSTER), super::versions::minor(api::version::ETCD));
        if low.is_some_and(|low| version < low) || high.is_some_and(|high| version > high) {
            return Err(BootstrapError::Incompatible(format!(
                "member {:x} runs cluster version {}, this release goes from {} to {}",
                member.id,
                versions.cluster,
                api::version::MIN_CLUSTER,
                api::version::CLUSTER
            )));
        }
        seen += 1;
    }
    if seen > 0 { Ok(()) } else { Err(BootstrapError::Incompatible(last)) }
}
