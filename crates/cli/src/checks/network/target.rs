//! The members that are measured.

use crate::command::Context;
use crate::failure::{Failure, Outcome, code};
use api::etcdserverpb::{Member, MemberListRequest};
use client::Endpoint;
use std::fmt;

/// A member, and where it is reached.
#[derive(Clone, Debug)]
pub(in crate::checks) struct Target {
    /// Its name, or nothing if only a URL was given.
    pub(in crate::checks) name: String,
    /// Where other members reach it, the one that is used first.
    pub(super) peers: Vec<Endpoint>,
    /// Where clients do; only if the cluster was asked.
    pub(super) clients: Vec<Endpoint>,
}

impl Target {
    pub(in crate::checks) fn shown_url(&self) -> &str {
        self.peers.first().or(self.clients.first()).map_or("", Endpoint::as_str)
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.name.is_empty() {
            f.write_str(self.shown_url())
        } else {
            write!(f, "{} ({})", self.name, self.shown_url())
        }
    }
}

/// Those of `--peers`, or the members of the cluster that `--endpoints` lead to.
pub(super) fn find(context: &Context) -> Outcome<Vec<Target>> {
    let peers = context.parsed.text("peers");
    if peers.is_empty() && !context.parsed.is_given("peers") {
        return of_cluster(context);
    }
    let named: Vec<&str> = peers.split(',').map(str::trim).filter(|url| !url.is_empty()).collect();
    if named.is_empty() {
        return Err(Failure::args("--peers names nobody"));
    }
    let target = |url: &str| Ok(Target { name: String::new(), peers: vec![read(url)?], clients: Vec::new() });
    named.into_iter().map(target).collect()
}

/// The members of the cluster.
pub(in crate::checks) fn of_cluster(context: &Context) -> Outcome<Vec<Target>> {
    let client = context.client()?;
    // Also without a leader: that is when it is needed most.
    let listed = context.call(client.member_list(MemberListRequest { linearizable: false }))?;
    listed.members.iter().map(of_member).collect()
}

fn of_member(member: &Member) -> Outcome<Target> {
    let name = if member.name.is_empty() { format!("{:x}", member.id) } else { member.name.clone() };
    Ok(Target { name, peers: all(&member.peer_ur_ls)?, clients: all(&member.client_ur_ls)? })
}

/// Those of `urls` that can be read; an error if none can.
fn all(urls: &[String]) -> Outcome<Vec<Endpoint>> {
    let read: Vec<Outcome<Endpoint>> = urls.iter().map(|url| read(url)).collect();
    if read.iter().any(Result::is_ok) { Ok(read.into_iter().flatten().collect()) } else { read.into_iter().collect() }
}

fn read(url: &str) -> Outcome<Endpoint> {
    url.parse().map_err(|error: client::EndpointError| Failure::new(code::INVALID_INPUT, error.to_string()))
}
