//! Which events of a batch a watch is sent, without a copy of any.

use api::mvccpb::Event;
use api::mvccpb::event::EventType;
use std::sync::Arc;

use super::feed::{Batch, revision};

/// Which kinds there are among some events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Kinds {
    pub(crate) puts: bool,
    pub(crate) deletions: bool,
}

impl Kinds {
    pub(crate) fn add(&mut self, event: &Event) {
        let kind = if is_deletion(event) { &mut self.deletions } else { &mut self.puts };
        *kind = true;
    }
}

fn is_deletion(event: &Event) -> bool {
    event.r#type == EventType::Delete as i32
}

/// The events of a batch that are about some keys, by their places in it. All watches of these keys share it.
#[derive(Debug, Default)]
pub(crate) struct Picked {
    places: Vec<u32>,
    kinds: Kinds,
}

impl Picked {
    /// Those events that are `meant`.
    pub(crate) fn of(events: &[Event], meant: impl Fn(&Event) -> bool) -> Picked {
        let mut picked = Picked::default();
        events.iter().enumerate().filter(|(_, event)| meant(event)).for_each(|(place, event)| picked.add(place, event));
        picked.places.shrink_to_fit();
        picked
    }

    /// Adds the event at a place, behind those that it has.
    pub(crate) fn add(&mut self, place: usize, event: &Event) {
        // A message has no more events than it has bytes.
        self.places.extend(u32::try_from(place));
        self.kinds.add(event);
    }

    pub(crate) fn len(&self) -> usize {
        self.places.len()
    }

    /// What it takes, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.places.capacity().saturating_mul(size_of::<u32>())
    }
}

/// What a watch wants of the events about its keys.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Wants {
    /// The first revision that it has not been sent.
    pub(crate) next: i64,
    pub(crate) no_put: bool,
    pub(crate) no_delete: bool,
}

impl Wants {
    fn has(&self, event: &Event) -> bool {
        revision(event) >= self.next && !if is_deletion(event) { self.no_delete } else { self.no_put }
    }
}

/// What one watch is sent of a batch.
#[derive(Clone, Debug)]
pub(crate) struct Selection {
    pub(crate) batch: Arc<Batch>,
    /// The events about its keys; none if all are.
    pub(crate) about: Option<Arc<Picked>>,
    pub(crate) wants: Wants,
}

impl Selection {
    /// Its events, in order.
    pub(crate) fn events(&self) -> impl Iterator<Item = &Event> {
        let about = self.about.as_deref();
        let count = about.map_or(self.batch.events.len(), Picked::len);
        let place = move |nth: usize| match about {
            Some(about) => about.places.get(nth).map(|place| *place as usize),
            None => Some(nth),
        };
        (0..count).filter_map(move |nth| self.batch.events.get(place(nth)?)).filter(|event| self.wants.has(event))
    }

    /// Whether there are none. Events are only looked at for a watch that was sent some of the batch's revisions before.
    pub(crate) fn is_empty(&self) -> bool {
        let kinds = self.about.as_ref().map_or(self.batch.kinds, |about| about.kinds);
        let Wants { next, no_put, no_delete } = self.wants;
        let has_kind = (kinds.puts && !no_put) || (kinds.deletions && !no_delete);
        !has_kind || (next > self.batch.first && self.events().next().is_none())
    }

    /// What it takes until it is sent, in bytes. A batch counts for everybody who waits for it.
    pub(crate) fn bytes(&self) -> usize {
        self.batch.bytes.saturating_add(self.about.as_ref().map_or(0, |about| about.bytes()))
    }
}
