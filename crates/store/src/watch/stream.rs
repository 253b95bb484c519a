//! One client stream of watches.

use crate::mistake::Mistake;
use std::borrow::Cow;
use std::collections::VecDeque;
use std::sync::Arc;

use api::Error;
use api::etcdserverpb::WatchCreateRequest;
use api::limits::WATCH_BYTES_FREE;

use super::allowance::{self, Allowance};
use super::batch::{Batch, NO_WATCH, Origin, Sink};
use super::block::{Change, Pieces, for_each_interest};
use super::catch_up::{self, Part, Unread};
use super::cohort::{Cohort, Cohorts};
use super::interest::Interests;
use super::outbox::{Delivery, Outbox};
use super::room::Ask;
use super::spec::Spec;
use super::stream_queue::{Audience, Entry, Item, StreamQueue, Taken};
use super::watchers::{Member, Watcher, Watchers};
use super::{History, Hub, Options, Wake};

/// Answers and deliveries that may wait while the past is read.
const WAITING_ANSWERS_MAX: usize = 64;

/// The watches of one stream. Requests queue their answers; [`WatchStream::poll`] hands out responses in the order in which
/// they must be sent. Dropping it ends all its watches.
///
/// After a request, poll. When polling stopped before it wrote nothing (the client does not read), no wake-up comes: go on
/// polling when there is room again.
pub struct WatchStream {
    history: Arc<dyn History>,
    queue: Arc<StreamQueue>,
    queue_number: u32,
    watchers: Watchers,
    /// Interests that are registered with the hub.
    live: Interests,
    cohorts: Cohorts,
    /// What is read before other cohorts have their turn.
    reading: Option<Stretch>,
    /// Cohorts that are registered already and read the last revisions before that. Live events wait after them. The last one is
    /// read first.
    joining: Vec<Stretch>,
    /// Entries taken from the queue, not yet turned into responses.
    taken: VecDeque<Entry>,
    outbox: Outbox,
    cancellations: u64,
    /// Set while the stream waits for memory.
    waits: Option<Waits>,
    catch_up_next: bool,
    allowance: Option<Arc<Allowance>>,
}

/// A stretch of the log that a cohort reads.
struct Stretch {
    cohort: Cohort,
    cursor: i64,
    to: i64,
    /// How far it has got in the revision at the cursor.
    part: Option<Box<Part>>,
}

/// What a stream that waits for memory has looked at last. While its cancellations are the same, so is what needs the memory.
#[derive(Clone, Copy)]
struct Waits {
    cancellations: u64,
    /// The compaction for which it has looked whether watches are passed; `None` if there are new ones.
    compact_revision: Option<i64>,
}

/// How a read for a cohort ended.
enum Read {
    /// To its new cursor, or into the revision there.
    To(Stretch),
    /// Its members were cancelled.
    Ended,
    /// The halves of the cohort are to be read one after the other.
    Wide(Stretch, Box<Stretch>),
    /// There is no room for its events now.
    Waits(Stretch),
}

/// Whether [`WatchStream::poll`] can go on.
#[derive(PartialEq, Eq)]
enum Step {
    On,
    /// There is no room for what comes next. The sink has been asked to say when there is.
    Waits,
}

impl Stretch {
    /// Drops members that were cancelled. False if none is left.
    fn sweep(&mut self, watchers: &Watchers, cancellations: u64) -> bool {
        let before = self.cohort.interests.len();
        self.cohort.sweep(watchers, cancellations);
        let left = self.cohort.interests.len();
        // Those that are left may need less.
        self.part.take_if(|part| part.is_count() && left != before);
        left > 0
    }

    /// Whether it has memory for events that it has not all found yet.
    fn holds_room(&self) -> bool {
        self.part.as_ref().is_some_and(|part| part.holds_room())
    }
}

impl Hub {
    /// Opens a stream. `wake` is called, from any thread and perhaps during [`WatchStream::poll`], when there is something to
    /// poll after `poll` wrote nothing; once until then.
    pub(crate) fn open(history: Arc<dyn History>, wake: Wake) -> WatchStream {
        let queue = Arc::new(StreamQueue::new(wake));
        let queue_number = history.hub().attach(queue.clone());
        WatchStream {
            history,
            queue,
            queue_number,
            watchers: Watchers::default(),
            live: Interests::default(),
            cohorts: Cohorts::default(),
            reading: None,
            joining: Vec::new(),
            taken: VecDeque::new(),
            outbox: Outbox::default(),
            cancellations: 0,
            waits: None,
            catch_up_next: false,
            allowance: None,
        }
    }
}

impl WatchStream {
    /// Has its watches count towards an allowance. Before there are any; those of a stream without one count nowhere.
    pub fn limit(&mut self, allowance: Arc<Allowance>) {
        assert!(self.watchers.len() == 0, "a stream is limited before it has watches");
        self.allowance = Some(allowance);
    }

    /// Starts a watcher.
    pub fn create(&mut self, request: WatchCreateRequest) {
        let start = request.start_revision;
        let (spec, id, cost) = match self.accept(&request) {
            Ok(accepted) => accepted,
            Err(reason) => return self.refuse(reason),
        };
        let member = self.watchers.add(id, start, request.progress_notify, cost);
        self.metrics().add_watchers(1);
        let level = if start == 0 {
            self.go_live(&spec, &[member], 0)
        } else {
            let level = self.hub().level();
            self.metrics().add_slow(1);
            self.cohorts.add(start, &spec, &[member], self.cancellations);
            if let Some(waits) = &mut self.waits {
                waits.compact_revision = None;
            }
            level
        };
        self.outbox.reply(Batch { revision: level, watch_id: id, created: true, ..Batch::default() });
        if start > level && self.joining.is_empty() {
            self.join_at(start);
        }
    }

    /// Decides whether a watcher is accepted. Returns its spec, its id, and its cost, which is claimed.
    fn accept(&mut self, request: &WatchCreateRequest) -> Result<(Spec, i64, u32), Cow<'static, str>> {
        let spec = Spec::new(request).map_err(|error| error.message())?;
        if request.start_revision < 0 {
            return Err(Error::Compacted.message().into());
        }
        let cost = allowance::cost(&spec);
        if let Some(allowance) = &self.allowance
            && let Err(full) = allowance.claim(cost)
        {
            self.metrics().add_refused(full.scope);
            return Err(full.reason().into());
        }
        match self.watchers.assign_id(request.watch_id) {
            Ok(id) => Ok((spec, id, cost)),
            Err(error) => {
                self.release(cost.into());
                Err(error.message().into())
            }
        }
    }

    fn release(&self, cost: u64) {
        if let Some(allowance) = &self.allowance {
            allowance.release(cost);
        }
    }

    /// Answers a create request that may not be served, permissions for instance.
    pub fn refuse(&mut self, reason: impl Into<Cow<'static, str>>) {
        self.outbox.reply(Batch {
            revision: self.hub().level(),
            watch_id: NO_WATCH,
            created: true,
            canceled: true,
            cancel_reason: reason.into(),
            ..Batch::default()
        });
    }

    /// Ends a watcher. An id that is not there is not answered.
    pub fn cancel(&mut self, id: i64) {
        let Some(member) = self.watchers.find(id) else { return };
        self.end(member);
        let revision = self.hub().level();
        self.outbox.reply(Batch { revision, watch_id: id, canceled: true, ..Batch::default() });
    }

    /// Answers how far the whole stream has got, if that is one number: not while a watcher reads the log or has its start in
    /// the future, nor without watchers.
    pub fn progress(&mut self) {
        let level = self.hub().level();
        if self.all_level_at(level) {
            self.hub().push_progress(self.queue_number, Audience::Stream);
        }
    }

    /// Sends progress to watchers that asked for it, are level and were sent nothing since the last call. To be called
    /// at each `--watch-progress-notify-interval`.
    pub fn periodic_progress(&mut self) {
        let mut quiet = Vec::new();
        for (member, watcher) in self.watchers.iter_mut() {
            let sent = std::mem::replace(&mut watcher.sent, false);
            if watcher.progress_notify && watcher.live.is_some() && !sent {
                quiet.push(member);
            }
        }
        if !quiet.is_empty() {
            // They are taken from the back.
            quiet.reverse();
            self.hub().push_progress(self.queue_number, Audience::Watchers(quiet));
        }
    }

    /// How many watchers there are.
    pub fn watchers(&self) -> usize {
        self.watchers.len()
    }

    /// Writes the next responses to `sink`: at least one, and no further one once there are `bytes_max` bytes. Returns how many
    /// bytes it wrote; 0: nothing now, the wake-up tells when, or the sink has been asked for memory that it does not have
    /// ([`Sink::room`]). Reading the log for watchers that are behind happens here, a bounded amount per call; with more to read, 0
    /// comes with an immediate wake-up, so that others get a turn.
    pub fn poll(&mut self, origin: &Origin, bytes_max: usize, sink: &mut impl Sink) -> usize {
        let mut records_left = self.records_max();
        self.poll_within(&mut records_left, origin, bytes_max, sink)
    }

    /// Records of the log that a turn should look at, give or take as many for the revision that it ends with.
    pub fn records_max(&self) -> usize {
        self.hub().options().poll_records_max
    }

    /// Whether there is more to do than to pass live events on. Each of a client's messages should not have that done: there may be
    /// thousands of them in a turn of its connection.
    pub fn is_behind(&self) -> bool {
        self.waits.is_some() || !self.joining.is_empty() || self.is_reading()
    }

    /// Whether so many answers wait that they should be sent before more requests are taken: nobody counts what they take.
    pub fn has_many_answers(&self) -> bool {
        self.outbox.len() >= WAITING_ANSWERS_MAX
    }

    /// Writes what waits to be sent, as [`WatchStream::poll`] does, and looks for nothing more.
    pub fn answer(&mut self, origin: &Origin, bytes_max: usize, sink: &mut impl Sink) -> usize {
        let sent = self.outbox.encode(&mut self.watchers, origin, bytes_max.max(1), sink);
        self.metrics().add_events(sent.events);
        sent.bytes
    }

    /// The same as [`WatchStream::poll`], for several calls that together look at so many records.
    pub fn poll_within(
        &mut self,
        records_left: &mut usize,
        origin: &Origin,
        bytes_max: usize,
        sink: &mut impl Sink,
    ) -> usize {
        loop {
            let sent = self.answer(origin, bytes_max, sink);
            if sent > 0 {
                return sent;
            }
            if let Some(waits) = self.waits {
                if self.cancel_compacted_since(waits) {
                    continue;
                }
                if waits.cancellations == self.cancellations && sink.is_waiting() {
                    // A revision is measured as a whole, so not again for each message of the client.
                    return 0;
                }
            }
            self.waits = None;
            if *records_left == 0 && (!self.joining.is_empty() || self.is_reading()) {
                self.queue.rouse();
                return 0;
            }
            let mut ask = |bytes: usize, waits: bool| sink.room(bytes, waits);
            // Who has memory asks for no other before that is sent.
            let holds_room = self.reading.as_ref().is_some_and(Stretch::holds_room);
            if !holds_room && let Some(joining) = self.joining.pop() {
                if self.catch_up_joining(joining, records_left, &mut ask) == Step::Waits && !self.begin_to_wait() {
                    return 0;
                }
                continue;
            }
            // Live events and those who catch up take turns. Those who wait for room keep theirs.
            self.catch_up_next = !self.catch_up_next;
            let live = match !holds_room && (!self.catch_up_next || !self.is_reading()) {
                true => self.next_live(&mut ask),
                false => None,
            };
            let step = match live {
                Some(step) => step,
                None if !self.is_reading() => return 0,
                None => self.catch_up(records_left, &mut ask),
            };
            if step == Step::Waits {
                self.catch_up_next = !self.catch_up_next;
                if !self.begin_to_wait() {
                    return 0;
                }
            }
        }
    }

    /// Whether it waits for memory. If not, it needs none of what it asked for and did not get.
    pub fn is_waiting(&self) -> bool {
        self.waits.is_some()
    }

    fn hub(&self) -> &Hub {
        self.history.hub()
    }

    /// Whether cohorts read the log that are not joining.
    fn is_reading(&self) -> bool {
        self.reading.is_some() || !self.cohorts.is_empty()
    }

    fn metrics(&self) -> &super::Metrics {
        self.hub().metrics()
    }

    /// Whether everything up to `level` that the stream's watchers want is in its queue or sent, and no watcher starts later.
    fn all_level_at(&mut self, level: i64) -> bool {
        self.watchers.len() > 0
            && !self.is_reading()
            && (Mistake::FutureWatchGetsProgress.is_planted() || self.watchers.begin_by(level.saturating_add(1)))
    }

    /// Registers watchers with the hub, whose events they get from `min_rev` or the returned level on, whichever is later.
    fn go_live(&mut self, spec: &Spec, members: &[Member], min_rev: i64) -> i64 {
        let (number, fresh) = self.live.add(spec, members);
        let interests: &[(u32, Spec)] = if fresh { &[(number, spec.clone())] } else { &[] };
        let level = self.hub().register(self.queue_number, interests);
        let late = i64::from(Mistake::WatchBeginsLate.is_planted());
        self.place(members, number, min_rev.max(level.saturating_add(1)).saturating_add(late), level);
        level
    }

    fn place(&mut self, members: &[Member], number: u32, min_rev: i64, level: i64) {
        let mut placed = 0usize;
        for member in members {
            if self.watchers.make_live(*member, number, min_rev, level) {
                placed = placed.saturating_add(1);
            }
        }
        self.queue.add_live(placed, self.history.hub().metrics());
    }

    /// Removes a watcher from wherever it is. A cohort drops it later.
    fn end(&mut self, member: Member) {
        let Some(Watcher { live, cost, .. }) = self.watchers.remove(member) else { return };
        self.release(cost.into());
        self.cancellations = self.cancellations.wrapping_add(1);
        self.metrics().add_watchers(-1);
        match live {
            Some(number) => {
                let watchers = &self.watchers;
                if let Some(spec) = self.live.remove(number, |other| watchers.get(*other).is_some()) {
                    self.hub().unregister(self.queue_number, &[(number, spec)]);
                }
                self.queue.end_live(self.hub().metrics());
            }
            None => self.metrics().add_slow(-1),
        }
    }

    /// Turns the next entry of the queue into responses. `None` when there is none.
    fn next_live(&mut self, ask: &mut Ask<'_>) -> Option<Step> {
        if self.taken.is_empty() {
            match self.queue.take(&mut self.taken, self.history.hub().metrics()) {
                Taken::Entries => {}
                Taken::Lagging(from) => self.fall_behind(from),
                Taken::Empty => return None,
            }
        }
        match self.taken.pop_front() {
            Some(Entry::Revision(item)) => return Some(self.deliver(item, ask)),
            Some(Entry::Progress(level, Audience::Watchers(members))) => self.outbox.progress(members, level),
            Some(Entry::Progress(level, Audience::Stream)) => self.answer_progress(level),
            None => {}
        }
        Some(Step::On)
    }

    /// Builds what the watchers get of a revision: a bounded part of it; the rest is for when that is sent. What is copied beyond a
    /// little is asked for first. While there is no room, the revision waits at the front of the queue, which becomes a cursor if too
    /// much comes behind it.
    fn deliver(&mut self, mut item: Item, ask: &mut Ask<'_>) -> Step {
        let revision = &item.revision;
        let Options { fragment_bytes, delivery_bytes_max, .. } = *self.hub().options();
        let WatchStream { live, outbox, .. } = self;
        let (mut built, mut free) = (0usize, WATCH_BYTES_FREE);
        let mut waits = false;
        let done = for_each_interest(
            &mut item.hits,
            |number| live.get(number).map(|interest| (interest.spec.prev_kv, interest.spec.fragment)),
            |run, (prev_kv, fragment)| {
                if built >= delivery_bytes_max {
                    return None;
                }
                let changes = || {
                    let events = run.iter().filter_map(|(_, event)| revision.events.get(*event as usize));
                    events.map(|event| Change {
                        kind: event.kind,
                        main: revision.main,
                        stored: &event.stored,
                        prev: event.prev.as_ref().filter(|_| prev_kv),
                    })
                };
                let copied = changes().map(|change| change.lengths().copied()).fold(0, usize::saturating_add);
                let room = match free.checked_sub(copied) {
                    Some(left) => {
                        free = left;
                        None
                    }
                    None => {
                        // What is built already goes first.
                        waits = built == 0;
                        Some(ask(copied, waits)?)
                    }
                };
                let mut pieces = Pieces::new(fragment.then_some(fragment_bytes), copied, room);
                changes().for_each(|change| pieces.push(&change));
                let pieces = pieces.finish();
                built = pieces.iter().map(|piece| piece.events.len()).fold(built, usize::saturating_add);
                waits = false;
                Some(pieces)
            },
            |number, pieces| {
                let Some(interest) = live.get(number) else { return };
                outbox.events(Delivery::live(interest.members.clone(), pieces, revision.main));
            },
        );
        item.hits.drain(..done);
        if !item.hits.is_empty() {
            self.taken.push_front(Entry::Revision(item));
        }
        if waits { Step::Waits } else { Step::On }
    }

    /// All events up to `level` are sent. The promise is for every watcher of the stream, also those created since it was asked
    /// for: with later ones it is asked for again.
    fn answer_progress(&mut self, level: i64) {
        if self.all_level_at(level) {
            self.outbox.reply(Batch { revision: level, watch_id: NO_WATCH, ..Batch::default() });
        } else {
            self.progress();
        }
    }

    /// The queue was given up: all live watchers go back to reading the log, from what was not taken of the queue.
    fn fall_behind(&mut self, from: i64) {
        let live = std::mem::take(&mut self.live);
        self.hub().unregister_all(self.queue_number, &live);
        self.hub().end_lag(self.queue_number);
        for (_, interest) in live.iter() {
            for member in interest.members.iter() {
                let Some(watcher) = self.watchers.get_mut(*member) else { continue };
                watcher.live = None;
                let from = from.saturating_sub(i64::from(Mistake::StarvedStreamGoesBack.is_planted()));
                let min_rev = if Mistake::StarvedStreamGoesBack.is_planted() { from } else { watcher.min_rev };
                self.cohorts.add(from.max(min_rev), &interest.spec, &[*member], self.cancellations);
            }
        }
    }

    /// Reads one cohort's next part of the log, or lets it join the hub if that is all but done.
    fn catch_up(&mut self, records_left: &mut usize, ask: &mut Ask<'_>) -> Step {
        let level = self.hub().level();
        let mut stretch = match self.reading.take() {
            Some(stretch) => stretch,
            None => {
                let Some((cursor, cohort, next)) = self.cohorts.take_next() else { return Step::On };
                let to = next.map_or(level, |next| level.min(next.saturating_sub(1)));
                Stretch { cohort, cursor, to, part: None }
            }
        };
        if !stretch.sweep(&self.watchers, self.cancellations) {
            return Step::On;
        }
        if stretch.part.is_none() && stretch.cursor > level.saturating_sub(self.hub().options().join_gap_revisions) {
            self.join(stretch.cursor, stretch.cohort);
            return Step::On;
        }
        match self.read(stretch, level, records_left, ask) {
            Read::To(stretch) if stretch.part.is_some() => self.reading = Some(stretch),
            Read::To(Stretch { cursor, cohort, .. }) => self.cohorts.put(cursor, cohort),
            Read::Ended => {}
            Read::Wide(one, other) => {
                self.cohorts.put(other.cursor, other.cohort);
                self.reading = Some(one);
            }
            Read::Waits(stretch) => {
                self.reading = Some(stretch);
                return Step::Waits;
            }
        }
        Step::On
    }

    fn catch_up_joining(&mut self, mut joining: Stretch, records_left: &mut usize, ask: &mut Ask<'_>) -> Step {
        if !joining.sweep(&self.watchers, self.cancellations) {
            return Step::On;
        }
        let to = joining.to;
        match self.read(joining, to, records_left, ask) {
            Read::To(joining) if joining.cursor <= to => self.joining.push(joining),
            Read::To(_) | Read::Ended => {}
            Read::Wide(one, other) => self.joining.extend([*other, one]),
            Read::Waits(joining) => {
                self.joining.push(joining);
                return Step::Waits;
            }
        }
        Step::On
    }

    /// Reads for a cohort. When compaction has passed its cursor, its members are cancelled.
    fn read(&mut self, stretch: Stretch, current: i64, records_left: &mut usize, ask: &mut Ask<'_>) -> Read {
        let Stretch { cohort, cursor, to, part } = stretch;
        match catch_up::read(&*self.history, &cohort, (cursor, to), current, part, records_left, ask) {
            Ok(reading) => {
                reading.deliveries.into_iter().for_each(|delivery| self.outbox.events(delivery));
                Read::To(Stretch { cohort, cursor: reading.next, to, part: None })
            }
            Err(Unread::Later(part)) => Read::To(Stretch { cohort, cursor, to, part: Some(part) }),
            Err(Unread::Wide) => {
                // To divide them is work, too.
                *records_left = records_left.saturating_sub(cohort.interests.len());
                let (one, other) = cohort.halve();
                let half = |cohort| Stretch { cohort, cursor, to, part: None };
                Read::Wide(half(one), Box::new(half(other)))
            }
            Err(Unread::NoRoom(part)) => Read::Waits(Stretch { cohort, cursor, to, part }),
            Err(Unread::Compacted(compact_revision)) => {
                self.cancel_compacted(&cohort, compact_revision);
                Read::Ended
            }
        }
    }

    fn cancel_compacted(&mut self, cohort: &Cohort, compact_revision: i64) {
        for member in cohort.members() {
            let Some(watch_id) = self.watchers.get(member).map(|watcher| watcher.id) else { continue };
            self.end(member);
            self.outbox.reply(Batch { watch_id, canceled: true, compact_revision, ..Batch::default() });
        }
    }

    /// Waits for memory. Watches whose turn will not come meanwhile and that a compaction has passed are told so first; returns whether
    /// there were any.
    fn begin_to_wait(&mut self) -> bool {
        let waits = Waits { cancellations: self.cancellations, compact_revision: None };
        self.waits = Some(waits);
        self.cancel_compacted_since(waits)
    }

    /// Cancels the watches that a compaction has passed since a stream that waits for memory has looked: they are told at once, not only
    /// when there is some. Returns whether there were any.
    fn cancel_compacted_since(&mut self, waits: Waits) -> bool {
        let compact_revision = self.history.compact_revision();
        if waits.compact_revision == Some(compact_revision) {
            return false;
        }
        self.waits = Some(Waits { compact_revision: Some(compact_revision), ..waits });
        let before = self.cancellations;
        let is_passed = |cursor: i64| catch_up::is_passed(cursor, compact_revision);
        let joining = self.joining.extract_if(.., |joining| is_passed(joining.cursor));
        let reading = self.reading.take_if(|reading| is_passed(reading.cursor));
        let mut passed: Vec<Cohort> = joining.chain(reading).map(|stretch| stretch.cohort).collect();
        passed.extend(std::iter::from_fn(|| self.cohorts.take_first_if(is_passed)));
        passed.iter().for_each(|cohort| self.cancel_compacted(cohort, compact_revision));
        self.cancellations != before
    }

    /// Bytes of events that wait in the outbox, those that are shared once.
    #[cfg(test)]
    pub(super) fn waiting_bytes(&self) -> usize {
        self.outbox.waiting_bytes()
    }

    fn join_at(&mut self, cursor: i64) {
        if let Some(cohort) = self.cohorts.take(cursor) {
            self.join(cursor, cohort);
        }
    }

    /// Registers a cohort with the hub. What was published before that it reads from the log, while the queue waits.
    fn join(&mut self, cursor: i64, mut cohort: Cohort) {
        cohort.sweep(&self.watchers, self.cancellations);
        let mut fresh = Vec::new();
        let mut placed = Vec::new();
        for (_, interest) in cohort.interests.iter() {
            let (number, is_fresh) = self.live.add(&interest.spec, &interest.members);
            if is_fresh {
                fresh.push((number, interest.spec.clone()));
            }
            placed.push((number, interest.members.clone()));
        }
        let level = self.hub().register(self.queue_number, &fresh);
        for (number, members) in placed {
            self.metrics().add_slow((members.len() as i64).wrapping_neg());
            let cursor = if Mistake::FutureWatchGetsOldEvents.is_planted() { 0 } else { cursor };
            self.place(&members, number, cursor.max(level.saturating_add(1)), level);
        }
        if cursor <= level && !cohort.interests.is_empty() {
            self.joining.push(Stretch { cohort, cursor, to: level, part: None });
        }
    }
}

impl Drop for WatchStream {
    fn drop(&mut self) {
        self.release(self.watchers.iter().map(|watcher| u64::from(watcher.cost)).sum());
        let hub = self.history.hub();
        let slow = self.watchers.iter().filter(|watcher| watcher.live.is_none()).count();
        hub.metrics().add_slow((slow as i64).wrapping_neg());
        hub.metrics().add_watchers((self.watchers.len() as i64).wrapping_neg());
        hub.unregister_all(self.queue_number, &self.live);
        hub.detach(self.queue_number);
    }
}
