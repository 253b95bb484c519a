//! Pings: how often a client may send them, and the server's own to find dead peers.

use std::time::{Duration, Instant};

use crate::Options;

/// Pings that break the rule before the client is disconnected.
const STRIKES_MAX: u32 = 2;
/// How far apart pings must be while no stream is open and the options do not allow them then.
const IDLE_PING_INTERVAL: Duration = Duration::from_secs(2 * 3600);
/// A whole PING frame.
const PONG_BYTES: u64 = 17;
/// Judges the pings of one client, by the rule that gRPC servers share: too early a ping is a strike, and sending anything to the
/// client wipes the strikes out.
#[derive(Debug)]
pub(crate) struct PingRule {
    interval_min: Duration,
    without_stream: bool,
    last: Option<Instant>,
    strikes: u32,
    /// Something was sent since the last ping.
    sent: bool,
    /// Bytes of answers to pings that may not have been written yet.
    pongs_bytes: u64,
}

impl PingRule {
    pub(crate) fn new(options: &Options) -> PingRule {
        PingRule {
            interval_min: options.ping_interval_min,
            without_stream: options.ping_without_stream,
            last: None,
            strikes: 0,
            sent: false,
            pongs_bytes: 0,
        }
    }

    /// A ping has come. False if it was one too many.
    pub(crate) fn allows_ping(&mut self, now: Instant, has_streams: bool) -> bool {
        self.pongs_bytes = self.pongs_bytes.saturating_add(PONG_BYTES);
        let last = self.last.replace(now);
        if std::mem::take(&mut self.sent) {
            self.strikes = 0;
            return true;
        }
        let interval = if has_streams || self.without_stream { self.interval_min } else { IDLE_PING_INTERVAL };
        if last.is_some_and(|last| now.duration_since(last) < interval) {
            self.strikes = self.strikes.saturating_add(1);
        }
        self.strikes <= STRIKES_MAX
    }

    /// Notes bytes that were written after the pings that have come. Answers to pings aside, that is something sent. It has to be told
    /// by what was written, not by what was queued: a reply queued before a ping and written after it is one more occasion to ping.
    pub(crate) fn wrote(&mut self, bytes: u64) {
        let unwritten = self.pongs_bytes.checked_sub(bytes);
        self.sent |= unwritten.is_none();
        self.pongs_bytes = unwritten.unwrap_or(0);
    }
}

/// What to do about a silent peer.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Pulse {
    Wait,
    Ping,
    Dead,
}

/// Decides when a peer has been silent for too long.
#[derive(Debug)]
pub(crate) struct PeerPulse {
    interval: Duration,
    timeout: Duration,
    heard: Instant,
    pinged: Option<Instant>,
}

impl PeerPulse {
    pub(crate) fn new(options: &Options, now: Instant) -> PeerPulse {
        PeerPulse::of(options.keepalive_interval, options.keepalive_timeout, now)
    }

    /// After `interval` of silence there is a ping, whose answer may take as long as `timeout`.
    pub(crate) fn of(interval: Duration, timeout: Duration, now: Instant) -> PeerPulse {
        PeerPulse { interval, timeout, heard: now, pinged: None }
    }

    /// Anything was read.
    pub(crate) fn heard(&mut self, now: Instant) {
        self.heard = now;
        self.pinged = None;
    }

    /// To be called now and then.
    pub(crate) fn check(&mut self, now: Instant) -> Pulse {
        match self.pinged {
            Some(pinged) if now.duration_since(pinged) >= self.timeout => Pulse::Dead,
            None if now.duration_since(self.heard) >= self.interval => {
                self.pinged = Some(now);
                Pulse::Ping
            }
            _ => Pulse::Wait,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule() -> (PingRule, Instant) {
        let now = Instant::now();
        (PingRule::new(&Options::default()), now)
    }

    #[test]
    fn three_early_pings_are_too_many() {
        let (mut rule, now) = rule();
        let allowed: Vec<bool> =
            (0..4).map(|second| rule.allows_ping(now + Duration::from_secs(second), true)).collect();
        assert_eq!(allowed, [true, true, true, false]);
    }

    #[test]
    fn slow_pings_and_pings_after_replies_are_fine() {
        let (mut rule, now) = rule();
        assert!((0..100).all(|count| rule.allows_ping(now + Duration::from_secs(5 * count), true)));
        let (mut rule, now) = self::rule();
        for _ in 0..100 {
            assert!(rule.allows_ping(now, true));
            rule.wrote(PONG_BYTES + 20);
        }
        let (mut rule, now) = self::rule();
        let allowed = (0..10).take_while(|_| {
            rule.wrote(PONG_BYTES);
            rule.allows_ping(now, true)
        });
        // The first of these bytes cannot be an answer.
        assert_eq!(allowed.count(), 3);
    }

    #[test]
    fn an_interval_may_be_longer_than_the_clock_can_say() {
        let now = Instant::now();
        let mut rule = PingRule::new(&Options { ping_interval_min: Duration::MAX, ..Options::default() });
        assert_eq!([0; 4].map(|_| rule.allows_ping(now, true)), [true, true, true, false]);
    }

    #[test]
    fn without_streams_two_hours_must_pass() {
        let (mut rule, now) = rule();
        let allowed: Vec<bool> =
            (0..4).map(|hour| rule.allows_ping(now + Duration::from_secs(3600 * hour), false)).collect();
        assert_eq!(allowed, [true, true, true, false]);
    }

    #[test]
    fn a_silent_peer_is_pinged_then_given_up() {
        let now = Instant::now();
        let second = Duration::from_secs(1);
        let options = Options { keepalive_interval: 10 * second, keepalive_timeout: 5 * second, ..Options::default() };
        let mut pulse = PeerPulse::new(&options, now);
        assert_eq!(pulse.check(now + 9 * second), Pulse::Wait);
        assert_eq!(pulse.check(now + 10 * second), Pulse::Ping);
        assert_eq!(pulse.check(now + 14 * second), Pulse::Wait);
        pulse.heard(now + 14 * second);
        assert_eq!(pulse.check(now + 16 * second), Pulse::Wait);
        assert_eq!(pulse.check(now + 24 * second), Pulse::Ping);
        assert_eq!(pulse.check(now + 29 * second), Pulse::Dead);
    }
}
