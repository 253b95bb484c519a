//! Writing pieces: entries are gathered, shipped, and small pieces made into large ones.

use crate::archive::{Archive, find_piece, read_piece};
use crate::error::Error;
use crate::piece::{At, Draft, Piece, PieceName};
use crate::vault::Vault;
use api::raftpb::Entry;
use bytes::Bytes;

/// A piece of this size stays as it is.
pub(crate) const SEALED_BYTES: u64 = 16 << 20;
/// So many smaller ones in a row are made into one.
const TAIL_PIECES_MAX: usize = 128;

/// The end of an archive, to which entries are added.
pub(crate) struct Shipper {
    vault: Vault,
    cluster_id: u64,
    draft: Draft,
    /// The newest pieces that are not sealed, each behind the one before it, and their bytes.
    tail: Vec<(PieceName, u64)>,
    /// Pieces that others have taken the place of, still to be removed.
    replaced: Vec<PieceName>,
    /// The last time in the archive: times never go back in it, whatever clocks do.
    time_ms: u64,
}

impl Shipper {
    /// Goes on behind the entry `end`, which is where `archive` ends, or anew.
    pub(crate) fn new(vault: Vault, cluster_id: u64, end: At, archive: &Archive) -> Shipper {
        let mut tail: Vec<(PieceName, u64)> = Vec::new();
        let mut before = end.index;
        for (name, bytes) in archive.pieces.iter().rev() {
            if *bytes >= SEALED_BYTES || name.last.index != before {
                break;
            }
            before = name.first.saturating_sub(1);
            tail.insert(0, (*name, *bytes));
        }
        let replaced = near(archive).filter(|one| near(archive).any(|other| has(&other, one))).collect();
        let time_ms = archive.mark.as_ref().map_or(0, |mark| mark.time_ms);
        Shipper { vault, cluster_id, draft: Draft::new(cluster_id, end), tail, replaced, time_ms }
    }

    /// Removes pieces that are not whole, of those that no piece behind them vouches for: the last one, and those that are to take the place
    /// of others. A store that writes objects whole has none.
    pub(crate) async fn tidy(vault: &Vault, archive: &mut Archive) -> Result<(), Error> {
        loop {
            let last = archive.end().and_then(|end| near(archive).find(|name| name.last == end));
            let replacing = near(archive).filter(|one| near(archive).any(|other| has(one, &other)));
            let checked: Vec<PieceName> = replacing.chain(last).collect();
            let before = archive.pieces.len();
            for name in checked {
                let text = name.to_string();
                let bytes = vault.get(&text).await?.ok_or_else(|| vault.damaged(&text, "it is not there any more"))?;
                if Piece::is_torn(&bytes) {
                    vault.delete(&text).await?;
                    archive.pieces.retain(|(other, _)| *other != name);
                } else {
                    read_piece(vault, name, archive.cluster_id).await?;
                }
            }
            // The one before it is the last one now.
            if archive.pieces.len() == before {
                return Ok(());
            }
        }
    }

    /// Begins behind another entry: what is between is missing. Nothing may be waiting.
    pub(crate) fn leap(&mut self, to: At) {
        self.draft = Draft::new(self.cluster_id, to);
        self.tail.clear();
    }

    /// What is before the entry `index` was pruned.
    pub(crate) fn forget(&mut self, index: u64) {
        self.tail.retain(|(name, _)| name.last.index > index);
    }

    /// The last entry that was given to it.
    pub(crate) fn last(&self) -> At {
        self.draft.last()
    }

    /// The last entry that the store has.
    pub(crate) fn shipped(&self) -> At {
        self.draft.before()
    }

    /// Bytes that wait.
    pub(crate) fn waiting(&self) -> usize {
        self.draft.len()
    }

    /// The last time in the archive.
    pub(crate) fn time_ms(&self) -> u64 {
        self.time_ms
    }

    /// Takes entries; returns the time that they are noted with.
    pub(crate) fn push(&mut self, time_ms: u64, entries: &[Entry]) -> Result<u64, Error> {
        self.time_ms = self.time_ms.max(time_ms);
        self.draft.push(self.time_ms, entries).map_err(Error::Member)?;
        Ok(self.time_ms)
    }

    /// Writes what waits. If that fails, it still waits.
    pub(crate) async fn ship(&mut self) -> Result<(), Error> {
        if self.draft.is_empty() {
            return Ok(());
        }
        let (name, bytes) = (self.draft.name(), self.draft.encode());
        self.put(&name, bytes.clone()).await?;
        self.draft = Draft::new(self.cluster_id, self.draft.last());
        match bytes.len() as u64 {
            len if len >= SEALED_BYTES => self.tail.clear(),
            len => self.tail.push((name, len)),
        }
        Ok(())
    }

    /// Another writer's piece of the same entries is as good.
    async fn put(&self, name: &PieceName, bytes: Bytes) -> Result<(), Error> {
        let is_same = |found: &Bytes| {
            let (ours, theirs) = (Piece::decode(&bytes), Piece::decode(found));
            let place = |piece: &Piece| (piece.cluster_id, piece.before, piece.last);
            matches!((ours, theirs), (Ok(ours), Ok(theirs)) if place(&ours) == place(&theirs))
        };
        self.vault.put(&name.to_string(), bytes.clone(), is_same).await
    }

    /// Makes small pieces into a large one, if there are many, and removes what that has replaced. Everything is in the archive before
    /// and after.
    pub(crate) async fn seal(&mut self) -> Result<(), Error> {
        let total: u64 = self.tail.iter().map(|(_, bytes)| *bytes).sum();
        if self.tail.len() >= 2 && (self.tail.len() >= TAIL_PIECES_MAX || total >= SEALED_BYTES) {
            let mut whole: Option<Draft> = None;
            let mut joined = Vec::new();
            for (name, _) in &self.tail {
                let Some(piece) = find_piece(&self.vault, *name, Some(self.cluster_id)).await? else {
                    // Somebody else has pruned it, or made it into a larger one; those before it stay as they are.
                    (whole, joined) = (None, Vec::new());
                    continue;
                };
                joined.push(*name);
                let draft = whole.get_or_insert_with(|| Draft::new(self.cluster_id, piece.before));
                draft.join(&piece).map_err(|what| self.vault.damaged(&name.to_string(), what))?;
            }
            let tail = std::mem::take(&mut self.tail);
            if let Some(draft) = whole {
                let (name, bytes) = (draft.name(), draft.encode());
                if let Err(error) = self.put(&name, bytes.clone()).await {
                    self.tail = tail;
                    return Err(error);
                }
                self.replaced.extend(joined.into_iter().filter(|other| *other != name));
                if (bytes.len() as u64) < SEALED_BYTES {
                    self.tail.push((name, bytes.len() as u64));
                }
            }
        }
        while let Some(name) = self.replaced.last() {
            self.vault.delete(&name.to_string()).await?;
            self.replaced.pop();
        }
        Ok(())
    }
}

/// The newest pieces.
fn near(archive: &Archive) -> impl Iterator<Item = PieceName> + '_ {
    archive.pieces.iter().rev().take(2 * TAIL_PIECES_MAX).map(|(name, _)| *name)
}

/// Whether the one has everything that the other has, and more.
fn has(one: &PieceName, other: &PieceName) -> bool {
    let is_same = other.first == one.first && other.last.index == one.last.index;
    !is_same && one.first <= other.first && other.last.index <= one.last.index && other.last.term <= one.last.term
}
