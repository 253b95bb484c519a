//! The places for snapshots that clients are sent at the same time. A client that takes nothing loses its place to another client that
//! wants one, and after much longer in any case: what is being sent keeps the store's segments.

use api::limits;
use contain::lock;
use rpc::Address;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};
use std::task::Waker;
use std::time::{Duration, Instant};
use telemetry::logging::{self, Value};

/// Least patience with a client that takes nothing: what it takes is looked at once a second.
const PATIENCE_MIN: Duration = Duration::from_secs(3);
/// After so many times the patience a place is freed although nobody wants it.
const PATIENCES_MAX: u32 = 15;

/// [`limits::SNAPSHOTS_MAX`] places, for the snapshots `T`.
pub(crate) struct Places<T> {
    taken: Mutex<Vec<Arc<Place<T>>>>,
    patience: Duration,
    ended: AtomicU64,
}

/// One of the places.
pub(super) struct Place<T> {
    client: Address,
    waker: Waker,
    seat: Mutex<Seat<T>>,
}

/// A snapshot at its place.
pub(super) struct Seat<T> {
    /// What is being sent: nothing before it is planned, and after the end.
    pub(super) snapshot: Option<T>,
    standstill: Option<Standstill>,
    /// For how long its client had taken nothing when the place was taken from it.
    ended: Option<Duration>,
}

/// Since when the client has taken nothing.
struct Standstill {
    /// What is left to be sent: of the snapshot, and of what is queued.
    left: (u64, usize),
    since: Instant,
}

/// A snapshot whose place was taken from it.
struct Ended<T> {
    client: Address,
    idle: Duration,
    _snapshot: Option<T>,
}

impl<T> Places<T> {
    /// `patience` is how long a client may take nothing while others want its place.
    pub(crate) fn new(patience: Duration) -> Places<T> {
        Places { taken: Mutex::default(), patience: patience.max(PATIENCE_MIN), ended: AtomicU64::new(0) }
    }

    /// A place, if one is free or has a client that takes nothing. `waker` has the snapshot tell of its progress with [`Seat::waits`].
    pub(super) fn take(&self, client: Address, waker: Waker, now: Instant) -> Option<Arc<Place<T>>> {
        let mut taken = lock(&self.taken);
        let mut ended = None;
        if taken.len() >= limits::SNAPSHOTS_MAX {
            let idle = taken.iter().enumerate().filter_map(|(at, place)| Some((place.idle(now)?, at)));
            let (_, longest) = idle.max()?;
            ended = Some(taken.get(longest)?.end_if_idle(now, self.patience)?);
            taken.swap_remove(longest);
        }
        let seat = Seat { snapshot: None, standstill: None, ended: None };
        let place = Arc::new(Place { client, waker, seat: Mutex::new(seat) });
        taken.push(place.clone());
        drop(taken);
        self.note(ended);
        Some(place)
    }

    /// Gives a place back, unless it was taken away.
    pub(super) fn leave(&self, place: &Arc<Place<T>>) {
        lock(&self.taken).retain(|other| !Arc::ptr_eq(other, place));
    }

    /// Ends snapshots whose clients have taken nothing for very long. The others are woken to tell of their progress.
    pub(super) fn look(&self, now: Instant) {
        let idle_max = self.patience.saturating_mul(PATIENCES_MAX);
        let mut ended = Vec::new();
        lock(&self.taken).retain(|place| {
            let end = place.end_if_idle(now, idle_max);
            let stays = end.is_none();
            ended.extend(end);
            if stays {
                place.waker.wake_by_ref();
            }
            stays
        });
        self.note(ended);
    }

    /// Without a lock: what is dropped here may be large.
    fn note(&self, ended: impl IntoIterator<Item = Ended<T>>) {
        for end in ended {
            self.ended.fetch_add(1, Ordering::Relaxed);
            logging::warn(
                "ended a database snapshot whose client takes nothing",
                &[("remote-addr", Value::Shown(&end.client)), ("idle", Value::Shown(&format_args!("{:?}", end.idle)))],
            );
        }
    }

    /// Snapshots being sent.
    pub(crate) fn count(&self) -> usize {
        lock(&self.taken).len()
    }

    /// Snapshots that were ended because their client took nothing.
    pub(crate) fn ended(&self) -> u64 {
        self.ended.load(Ordering::Relaxed)
    }
}

impl<T> Place<T> {
    pub(super) fn seat(&self) -> MutexGuard<'_, Seat<T>> {
        lock(&self.seat)
    }

    /// Unless the snapshot is at work at this moment.
    fn seat_at_rest(&self) -> Option<MutexGuard<'_, Seat<T>>> {
        match self.seat.try_lock() {
            Ok(seat) => Some(seat),
            Err(TryLockError::Poisoned(seat)) => Some(seat.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// For how long the client has taken nothing of what waits for it.
    fn idle(&self, now: Instant) -> Option<Duration> {
        self.seat_at_rest()?.idle(now)
    }

    /// Ends the snapshot and has its stream told, if the client has taken nothing for so long.
    fn end_if_idle(&self, now: Instant, idle_max: Duration) -> Option<Ended<T>> {
        let mut seat = self.seat_at_rest()?;
        let idle = seat.idle(now).filter(|idle| *idle >= idle_max)?;
        seat.ended = Some(idle);
        let snapshot = seat.snapshot.take();
        drop(seat);
        self.waker.wake_by_ref();
        Some(Ended { client: self.client, idle, _snapshot: snapshot })
    }
}

impl<T> Seat<T> {
    /// The snapshot has sent what it can for now; this is what is `left` of it, and of what is queued.
    pub(super) fn waits(&mut self, left: (u64, usize), now: Instant) {
        if self.standstill.as_ref().is_none_or(|standstill| standstill.left != left) {
            self.standstill = Some(Standstill { left, since: now });
        }
    }

    /// For how long the client had taken nothing, if the place was taken away for that.
    pub(super) fn ended(&self) -> Option<Duration> {
        self.ended
    }

    fn idle(&self, now: Instant) -> Option<Duration> {
        Some(now.saturating_duration_since(self.standstill.as_ref()?.since))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Duration = Duration::from_secs(20);

    type Taken = Arc<Place<Arc<()>>>;

    /// All places, taken `now` by clients that have not been sent anything.
    fn full(now: Instant) -> (Places<Arc<()>>, Vec<Taken>) {
        let places = Places::new(PATIENCE);
        let take = |_| places.take(Address::Unix, Waker::noop().clone(), now).expect("a place");
        let taken = (0..limits::SNAPSHOTS_MAX).map(take).collect();
        (places, taken)
    }

    fn take(places: &Places<Arc<()>>, now: Instant) -> Option<Taken> {
        places.take(Address::Unix, Waker::noop().clone(), now)
    }

    #[test]
    fn a_client_that_takes_nothing_gives_way() {
        let began = Instant::now();
        let (places, taken) = full(began);
        assert!(take(&places, began + PATIENCE * 100).is_none(), "they are still planned");
        let segments = Arc::new(());
        for (at, place) in taken.iter().enumerate() {
            let mut seat = place.seat();
            seat.snapshot = Some(segments.clone());
            // The fourth is the first to wait.
            let after = if at == 3 { Duration::ZERO } else { Duration::from_secs(1) };
            seat.waits((100, 10), began + after);
        }
        let due = began + PATIENCE;
        assert!(take(&places, due - Duration::from_millis(1)).is_none());
        let ninth = take(&places, due).expect("a place");
        assert!(ninth.seat().ended().is_none());
        let ended: Vec<bool> = taken.iter().map(|place| place.seat().ended().is_some()).collect();
        assert_eq!(ended, [false, false, false, true, false, false, false, false]);
        assert_eq!(Arc::strong_count(&segments), 8, "what it kept is free");
        assert_eq!((places.count(), places.ended()), (8, 1));
        assert!(take(&places, due).is_none(), "the others wait a second less");
        // One that has lost its place does not give back that of another.
        places.leave(&taken[3]);
        assert_eq!(places.count(), 8);
        places.leave(&ninth);
        assert_eq!(places.count(), 7);
    }

    #[test]
    fn a_client_that_takes_a_little_keeps_its_place() {
        let began = Instant::now();
        let (places, taken) = full(began);
        let mut now = began;
        for left in (0..1_000).rev() {
            now += PATIENCE - Duration::from_millis(1);
            for place in &taken {
                place.seat().waits((100, left), now);
            }
            places.look(now + Duration::from_secs(1));
            assert!(take(&places, now + Duration::from_secs(1)).is_none());
        }
        // Nor does a snapshot end that is at work, however long the disk takes.
        let at_work: Vec<_> = taken.iter().map(|place| place.seat()).collect();
        places.look(now + PATIENCE * 100);
        assert!(take(&places, now + PATIENCE * 100).is_none());
        drop(at_work);
        assert_eq!(places.ended(), 0);
    }

    #[test]
    fn a_client_that_takes_nothing_for_minutes_is_ended_anyway() {
        let began = Instant::now();
        let places = Places::new(PATIENCE);
        let place = take(&places, began).expect("a place");
        let segments = Arc::new(());
        place.seat().snapshot = Some(segments.clone());
        place.seat().waits((100, 10), began);
        let last = PATIENCE * PATIENCES_MAX;
        places.look(began + last - Duration::from_millis(1));
        assert_eq!((places.count(), Arc::strong_count(&segments)), (1, 2));
        places.look(began + last);
        assert_eq!((places.count(), Arc::strong_count(&segments), places.ended()), (0, 1, 1));
        assert_eq!(place.seat().ended(), Some(last));
    }
}
