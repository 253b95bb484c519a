//! Members whose data is older than what clients were shown: they were restored from a backup, or are those of another cluster.

use api::etcdserverpb::{ResponseHeader, WatchResponse};

use super::{Hub, Id, NO_WATCH, Output};
use crate::watch::FeedId;

impl Hub {
    /// A feed that has been at a revision was created at a member that has this one. It may just lag behind.
    pub(super) fn suspect(&mut self, number: FeedId, revision: i64) {
        let newest = self.header.revision;
        let Some(feed) = self.feeds.get(&number) else { return };
        // One that begins later than anything was seen has begun in the future by itself.
        let is_behind = revision < feed.position && feed.position <= newest;
        if is_behind && self.confirming.is_none() {
            self.confirming = Some(newest);
            self.out.push(Output::Confirm(feed.subject.key.clone()));
        }
    }

    /// All members together have this revision, or it cannot be known. Returns the newest one that was seen if they have less than that.
    pub(crate) fn confirmed(&mut self, revision: Option<i64>) -> Option<i64> {
        let newest = self.confirming.take()?;
        let revision = revision.filter(|revision| *revision < newest)?;
        self.header.revision = revision;
        let reason = format!(
            "the data of the members went back from revision {newest} to {revision}, as after a restore: read and watch again"
        );
        self.end_watches(&reason, |next| {
            let last = next.saturating_sub(1);
            revision < last && last <= newest
        });
        Some(newest)
    }

    /// Whether a member that has nothing to do with those before says this.
    pub(crate) fn is_of_another_cluster(&self, response: &WatchResponse) -> bool {
        let cluster = response.header.as_ref().map_or(0, |header| header.cluster_id);
        self.header.cluster_id != 0 && cluster != self.header.cluster_id
    }

    /// The members are others.
    pub(super) fn change_cluster(&mut self, header: ResponseHeader) {
        self.header = header;
        self.confirming = None;
        self.end_watches("the members that the proxy asks belong to another cluster now: read and watch again", |_| {
            true
        });
    }

    /// Ends the watches whose next revision is one of these, as if what they wait for was compacted: clients know what to do then, which
    /// is to read anew, and etcd's tell of no other reason.
    fn end_watches(&mut self, reason: &str, is_meant: impl Fn(i64) -> bool) {
        let all = self.clients.iter().flat_map(|(id, client)| client.watches.keys().map(|number| (*id, *number)));
        let mut all: Vec<Id> = all.collect();
        all.sort_unstable();
        for id in all {
            self.note_position(id);
            let Some(client) = self.clients.get_mut(&id.0) else { continue };
            let Some(watch) = client.watches.get(&id.1).filter(|watch| is_meant(watch.next)) else { continue };
            let is_told = watch.is_told;
            let Some(watch) = client.remove(id.1) else { continue };
            self.take_off(id, &watch.subject, watch.feed);
            let answer = WatchResponse {
                watch_id: if is_told { id.1 } else { NO_WATCH },
                created: !is_told,
                canceled: true,
                compact_revision: self.header.revision.saturating_add(1),
                cancel_reason: reason.into(),
                ..self.answer()
            };
            self.tell(id.0, answer);
        }
    }
}
