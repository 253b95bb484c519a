//! Clients with the same identity, and their stream to a member.

use api::etcdserverpb::{LeaseKeepAliveRequest, LeaseKeepAliveResponse};
use api::{Code, Error, Message};
use bytes::Bytes;
use rpc::Status;
use rpc::client::{StreamingCall, Taken};
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc::UnboundedReceiver;

use super::client::Mailbox;
use super::{ClientId, Command, Name, Shared};
use crate::upstream::{Refusals, Upstream};

const KEEP_ALIVE: &str = "/etcdserverpb.Lease/LeaseKeepAlive";
/// Requests that a member is asked before it has answered any.
const SENT_MAX: usize = 1_024;
/// Pauses between two attempts to get a stream: the first, and the longest.
const PAUSE_MIN: Duration = Duration::from_millis(20);
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// What the clients want, and what a member was asked. Does no I/O.
#[derive(Debug, Default)]
struct Sharing {
    clients: HashMap<ClientId, Client>,
    /// Clients with requests that were not sent, in turn.
    turns: VecDeque<ClientId>,
    /// Who waits for the answers about each lease, in the order of the requests.
    sent: HashMap<i64, VecDeque<ClientId>>,
    sent_count: usize,
}

#[derive(Debug)]
struct Client {
    mailbox: Arc<Mailbox>,
    waiting: VecDeque<i64>,
    /// Requests that were sent and not answered.
    sent: usize,
    is_half_closed: bool,
}

impl Sharing {
    fn obey(&mut self, command: Command) {
        match command {
            Command::Open(id, mailbox) => {
                let client = Client { mailbox, waiting: VecDeque::new(), sent: 0, is_half_closed: false };
                self.clients.insert(id, client);
            }
            Command::Ask(id, lease) => {
                let Some(client) = self.clients.get_mut(&id) else { return };
                if client.waiting.is_empty() {
                    self.turns.push_back(id);
                }
                client.waiting.push_back(lease);
            }
            Command::HalfClose(id) => {
                if let Some(client) = self.clients.get_mut(&id) {
                    client.is_half_closed = true;
                }
                self.end_if_done(id);
            }
            Command::Lost => self.refused(&Error::TooManyRequests.into()),
            // What was asked for it is not asked any more; answers that are under way find nobody.
            Command::Close(id) => {
                self.clients.remove(&id);
                if self.clients.is_empty() {
                    // The stream ends as well.
                    (self.turns, self.sent, self.sent_count) = Default::default();
                }
            }
        }
    }

    /// A client that has sent everything and got everything.
    fn end_if_done(&mut self, id: ClientId) {
        let is_done = |client: &&mut Client| client.is_half_closed && client.waiting.is_empty() && client.sent == 0;
        if self.clients.get_mut(&id).filter(is_done).is_some()
            && let Some(client) = self.clients.remove(&id)
        {
            client.mailbox.end(Status::OK);
        }
    }

    /// The next lease to ask for, of the client whose turn it is.
    fn next(&mut self) -> Option<i64> {
        while self.sent_count < SENT_MAX {
            let id = self.turns.pop_front()?;
            let Some(client) = self.clients.get_mut(&id) else { continue };
            let Some(lease) = client.waiting.pop_front() else { continue };
            if !client.waiting.is_empty() {
                self.turns.push_back(id);
            }
            client.sent = client.sent.saturating_add(1);
            self.sent.entry(lease).or_default().push_back(id);
            self.sent_count = self.sent_count.saturating_add(1);
            return Some(lease);
        }
        None
    }

    /// The member has answered about a lease.
    fn answered(&mut self, lease: i64, answer: Bytes) {
        let Some(waiting) = self.sent.get_mut(&lease) else { return };
        let Some(id) = waiting.pop_front() else { return };
        if waiting.is_empty() {
            self.sent.remove(&lease);
        }
        self.sent_count = self.sent_count.saturating_sub(1);
        let Some(client) = self.clients.get_mut(&id) else { return };
        client.sent = client.sent.saturating_sub(1);
        client.mailbox.push(answer);
        self.end_if_done(id);
    }

    /// The stream is lost: what was not answered is asked again, on the next one, before everything else of its client.
    fn lost(&mut self) {
        self.sent_count = 0;
        let mut again = BTreeSet::new();
        for (lease, waiting) in std::mem::take(&mut self.sent) {
            for id in waiting {
                let Some(client) = self.clients.get_mut(&id) else { continue };
                client.sent = 0;
                client.waiting.push_front(lease);
                again.insert(id);
            }
        }
        let turns: BTreeSet<ClientId> = self.turns.iter().copied().collect();
        self.turns.extend(again.into_iter().filter(|id| !turns.contains(id)));
    }

    /// Members refuse these clients.
    fn refused(&mut self, status: &Status) {
        for (_, client) in self.clients.drain() {
            client.mailbox.end(Status::new(status.code, status.message.clone()));
        }
        (self.turns, self.sent, self.sent_count) = Default::default();
    }

    /// Whether a member has something to do.
    fn is_idle(&self) -> bool {
        self.sent_count == 0 && self.turns.is_empty()
    }
}

/// Serves the clients of one identity until there are none.
pub(super) async fn keep_circle(
    upstream: Arc<Upstream>,
    name: Name,
    mut commands: UnboundedReceiver<Command>,
    shared: Arc<Shared>,
) {
    let mut sharing = Sharing::default();
    let (mut pause, mut refusals) = (PAUSE_MIN, Refusals::default());
    loop {
        // Without requests no stream is needed.
        while sharing.is_idle() {
            let command = match sharing.clients.is_empty() {
                true => shared.end(&name, &mut commands),
                false => commands.recv().await,
            };
            match command {
                Some(command) => sharing.obey(command),
                None => return,
            }
        }
        let opened = async { upstream.client()?.forward_stream(KEEP_ALIVE, name.identity.metadata(), None).await };
        let opened = meanwhile(&mut sharing, &mut commands, opened).await;
        let ended = match opened {
            Ok(call) => {
                let (ended, was_used) = converse(call, &mut sharing, &mut commands, || shared.know(&name)).await;
                if was_used {
                    (pause, refusals) = (PAUSE_MIN, Refusals::default());
                }
                ended
            }
            Err(status) => status,
        };
        sharing.lost();
        let needs_leader =
            ended.message == Error::NoLeader.message() && name.identity.metadata().get("hasleader").is_some();
        let is_refused = needs_leader || !client::is_passing(&ended);
        if is_refused && refusals.are_final(&ended, upstream.members()) {
            refusals = Refusals::default();
            sharing.refused(&ended);
        }
        meanwhile(&mut sharing, &mut commands, tokio::time::sleep(pause)).await;
        pause = pause.saturating_mul(2).min(PAUSE_MAX);
    }
}

/// Waits for something, and takes in what clients say.
async fn meanwhile<T>(
    sharing: &mut Sharing,
    commands: &mut UnboundedReceiver<Command>,
    something: impl Future<Output = T>,
) -> T {
    let mut something = std::pin::pin!(something);
    loop {
        tokio::select! {
            done = &mut something => return done,
            Some(command) = commands.recv() => sharing.obey(command),
        }
    }
}

/// Asks a member until the stream ends, or no client is left: how it did, and whether anything came.
async fn converse(
    mut call: StreamingCall,
    sharing: &mut Sharing,
    commands: &mut UnboundedReceiver<Command>,
    know: impl Fn(),
) -> (Status, bool) {
    let mut taken: Option<Taken> = None;
    let mut was_used = false;
    loop {
        if sharing.clients.is_empty() {
            return (Status::OK, was_used);
        }
        if taken.is_none() {
            let request = sharing.next().map(|id| LeaseKeepAliveRequest { id }.encode_to_vec().into());
            taken = request.map(|request| call.post(request));
        }
        let is_taken = async {
            match &mut taken {
                Some(taken) => taken.await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = is_taken => taken = None,
            Some(command) = commands.recv() => sharing.obey(command),
            next = call.next() => {
                let message = match next {
                    Ok(Some(message)) => message,
                    Ok(None) => return (Status::new(Code::Unavailable, "the member ended the stream"), was_used),
                    Err(status) => return (status, was_used),
                };
                if !std::mem::replace(&mut was_used, true) {
                    know();
                }
                match LeaseKeepAliveResponse::decode(message.clone()) {
                    Ok(answer) => sharing.answered(answer.id, message),
                    Err(_) => return (Status::new(Code::Internal, "the member sends something unreadable"), was_used),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(sharing: &mut Sharing, id: ClientId) -> Arc<Mailbox> {
        let mailbox = Arc::new(Mailbox::new(|| {}));
        sharing.obey(Command::Open(id, mailbox.clone()));
        mailbox
    }

    fn answer(sharing: &mut Sharing, lease: i64, text: &'static str) {
        sharing.answered(lease, Bytes::from_static(text.as_bytes()));
    }

    fn asked(sharing: &mut Sharing) -> Vec<i64> {
        std::iter::from_fn(|| sharing.next()).collect()
    }

    #[test]
    fn answers_go_to_those_who_asked() {
        let mut sharing = Sharing::default();
        let (one, two) = (open(&mut sharing, 1), open(&mut sharing, 2));
        for (client, lease) in [(1, 7), (1, 8), (2, 7), (1, 7), (2, 9)] {
            sharing.obey(Command::Ask(client, lease));
        }
        // In turn, and each of them.
        assert_eq!(asked(&mut sharing), [7, 7, 8, 9, 7]);
        for (lease, text) in [(7, "a"), (7, "b"), (8, "c"), (9, "d"), (7, "e"), (5, "nobody's")] {
            answer(&mut sharing, lease, text);
        }
        assert_eq!(one.take(), (vec!["a".into(), "c".into(), "e".into()], None));
        assert_eq!(two.take(), (vec!["b".into(), "d".into()], None));
        assert!(sharing.is_idle());
    }

    #[test]
    fn what_was_not_answered_is_asked_again_unless_its_client_has_gone() {
        let mut sharing = Sharing::default();
        let (one, two) = (open(&mut sharing, 1), open(&mut sharing, 2));
        for (client, lease) in [(1, 7), (2, 8), (1, 9)] {
            sharing.obey(Command::Ask(client, lease));
        }
        assert_eq!(asked(&mut sharing), [7, 8, 9]);
        answer(&mut sharing, 7, "a");
        sharing.obey(Command::Ask(1, 10));
        sharing.obey(Command::Close(2));
        sharing.lost();
        assert_eq!(asked(&mut sharing), [9, 10]);
        answer(&mut sharing, 9, "b");
        answer(&mut sharing, 10, "c");
        assert_eq!(one.take().0, ["a", "b", "c"]);
        assert_eq!(two.take(), (vec![], None));
        sharing.obey(Command::Ask(1, 11));
        sharing.obey(Command::Close(1));
        assert!(sharing.is_idle(), "nobody wants it any more");
    }

    #[test]
    fn streams_end_when_all_is_answered_or_with_what_members_say() {
        let mut sharing = Sharing::default();
        let (one, two) = (open(&mut sharing, 1), open(&mut sharing, 2));
        sharing.obey(Command::Ask(1, 7));
        sharing.obey(Command::HalfClose(1));
        assert_eq!(asked(&mut sharing), [7]);
        assert_eq!(one.take().1, None);
        answer(&mut sharing, 7, "a");
        assert_eq!(one.take(), (vec!["a".into()], Some(Status::OK)));
        sharing.refused(&Error::InvalidAuthToken.into());
        assert!(two.take().1.is_some_and(|status| status.message == Error::InvalidAuthToken.message()));
        assert!(sharing.clients.is_empty());
    }

    #[test]
    fn a_member_is_asked_for_so_much_at_a_time() {
        let mut sharing = Sharing::default();
        let _mailbox = open(&mut sharing, 1);
        (0..3_000).for_each(|lease| sharing.obey(Command::Ask(1, lease)));
        assert_eq!(asked(&mut sharing).len(), SENT_MAX);
        (0..10).for_each(|lease| answer(&mut sharing, lease, "a"));
        assert_eq!(asked(&mut sharing).len(), 10);
    }
}
