//! Calls of clients that may have to wait, because they have taken more than their share (`--client-share`).

use super::methods::Rpc;
use super::reply::refuse;
use crate::auth::Caller;
use crate::client_share::{Client, ClientShares, Entry, Held, Turn, measured};
use crate::node::Node;
use crate::overload::Class;
use api::Error;
use budget::Claim;
use contain::lock;
use rpc::{Address, Call, Reply, Responder, StreamCall, StreamWaker};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex};

/// Whether calls of this method count and wait. Others keep clients alive, or keep the cluster: they never wait.
fn counts(rpc: Rpc) -> bool {
    matches!(rpc, Rpc::Range | Rpc::Put | Rpc::DeleteRange | Rpc::Txn)
}

/// Who is counted: the user, or the address where there are no users. None for calls that users are asked of and that have none: they
/// are refused, and nobody shall have to share with them.
fn client(node: &Node, address: Address, caller: impl FnOnce() -> Caller) -> Option<Client> {
    if node.store.auth().is_enabled() {
        let user = caller().user(node);
        return (!user.is_empty()).then(|| Client::User(user.into()));
    }
    Some(Client::Host(address.ip().map(network)))
}

/// The address; of IPv6 the network, since one client has all addresses of it.
fn network(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(_) => address,
        IpAddr::V6(address) => address
            .to_ipv4_mapped()
            .map_or_else(|| IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & (u128::MAX << 64))), IpAddr::V4),
    }
}

/// A unary call that waits.
struct Unary<F> {
    node: Arc<Node>,
    shares: Arc<ClientShares>,
    responder: Responder,
    request_bytes: usize,
    then: F,
    kept: Option<Claim>,
}

impl<F: FnOnce(Responder) + Send + 'static> Held for Unary<F> {
    fn is_gone(&self) -> bool {
        self.responder.is_canceled()
    }

    fn go_on(self: Box<Self>, turn: Turn) {
        let Unary { shares, responder, request_bytes, then, kept, .. } = *self;
        counted(shares, turn, request_bytes, responder).resume(move |responder| {
            drop(kept);
            then(responder);
        });
    }

    fn refuse(self: Box<Self>) {
        refuse(self.responder, self.node.refuse(Class::Share));
    }

    fn stop(self: Box<Self>) {
        refuse(self.responder, Error::Stopped);
    }
}

/// Has what the call took counted when it is answered.
fn counted(shares: Arc<ClientShares>, turn: Turn, request_bytes: usize, responder: Responder) -> Responder {
    responder.notify(move |answer| {
        let answer_bytes = answer.map_or(0, Reply::len);
        shares.settle(turn, request_bytes.saturating_add(answer_bytes));
    })
}

/// Calls `then` with the responder: at once, or on the connection's thread once the call's client is even.
pub(super) fn unary(
    node: &Arc<Node>,
    rpc: Rpc,
    call: Call,
    responder: Responder,
    then: impl FnOnce(Call, Responder) + Send + 'static,
) {
    let Some(shares) = node.client_shares.clone().filter(|_| counts(rpc)) else { return then(call, responder) };
    let Some(client) = client(node, call.peer.address, || Caller::of(node, &call)) else {
        return then(call, responder);
    };
    let request_bytes = call.message.len();
    let client = match shares.enter(client) {
        Entry::Now(turn) => return then(call, counted(shares, turn, request_bytes, responder)),
        Entry::Later(client) => client,
    };
    let kept_bytes = request_bytes.saturating_add(call.metadata.held_bytes());
    let kept = match node.budget.claim_request(kept_bytes, call.peer.address) {
        Ok(kept) => kept,
        Err(error) => return refuse(responder, error),
    };
    let then = move |responder| then(call, responder);
    let waiting = Unary { node: node.clone(), shares: shares.clone(), responder, request_bytes, then, kept };
    shares.wait(&client, Box::new(waiting));
}

/// The turns of a stream that reads in pieces: one for each.
pub(super) struct Turns {
    shares: Arc<ClientShares>,
    client: Client,
    next: Arc<Mutex<Next>>,
}

/// What a stream knows of its next turn.
enum Next {
    /// It has not asked for one.
    Unasked,
    Waits,
    Has(Turn),
    Refused(Error),
}

impl Turns {
    /// Those of a call; none if no client ever waits.
    pub(super) fn of(node: &Arc<Node>, call: &StreamCall) -> Option<Turns> {
        let shares = node.client_shares.clone()?;
        let client = client(node, call.peer.address, || Caller::of_stream(node, call))?;
        Some(Turns { shares, client, next: Arc::new(Mutex::new(Next::Unasked)) })
    }

    /// The next turn, if it is there; otherwise the stream is woken for it.
    pub(super) fn take(&self, node: &Arc<Node>, waker: &StreamWaker) -> Result<Option<Turn>, Error> {
        // Locked throughout: the turn that it waits for may come any moment.
        let mut next = lock(&self.next);
        match std::mem::replace(&mut *next, Next::Unasked) {
            Next::Has(turn) => return Ok(Some(turn)),
            Next::Refused(error) => return Err(error),
            Next::Waits => {
                *next = Next::Waits;
                return Ok(None);
            }
            Next::Unasked => {}
        }
        match self.shares.enter(self.client.clone()) {
            Entry::Now(turn) => Ok(Some(turn)),
            Entry::Later(client) => {
                *next = Next::Waits;
                drop(next);
                let waiting = Piece { node: node.clone(), waker: waker.clone(), next: self.next.clone() };
                self.shares.wait(&client, Box::new(waiting));
                Ok(None)
            }
        }
    }

    /// Makes a piece, and counts what that and sending it takes.
    pub(super) fn count<T>(&self, turn: Turn, make: impl FnOnce() -> T, len: impl FnOnce(&T) -> usize) -> T {
        let made = measured(make);
        self.shares.settle(turn, len(&made));
        made
    }
}

impl Drop for Turns {
    fn drop(&mut self) {
        if let Next::Has(turn) = std::mem::replace(&mut *lock(&self.next), Next::Unasked) {
            self.shares.cancel(turn);
        }
    }
}

/// A stream that waits for its next turn.
struct Piece {
    node: Arc<Node>,
    waker: StreamWaker,
    next: Arc<Mutex<Next>>,
}

impl Piece {
    fn tell(&self, next: Next) {
        *lock(&self.next) = next;
        self.waker.wake();
    }
}

impl Held for Piece {
    fn is_gone(&self) -> bool {
        self.waker.is_canceled()
    }

    fn go_on(self: Box<Self>, turn: Turn) {
        self.tell(Next::Has(turn));
    }

    fn refuse(self: Box<Self>) {
        let error = self.node.refuse(Class::Share);
        self.tell(Next::Refused(error));
    }

    fn stop(self: Box<Self>) {
        self.tell(Next::Refused(Error::Stopped));
    }
}

#[cfg(test)]
mod tests {
    use super::network;

    #[test]
    fn addresses_of_one_network_are_one_client() {
        for (address, counted) in [
            ("10.0.0.1", "10.0.0.1"),
            ("::ffff:10.0.0.1", "10.0.0.1"),
            ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::"),
            ("::1", "::"),
        ] {
            assert_eq!(network(address.parse().expect("an address")).to_string(), counted);
        }
    }
}
