//! What is too old.

use crate::archive::Archive;
use crate::base::Base;
use crate::error::Error;
use crate::vault::Vault;

/// What was removed, or would be.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pruned {
    /// Bases.
    pub bases: usize,
    /// Pieces.
    pub pieces: usize,
    /// Bytes of both.
    pub bytes: u64,
    /// The oldest base that stays: everything from its entry on can be restored.
    pub oldest: Option<Base>,
}

/// Removes what is not needed to restore anything from `keep_from_ms` on: all before the newest base that was taken by then. The last base
/// stays whatever its age.
///
/// # Errors
/// If the store fails. What is left of the archive is as it was.
pub async fn prune(vault: &Vault, archive: &Archive, keep_from_ms: u64, is_tried: bool) -> Result<Pruned, Error> {
    let Some(kept) = archive.bases.iter().rev().find(|base| base.time_ms <= keep_from_ms) else {
        return Ok(Pruned { oldest: archive.bases.first().cloned(), ..Pruned::default() });
    };
    let mut pruned = Pruned { oldest: Some(kept.clone()), ..Pruned::default() };
    for base in archive.bases.iter().filter(|base| base.at() < kept.at()) {
        pruned.bases = pruned.bases.saturating_add(1);
        pruned.bytes = pruned.bytes.saturating_add(base.bytes);
        if !is_tried {
            // Without a description it does not count any more.
            vault.delete(&base.description()).await?;
            vault.delete(&base.file()).await?;
        }
    }
    for (name, bytes) in archive.pieces.iter().filter(|(name, _)| name.last.index <= kept.index) {
        pruned.pieces = pruned.pieces.saturating_add(1);
        pruned.bytes = pruned.bytes.saturating_add(*bytes);
        if !is_tried {
            vault.delete(&name.to_string()).await?;
        }
    }
    if is_tried {
        return Ok(pruned);
    }
    // Files of bases that were never described, or whose removal broke off.
    for listed in vault.list("base").await?.into_iter().filter(|listed| listed.name < kept.file()) {
        let is_known = archive.bases.iter().any(|base| base.file() == listed.name);
        if listed.name.ends_with(".db") && !is_known {
            vault.delete(&listed.name).await?;
        }
    }
    Ok(pruned)
}
