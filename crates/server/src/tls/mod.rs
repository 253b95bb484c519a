//! TLS of clients, metrics and peers: reading the files, admitting connections, and logging the refused ones.
//!
//! A [`Keeper`] holds the `material` of one kind of connection (certificate, key, authorities, revoked certificates) and reads it again
//! when a file has changed: it checks at every handshake. `gate` admits clients. The crate `trust` decides about certificates.

#![deny(clippy::indexing_slicing, clippy::string_slice, clippy::arithmetic_side_effects, clippy::expect_used)]
#![cfg_attr(
    test,
    allow(clippy::indexing_slicing, clippy::string_slice, clippy::arithmetic_side_effects, clippy::expect_used)
)]

mod gate;
mod keeper;
mod material;
mod peers;
mod suites;

pub(crate) use gate::ClientGate;
pub(crate) use keeper::Keeper;

use crate::config::Config;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use telemetry::metrics::Page;

/// The kind of clients that connect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// Clients.
    Client,
    /// Other members.
    Peer,
    /// This member itself, as a client of the cluster in which the founding members find each other.
    Discovery,
}

impl Role {
    /// What the flags for it begin with.
    fn prefix(self) -> &'static str {
        match self {
            Role::Client => "",
            Role::Peer => "peer-",
            Role::Discovery => "discovery-",
        }
    }

    /// The flag that names a file.
    fn flag(self, name: &str) -> String {
        let name = match (self, name) {
            (Role::Discovery, "client-cert-file") => "cert",
            (Role::Discovery, "client-key-file") => "key",
            (Role::Discovery, "trusted-ca-file") => "cacert",
            (_, name) => name,
        };
        format!("{}{name}", self.prefix())
    }

    /// What metrics and logs call it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Role::Client => "client",
            Role::Peer => "peer",
            Role::Discovery => "discovery",
        }
    }
}

/// How this member connects to the cluster in which the founding members find each other.
pub(crate) fn discovery(options: &crate::config::Tls) -> Result<Arc<rustls::ClientConfig>, String> {
    let mut config = (*Keeper::start(Role::Discovery, options.clone())?.client()?).clone();
    config.alpn_protocols = vec![b"h2".to_vec()];
    Ok(Arc::new(config))
}

/// Both keepers of a member.
#[derive(Clone, Debug)]
pub(crate) struct Tls {
    /// For clients and metrics.
    pub(crate) client: Arc<Keeper>,
    /// For peers.
    pub(crate) peer: Arc<Keeper>,
}

impl Tls {
    /// Reads what the configuration names, and makes the certificates that it asks for. The error names flag and file.
    pub(crate) fn start(config: &Config) -> Result<Tls, String> {
        let hosts = |urls: &[String]| urls.iter().filter_map(|url| trust::host_of_url(url)).collect::<Vec<String>>();
        let listeners =
            |list: &[crate::config::Listen]| list.iter().map(|listen| listen.url.clone()).collect::<Vec<_>>();
        let client = [listeners(&config.listen_client), listeners(&config.listen_metrics)].concat();
        let peer = [listeners(&config.listen_peer), config.advertise_peer_urls.clone()].concat();
        let keep = |role: Role, options: &crate::config::Tls, urls: &[String]| {
            let mut options = options.clone();
            if options.auto {
                let dir = config.data_dir.join("fixtures").join(role.name());
                let files = trust::self_signed(&dir, &hosts(urls), options.self_signed_validity_years)
                    .map_err(|why| format!("--{}auto-tls: {why}", role.prefix()))?;
                (options.cert_file, options.key_file) = (Some(files.cert), Some(files.key));
            }
            Keeper::start(role, options).map(Arc::new)
        };
        Ok(Tls {
            client: keep(Role::Client, &config.tls_client, &client)?,
            peer: keep(Role::Peer, &config.tls_peer, &peer)?,
        })
    }

    /// Reads all files again. The log says what came of it.
    pub(crate) fn reread(&self) {
        self.client.reread();
        self.peer.reread();
    }

    /// Appends the metrics about certificates, their files, and handshakes.
    pub(crate) fn render(&self, stats: Option<&rpc::Stats>, page: &mut Page) {
        keeper::render(&[&self.client, &self.peer], page);
        let Some(counts) = stats.map(rpc::Stats::handshakes) else { return };
        let name = "cairn_tls_handshakes_total";
        page.family(name, "counter", "TLS handshakes of clients, by how they ended.");
        for (outcome, count) in [
            ("done", &counts.done),
            ("failed", &counts.failed),
            ("timed_out", &counts.timed_out),
            ("given_up", &counts.given_up),
        ] {
            page.labelled(name, &[("outcome", outcome)], count.load(Ordering::Relaxed));
        }
    }
}
