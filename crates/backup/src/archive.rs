//! What is in an archive.
//!
//! ```text
//! archive.json            whose it is: written first
//! base/INDEX-TERM.db      a snapshot of a member's database
//! base/INDEX-TERM.json    what is in it: it counts once this is there
//! log/FIRST-LAST-TERM     a piece of the log
//! mark.json               up to when everything is in the archive; written anew all the time
//! ```

use crate::base::{Base, FORMAT};
use crate::chain::{Chain, Gap};
use crate::error::Error;
use crate::piece::{At, PIECE_BYTES_MAX, Piece, PieceName};
use crate::vault::Vault;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;

/// The object that says whose an archive is.
const IDENTITY: &str = "archive.json";
/// The object that says how far it goes.
const MARK: &str = "mark.json";

#[derive(Debug, Serialize, Deserialize)]
struct Identity {
    format: u32,
    cluster_id: String,
}

/// Up to when an archive is complete.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mark {
    /// The version of the format.
    pub format: u32,
    /// Everything that a member had applied up to this time is in the archive, in milliseconds since 1970.
    pub time_ms: u64,
    /// Index of the last entry of that.
    pub index: u64,
}

impl Mark {
    pub(crate) fn new(time_ms: u64, index: u64) -> Mark {
        Mark { format: FORMAT, time_ms, index }
    }
}

/// What is in an archive, as a list of it shows.
#[derive(Clone, Debug)]
pub struct Archive {
    /// The cluster that it is of; `None` if nothing was written yet.
    pub cluster_id: Option<u64>,
    /// The bases, in the order of their entries.
    pub bases: Vec<Base>,
    /// The pieces, in the order of their names, and the bytes of each.
    pub pieces: Vec<(PieceName, u64)>,
    /// Up to when it is complete.
    pub mark: Option<Mark>,
    /// Objects that should say something or have something and do not: they count for nothing.
    pub unreadable: Vec<String>,
}

impl Archive {
    /// Looks into an archive.
    ///
    /// # Errors
    /// If it cannot be read, or is of another format.
    pub async fn read(vault: &Vault) -> Result<Archive, Error> {
        let mut unreadable = Vec::new();
        let cluster_id = match get_json::<Identity>(vault, IDENTITY, &mut unreadable).await? {
            None => None,
            Some(identity) => {
                check_format(vault, IDENTITY, identity.format)?;
                let id = u64::from_str_radix(&identity.cluster_id, 16);
                Some(id.map_err(|_| vault.damaged(IDENTITY, "it names no cluster"))?)
            }
        };
        // Before what it vouches for: a follower adds to the archive meanwhile, and moves the mark.
        let mark = get_json(vault, MARK, &mut unreadable).await?;
        let mut bases: Vec<Base> = Vec::new();
        let listed = vault.list("base").await?;
        let files: BTreeMap<&str, u64> = listed.iter().map(|listed| (listed.name.as_str(), listed.bytes)).collect();
        for listed in listed.iter().filter(|listed| listed.name.ends_with(".json")) {
            // It may have been pruned since it was listed.
            let Some(base) = get_json::<Base>(vault, &listed.name, &mut unreadable).await? else { continue };
            check_format(vault, &listed.name, base.format)?;
            if base.description() != listed.name {
                return Err(vault.damaged(&listed.name, "it describes another base"));
            }
            if cluster_id.is_some_and(|id| base.cluster_id != format!("{id:x}")) {
                return Err(vault.damaged(&listed.name, format!("it is of cluster {}", base.cluster_id)));
            }
            // It was there when it was described: an older one may still lead to the same states.
            if files.get(base.file().as_str()) != Some(&base.bytes) {
                unreadable.push(format!("{}: it is not there with the {} bytes that it had", base.file(), base.bytes));
                continue;
            }
            bases.push(base);
        }
        bases.sort_by_key(Base::at);
        let named = vault.list("log").await?.into_iter();
        let pieces = named.filter_map(|listed| Some((PieceName::parse(&listed.name)?, listed.bytes))).collect();
        Ok(Archive { cluster_id, bases, pieces, mark, unreadable })
    }

    /// Notes whose a new archive is.
    pub(crate) async fn found(vault: &Vault, cluster_id: u64) -> Result<(), Error> {
        put_json(vault, IDENTITY, &Identity { format: FORMAT, cluster_id: format!("{cluster_id:x}") }).await
    }

    /// Says that it is complete up to there.
    pub(crate) async fn set_mark(vault: &Vault, mark: &Mark) -> Result<(), Error> {
        put_json(vault, MARK, mark).await
    }

    /// Makes a base count.
    pub(crate) async fn describe(vault: &Vault, base: &Base) -> Result<(), Error> {
        put_json(vault, &base.description(), base).await
    }

    /// From when on everything stays that is kept for `keep`: counted from how far the archive goes, if that is earlier than now.
    pub fn keep_from_ms(&self, keep: Duration) -> u64 {
        let until_ms = self.mark.as_ref().map_or(0, |mark| mark.time_ms).min(crate::time::now_ms());
        until_ms.saturating_sub(u64::try_from(keep.as_millis()).unwrap_or(u64::MAX))
    }

    /// The names of the pieces.
    pub fn names(&self) -> Vec<PieceName> {
        self.pieces.iter().map(|(name, _)| *name).collect()
    }

    /// The last entry to which pieces lead from the newest base; the entry of that if there are none. `None` without a base.
    pub fn end(&self) -> Option<At> {
        let base = self.bases.last()?;
        let chain = Chain::find(&self.names(), base.index, u64::MAX);
        Some(chain.pieces.last().map_or(base.at(), |piece| piece.last))
    }

    /// What cannot be restored between the oldest base and the last entry, or up to the one that the mark says is there.
    pub fn gaps(&self) -> Vec<Gap> {
        let Some(base) = self.bases.first() else { return Vec::new() };
        let names = self.names();
        let mut gaps = Chain::gaps(&names, base.index);
        let bases = self.bases.iter().map(|base| base.index);
        let after = names.iter().map(|name| name.last.index).chain(bases).max().unwrap_or(0);
        if let Some(mark) = self.mark.as_ref().filter(|mark| mark.index > after) {
            gaps.push(Gap { after, until: mark.index.saturating_add(1) });
        }
        gaps
    }

    /// Reads a piece.
    ///
    /// # Errors
    /// If it is not whole, or of another cluster.
    pub async fn piece(&self, vault: &Vault, name: PieceName) -> Result<Piece, Error> {
        let text = name.to_string();
        let bytes = self.pieces.iter().find(|(known, _)| *known == name).map_or(0, |(_, bytes)| *bytes);
        if bytes > PIECE_BYTES_MAX {
            return Err(vault.damaged(&text, format!("it has {bytes} bytes")));
        }
        read_piece(vault, name, self.cluster_id).await
    }
}

/// Reads a piece of this cluster.
pub(crate) async fn read_piece(vault: &Vault, name: PieceName, cluster_id: Option<u64>) -> Result<Piece, Error> {
    let found = find_piece(vault, name, cluster_id).await?;
    found.ok_or_else(|| vault.damaged(&name.to_string(), "it is not there any more"))
}

/// The same; `None` if it is not there.
pub(crate) async fn find_piece(
    vault: &Vault,
    name: PieceName,
    cluster_id: Option<u64>,
) -> Result<Option<Piece>, Error> {
    let text = name.to_string();
    let Some(bytes) = vault.get(&text).await? else { return Ok(None) };
    let piece = Piece::decode(&bytes).map_err(|what| vault.damaged(&text, what))?;
    if piece.last != name.last || piece.before.index.checked_add(1) != Some(name.first) {
        return Err(vault.damaged(&text, "its name says something else than it does"));
    }
    if cluster_id.is_some_and(|id| id != piece.cluster_id) {
        return Err(vault.damaged(&text, format!("it is of cluster {:x}", piece.cluster_id)));
    }
    Ok(Some(piece))
}

fn check_format(vault: &Vault, name: &str, format: u32) -> Result<(), Error> {
    if format == FORMAT {
        return Ok(());
    }
    Err(vault.damaged(name, format!("it is of version {format} of the format; this program knows {FORMAT}")))
}

/// An object that is half written is none.
async fn get_json<T: DeserializeOwned>(
    vault: &Vault,
    name: &str,
    unreadable: &mut Vec<String>,
) -> Result<Option<T>, Error> {
    let Some(bytes) = vault.get(name).await? else { return Ok(None) };
    let found = serde_json::from_slice(&bytes);
    if let Err(error) = &found {
        unreadable.push(format!("{name}: {error}"));
    }
    Ok(found.ok())
}

async fn put_json(vault: &Vault, name: &str, value: &impl Serialize) -> Result<(), Error> {
    let text = serde_json::to_vec_pretty(value).map_err(|error| Error::Refused(error.to_string()))?;
    // Another writer says the same of the same thing, or a mark of its own.
    vault.put(name, text.into(), |found| serde_json::from_slice::<serde_json::Value>(found).is_ok()).await
}
