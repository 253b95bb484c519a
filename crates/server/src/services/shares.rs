//! Each connection's share of the watches that the member may have.

use contain::lock;
use rpc::Address;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, Weak};
use store::watch::Allowance;

/// The allowances of watches, of the member and of the connections that have watch streams.
pub(crate) struct Shares {
    member: Arc<Allowance>,
    connection_max: u64,
    /// Address and port of the client tell connections apart.
    connections: Mutex<HashMap<SocketAddr, Weak<Allowance>>>,
}

impl Shares {
    pub(crate) fn new(member_max: u64, connection_max: u64) -> Shares {
        Shares { member: Allowance::of_member(member_max), connection_max, connections: Mutex::default() }
    }

    /// Watches of all clients.
    pub(crate) fn taken(&self) -> u64 {
        self.member.taken()
    }

    /// The share towards which the watches of a stream count. Connections through a Unix socket have no address of
    /// their own, so each of their streams has a share of its own.
    pub(super) fn of(&self, client: Address) -> Arc<Allowance> {
        let fresh = || Allowance::of_connection(&self.member, self.connection_max);
        let Address::Tcp(address) = client else { return fresh() };
        let mut connections = lock(&self.connections);
        if let Some(share) = connections.get(&address).and_then(Weak::upgrade) {
            return share;
        }
        // Connections without streams are dropped before the table grows, so it has at most twice as many places as
        // there are others.
        if connections.len() == connections.capacity() {
            connections.retain(|_, share| share.strong_count() > 0);
        }
        let share = fresh();
        connections.insert(address, Arc::downgrade(&share));
        share
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    #[test]
    fn streams_of_a_connection_share() {
        let shares = Shares::new(100, 10);
        let client = |port| Address::Tcp(SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
        let one = shares.of(client(1));
        assert!(Arc::ptr_eq(&one, &shares.of(client(1))));
        assert!(!Arc::ptr_eq(&one, &shares.of(client(2))));
        assert!(!Arc::ptr_eq(&shares.of(Address::Unix), &shares.of(Address::Unix)));
        for port in 3..10_000 {
            shares.of(client(port));
        }
        assert!(lock(&shares.connections).len() < 100, "connections that are gone are forgotten");
        assert!(Arc::ptr_eq(&one, &shares.of(client(1))));
    }
}
