//! The thread that follows: one source after the other, and what it sends into consensus.

use super::forward;
use super::link::{Link, Source};
use crate::node::Node;
use api::raftpb::{Message, MessageType};
use peer::{Follow, Unfollowed};
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use telemetry::logging::{self, Value};

/// Pause before the next source; it doubles up to the longest while none can be followed.
const RETRY: Duration = Duration::from_millis(100);
const RETRY_MAX: Duration = Duration::from_secs(2);
/// A source that is silent for twice the election timeout is given up, but not before this.
const SILENCE_MIN: Duration = Duration::from_secs(1);
/// How long a source may be behind this observer before it is given up, for the next or to be tried again.
const BEHIND_MAX: Duration = Duration::from_secs(5);
/// Election timeouts after which a source that knows no leader is given up, if there are others.
const LEADERLESS_TIMEOUTS: u32 = 3;
/// Bytes of entries that were taken and are not applied yet: nothing more is read from the source until there are fewer.
const UNAPPLIED_BYTES_MAX: usize = 16 << 20;
/// How often it is looked whether the observer stops, while entries are waited for.
const LOOK: Duration = Duration::from_millis(100);

/// Starts to follow.
pub(crate) fn start(node: &Arc<Node>, link: &Arc<Link>) -> io::Result<()> {
    let spawn = |name: &str, body: Box<dyn FnOnce() + Send>| std::thread::Builder::new().name(name.into()).spawn(body);
    let (own, to) = (node.clone(), link.clone());
    // They end by themselves once the observer stops; what they wait for may take a while.
    spawn("follow", Box::new(move || run(&own, &to)))?;
    let (own, to) = (node.clone(), link.clone());
    spawn("follow-reads", Box::new(move || forward::run_questions(&own, &to)))?;
    let (own, to) = (node.clone(), link.clone());
    spawn("follow-writes", Box::new(move || forward::run_proposals(&own, &to))).map(drop)
}

fn run(node: &Arc<Node>, link: &Arc<Link>) {
    let (mut next, mut pause) = (0_usize, RETRY);
    let silence = (2 * node.config.election_timeout).max(SILENCE_MIN);
    let name = (node.config.name.as_str(), node.config.advertise_client_urls.as_slice());
    while !node.stopping.load(Ordering::Relaxed) {
        let (Some(url), Some(peers)) = (link.urls.get(next % link.urls.len().max(1)), node.peers.get()) else { return };
        let mut taking = Taking::new(node, link, url);
        let why = peers.follow(url, name, silence, &mut taking);
        let was_joined = lose(node, link, peers);
        if node.stopping.load(Ordering::Relaxed) {
            return;
        }
        if was_joined {
            pause = RETRY;
        }
        if matches!(why, Unfollowed::Installed) {
            continue;
        }
        tell(node, link, url, &why, was_joined);
        next = (next + 1) % link.urls.len().max(1);
        sleep(node, pause);
        pause = if next == 0 { (2 * pause).min(RETRY_MAX) } else { pause };
    }
}

/// Nothing is followed any more: consensus knows no leader, and those that follow this observer look for another way.
fn lose(node: &Node, link: &Link, peers: &peer::Peers) -> bool {
    let was_joined = link.leave();
    if was_joined {
        node.take_followed(Message {
            r#type: Some(MessageType::MsgHeartbeat as i32),
            to: Some(node.member_id),
            from: Some(0),
            term: Some(node.status.term()),
            ..Message::default()
        });
        peers.end_followers();
    }
    was_joined
}

fn tell(node: &Node, link: &Link, url: &str, why: &Unfollowed, was_joined: bool) {
    let fields = [
        ("url", url.into()),
        ("error", Value::Shown(why)),
        ("last-index", node.status.applied().into()),
        ("local-member-id", Value::Id(node.member_id)),
    ];
    match why {
        Unfollowed::Differs(_) => {
            link.differing.fetch_add(1, Ordering::Relaxed);
            logging::error(
                "what this observer is to follow has another history: one of the two was set back to older data, or belongs to a restored \
                 cluster. It is not followed",
                &fields,
            );
        }
        Unfollowed::OtherCluster(_) => {
            logging::error("what this observer is to follow belongs to another cluster. It is not followed", &fields);
        }
        _ if was_joined => {
            link.lost.fetch_add(1, Ordering::Relaxed);
            logging::warn("lost what this observer follows", &fields);
        }
        _ => logging::warn("cannot follow the source", &fields),
    }
}

fn sleep(node: &Node, time: Duration) {
    let began = Instant::now();
    while began.elapsed() < time && !node.stopping.load(Ordering::Relaxed) {
        std::thread::sleep(LOOK.min(time.saturating_sub(began.elapsed())));
    }
}

/// What comes from one source.
struct Taking<'a> {
    node: &'a Arc<Node>,
    link: &'a Arc<Link>,
    url: &'a str,
    way: Vec<u64>,
    began: Instant,
    has_joined: bool,
    /// Since when it has known no leader.
    leaderless: Option<Instant>,
    /// Last index and bytes of messages that are not applied yet.
    unapplied: VecDeque<(u64, usize)>,
    unapplied_bytes: usize,
}

impl<'a> Taking<'a> {
    fn new(node: &'a Arc<Node>, link: &'a Arc<Link>, url: &'a str) -> Taking<'a> {
        Taking {
            node,
            link,
            url,
            way: Vec::new(),
            began: Instant::now(),
            has_joined: false,
            leaderless: None,
            unapplied: VecDeque::new(),
            unapplied_bytes: 0,
        }
    }

    /// The source has this observer's last entry: from now on it is believed.
    fn join(&mut self) {
        self.has_joined = true;
        let source = Source { url: self.url.to_string(), way: self.way.clone(), since: Instant::now() };
        logging::info(
            "following a source",
            &[
                ("url", self.url.into()),
                ("source-id", Value::Shown(&format_args!("{:x}", source.id()))),
                ("through", (self.way.len() as u64).into()),
                ("last-index", self.node.status.applied().into()),
            ],
        );
        self.link.joined(source);
    }

    fn wait_for_room(&mut self) -> Result<(), String> {
        let node = self.node;
        while self.unapplied_bytes > UNAPPLIED_BYTES_MAX {
            let applied = node.status.applied();
            while let Some((_, bytes)) = self.unapplied.pop_front_if(|(index, _)| *index <= applied) {
                self.unapplied_bytes = self.unapplied_bytes.saturating_sub(bytes);
            }
            let Some(&(index, _)) = self.unapplied.front() else { break };
            if self.unapplied_bytes > UNAPPLIED_BYTES_MAX {
                if node.stopping.load(Ordering::Relaxed) {
                    return Err("this observer stops".into());
                }
                self.check_refusal()?;
                node.followers.wait(LOOK, || node.status.applied() >= index);
            }
        }
        Ok(())
    }

    fn check_refusal(&self) -> Result<(), String> {
        self.link.take_refusal().map_or(Ok(()), Err)
    }

    /// Notes whether the source knows a leader. One that knows none for long may be cut off from the others.
    fn note_leader(&mut self, leader: u64) -> Result<(), String> {
        if leader != 0 {
            self.leaderless = None;
            return Ok(());
        }
        let since = *self.leaderless.get_or_insert_with(Instant::now);
        let patience = LEADERLESS_TIMEOUTS * self.node.config.election_timeout;
        if since.elapsed() > patience && self.link.urls.len() > 1 {
            return Err(format!("it has known no leader for {patience:?}"));
        }
        Ok(())
    }
}

impl Follow for Taking<'_> {
    fn last(&self) -> (u64, u64) {
        self.node.last_entry().unwrap_or_default()
    }

    fn tail(&self, last: u64) -> Vec<u64> {
        self.node.tail(last)
    }

    fn begin(&mut self, way: &[u64]) -> Result<(), String> {
        self.way = way.to_vec();
        self.began = Instant::now();
        self.link.take_refusal();
        Ok(())
    }

    fn take(&mut self, message: Message) -> Result<(), String> {
        self.check_refusal()?;
        if self.node.stopping.load(Ordering::Relaxed) {
            return Err("this observer stops".into());
        }
        match message.r#type() {
            MessageType::MsgApp => {
                if !self.has_joined {
                    self.join();
                }
                let last = message.entries.last().map(|entry| entry.index());
                self.link.theirs.fetch_max(message.commit(), Ordering::Relaxed);
                let bytes: usize = message.entries.iter().map(|entry| entry.data().len() + 64).sum();
                self.note_leader(message.from())?;
                self.node.take_followed(message);
                if let Some(last) = last {
                    self.unapplied.push_back((last, bytes));
                    self.unapplied_bytes += bytes;
                }
                self.wait_for_room()
            }
            MessageType::MsgHeartbeat if self.has_joined => {
                self.link.theirs.store(message.commit(), Ordering::Relaxed);
                self.note_leader(message.from())?;
                self.node.take_followed(message);
                Ok(())
            }
            // It is behind this observer: nothing that it says counts.
            MessageType::MsgHeartbeat if self.began.elapsed() < BEHIND_MAX => Ok(()),
            MessageType::MsgHeartbeat => Err(format!(
                "it is at entry {}, and this observer at entry {}",
                message.commit(),
                self.node.last_entry().unwrap_or_default().0
            )),
            other => Err(format!("it sent a message of type {}", other as i32)),
        }
    }
}
