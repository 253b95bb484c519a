//! The other end of a connection.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

/// The other end of a connection. HTTP requests carry it as an extension.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Where it is.
    pub address: Address,
    /// The common name of the certificate that it has proved to own, if that was asked for and is signed by a trusted authority.
    /// Empty if such a certificate has none.
    pub common_name: Option<Arc<str>>,
    /// That name where it does not say who calls, for records: calls by JSON identify themselves with a token.
    pub recorded_name: Option<Arc<str>>,
    /// The connection is encrypted.
    pub is_secure: bool,
}

impl Peer {
    /// A peer without an identity.
    pub fn unknown(address: Address) -> Peer {
        Peer { address, common_name: None, recorded_name: None, is_secure: false }
    }

    /// The same without an identity, but for records.
    pub fn unidentified(&self) -> Peer {
        let recorded_name = self.common_name.clone().or_else(|| self.recorded_name.clone());
        Peer { recorded_name, ..Peer::unknown(self.address) }
    }
}

/// The address of a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Address {
    /// Address and port.
    Tcp(SocketAddr),
    /// A socket of this machine: those that connect have no address.
    Unix,
}

impl Address {
    /// The address without its port; none on a Unix socket.
    pub fn ip(&self) -> Option<IpAddr> {
        match self {
            Address::Tcp(address) => Some(address.ip()),
            Address::Unix => None,
        }
    }
}

impl From<SocketAddr> for Address {
    fn from(address: SocketAddr) -> Address {
        Address::Tcp(address)
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Tcp(address) => address.fmt(f),
            // What Go calls the peer of a Unix socket, and with it what etcd's logs say.
            Address::Unix => f.write_str("@"),
        }
    }
}
