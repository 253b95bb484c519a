//! Which member the next call goes to.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use rpc::Status;
use rpc::client::Channel;

use crate::retry::Failure;
use crate::security::Guard;
use crate::{Endpoint, EndpointError, Options, OptionsError};

/// How long a member that could not be reached is passed over at first, and at most.
const ABSENCE_MIN: Duration = Duration::from_millis(100);
const ABSENCE_MAX: Duration = Duration::from_secs(5);

/// The members, in turn. One that cannot be reached is passed over for a while, unless all are.
pub(crate) struct Balancer {
    members: Vec<Arc<Member>>,
    next: AtomicUsize,
    started: Instant,
}

/// One endpoint and the connection to it.
pub(crate) struct Member {
    pub(crate) endpoint: Endpoint,
    pub(crate) channel: Channel,
    /// How that is encrypted.
    pub(crate) encryption: Option<rpc::client::Encryption>,
    /// When it is tried again, in milliseconds since the start; 0: it was reached last.
    away_until_ms: AtomicU64,
    failures: AtomicU64,
}

impl Balancer {
    pub(crate) fn new(options: &Options) -> Result<Balancer, OptionsError> {
        if options.endpoints.is_empty() {
            return Err(EndpointError::None.into());
        }
        let security = &options.security;
        let guard = match options.endpoints.iter().any(|endpoint| security.covers(endpoint)) {
            true => Some(Guard::new(security).map_err(OptionsError::Security)?),
            false => None,
        };
        let channel_options = rpc::client::Options {
            connect_timeout: options.connect_timeout,
            keepalive_interval: options.keepalive_interval,
            keepalive_timeout: options.keepalive_timeout,
            message_bytes_max: options.answer_bytes_max,
            ..Default::default()
        };
        let members = options.endpoints.iter().map(|endpoint| {
            let mut channel_options = channel_options.clone();
            if let Some(guard) = guard.as_ref().filter(|_| security.covers(endpoint)) {
                channel_options.tls = Some(guard.clone().encryption(endpoint).map_err(OptionsError::Security)?);
            }
            let encryption = channel_options.tls.clone();
            let channel = Channel::new(endpoint.address(), channel_options);
            let (away_until_ms, failures) = (AtomicU64::new(0), AtomicU64::new(0));
            Ok(Arc::new(Member { endpoint: endpoint.clone(), channel, encryption, away_until_ms, failures }))
        });
        let members = members.collect::<Result<_, OptionsError>>()?;
        Ok(Balancer { members, next: AtomicUsize::new(0), started: Instant::now() })
    }

    pub(crate) fn len(&self) -> usize {
        self.members.len()
    }

    pub(crate) fn members(&self) -> &[Arc<Member>] {
        &self.members
    }

    /// A member with a connection. What fails here has sent nothing.
    pub(crate) async fn pick(&self) -> Result<Arc<Member>, Failure> {
        let first = self.next.fetch_add(1, Ordering::Relaxed);
        let in_turn = (0..self.members.len()).map(|step| &self.members[first.wrapping_add(step) % self.members.len()]);
        let now_ms = self.now_ms();
        let present = in_turn.clone().find(|member| member.away_until_ms.load(Ordering::Relaxed) <= now_ms);
        // All are away: the one that is due next.
        let due_next = || in_turn.min_by_key(|member| member.away_until_ms.load(Ordering::Relaxed));
        let Some(member) = present.or_else(due_next) else { unreachable!("a balancer has members") };
        match member.channel.connect().await {
            Ok(()) => {
                member.failures.store(0, Ordering::Relaxed);
                member.away_until_ms.store(0, Ordering::Relaxed);
                Ok(member.clone())
            }
            Err(status) => Err(self.lose(member, status)),
        }
    }

    fn lose(&self, member: &Member, status: Status) -> Failure {
        let failures = member.failures.fetch_add(1, Ordering::Relaxed).min(10);
        let absence = (ABSENCE_MIN * (1 << failures)).min(ABSENCE_MAX);
        member.away_until_ms.store(self.now_ms() + absence.as_millis() as u64, Ordering::Relaxed);
        Failure { status, is_unsent: true }
    }

    fn now_ms(&self) -> u64 {
        self.started.elapsed().as_millis() as u64
    }
}
