//! The watchers of one stream.

use std::collections::{BTreeMap, HashMap};

use api::Error;
use slab::Slab;

/// A watcher, named so that a later one in its place is not taken for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Member {
    slot: u32,
    serial: u64,
}

/// One watcher.
pub(super) struct Watcher {
    /// What the client calls it.
    pub(super) id: i64,
    /// Live events before this revision are not for it.
    pub(super) min_rev: i64,
    pub(super) progress_notify: bool,
    /// Events went out since the last tick of periodic progress.
    pub(super) sent: bool,
    /// Its interest at the hub; `None` while it reads the log.
    pub(super) live: Option<u32>,
    /// What it has claimed of its stream's allowance.
    pub(super) cost: u32,
    /// Whether it is among those that begin in the future.
    is_ahead: bool,
    serial: u64,
}

/// Watchers by id and by place.
#[derive(Default)]
pub(super) struct Watchers {
    slots: Slab<Watcher>,
    by_id: HashMap<i64, u32>,
    /// How many begin at a revision, of those that began in the future when they were made live: a client may ask for progress often,
    /// which must not look at all watchers.
    ahead: BTreeMap<i64, usize>,
    /// Where the last of the others began, and of those that have begun since.
    begun: i64,
    next_id: i64,
    next_serial: u64,
}

impl Watchers {
    /// The id a new watcher gets: the one asked for, or the next that is free.
    pub(super) fn assign_id(&mut self, asked: i64) -> Result<i64, Error> {
        if asked != 0 {
            return if self.by_id.contains_key(&asked) { Err(Error::WatchDuplicateId) } else { Ok(asked) };
        }
        while self.by_id.contains_key(&self.next_id) {
            self.next_id = self.next_id.wrapping_add(1);
        }
        let id = self.next_id;
        self.next_id = id.wrapping_add(1);
        Ok(id)
    }

    /// Adds a watcher that is not live yet.
    pub(super) fn add(&mut self, id: i64, min_rev: i64, progress_notify: bool, cost: u32) -> Member {
        let serial = self.next_serial;
        self.next_serial = serial.wrapping_add(1);
        let watcher = Watcher { id, min_rev, progress_notify, sent: false, live: None, cost, is_ahead: false, serial };
        let slot = self.slots.insert(watcher) as u32;
        let replaced = self.by_id.insert(id, slot);
        assert!(replaced.is_none(), "a watch id is used once at a time");
        Member { slot, serial }
    }

    pub(super) fn find(&self, id: i64) -> Option<Member> {
        let slot = *self.by_id.get(&id)?;
        Some(Member { slot, serial: self.slots.get(slot as usize)?.serial })
    }

    /// Removes a watcher; `None` when it is gone already.
    pub(super) fn remove(&mut self, member: Member) -> Option<Watcher> {
        self.get(member)?;
        let watcher = self.slots.try_remove(member.slot as usize)?;
        self.by_id.remove(&watcher.id);
        if watcher.is_ahead {
            self.forget_start(watcher.min_rev);
        }
        Some(watcher)
    }

    /// Makes a watcher live, with what comes from `min_rev` on, while the hub is at `level`. False when it is gone.
    pub(super) fn make_live(&mut self, member: Member, interest: u32, min_rev: i64, level: i64) -> bool {
        let Some(watcher) = self.get_mut(member) else { return false };
        watcher.live = Some(interest);
        let is_ahead = min_rev > level.saturating_add(1);
        let before = std::mem::replace(&mut watcher.min_rev, min_rev);
        if std::mem::replace(&mut watcher.is_ahead, is_ahead) {
            self.forget_start(before);
        }
        if is_ahead {
            let begin = self.ahead.entry(min_rev).or_default();
            *begin = begin.saturating_add(1);
        } else {
            self.begun = self.begun.max(min_rev);
        }
        true
    }

    /// Whether all that were made live begin at `revision` or before. May say no because of one that is gone, if it began later.
    pub(super) fn begin_by(&mut self, revision: i64) -> bool {
        while let Some(first) = self.ahead.first_entry()
            && *first.key() <= revision
        {
            self.begun = self.begun.max(*first.key());
            first.remove();
        }
        self.ahead.is_empty() && self.begun <= revision
    }

    fn forget_start(&mut self, revision: i64) {
        if let Some(begin) = self.ahead.get_mut(&revision) {
            *begin = begin.saturating_sub(1);
            if *begin == 0 {
                self.ahead.remove(&revision);
            }
        }
    }

    pub(super) fn get(&self, member: Member) -> Option<&Watcher> {
        self.slots.get(member.slot as usize).filter(|watcher| watcher.serial == member.serial)
    }

    pub(super) fn get_mut(&mut self, member: Member) -> Option<&mut Watcher> {
        self.slots.get_mut(member.slot as usize).filter(|watcher| watcher.serial == member.serial)
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = (Member, &mut Watcher)> {
        self.slots.iter_mut().map(|(slot, watcher)| (Member { slot: slot as u32, serial: watcher.serial }, watcher))
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Watcher> {
        self.slots.iter().map(|(_, watcher)| watcher)
    }

    pub(super) fn len(&self) -> usize {
        self.slots.len()
    }
}
