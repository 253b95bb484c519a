//! A new cluster from a snapshot: `snapshot restore`.

use crate::target::Target;
use crate::{Contents, Database, Error, SnapshotFile};
use api::raftpb::ConfState;
use std::path::PathBuf;
use store::FOUNDING_REVISION_MAX;
use store::checkpoint::Checkpoint;

/// How a snapshot is restored.
#[derive(Clone, Debug)]
pub struct Restore {
    /// The file.
    pub snapshot: PathBuf,
    /// Increments that follow it, in their order.
    pub increments: Vec<PathBuf>,
    /// Where the data goes.
    pub data_dir: PathBuf,
    /// Where the log goes, if not there too.
    pub wal_dir: Option<PathBuf>,
    /// Names and peer URLs of the founders.
    pub cluster: Vec<(String, Vec<String>)>,
    /// Distinguishes clusters with the same first members.
    pub token: String,
    /// This member.
    pub name: String,
    /// URLs of this member.
    pub peer_urls: Vec<String>,
    /// Takes a file without a checksum.
    pub skips_check: bool,
    /// By how much the revision is moved on, so that no client that saw later ones is misled.
    pub revision_bump: i64,
    /// Compacts everything, so that watches of clients from before begin again.
    pub marks_compacted: bool,
}

/// Makes the data directory of a founding member.
///
/// # Errors
/// If the snapshot cannot be used, or the target directory is not empty.
pub fn restore(wanted: &Restore) -> Result<(), Error> {
    let Restore { name, cluster, token, .. } = wanted;
    let founding = replica::bootstrap(cluster, name, token).ok_or_else(|| {
        Error::Refused(format!("couldn't find local name {name:?} in the initial cluster configuration"))
    })?;
    check_urls(wanted)?;
    check_founders(cluster)?;
    match wanted.increments.is_empty() || wanted.skips_check {
        true => SnapshotFile::check(&wanted.snapshot, wanted.skips_check)?,
        false => SnapshotFile::check_saved(&wanted.snapshot)?,
    }
    let database = Database::open(&wanted.snapshot)?.with_increments(&wanted.snapshot, &wanted.increments)?;
    let contents = database.contents()?;
    let ids: Vec<u64> = founding.entries.iter().filter_map(change_of).collect();
    let (index, term) = (founding.entries.len() as u64, 1);
    let conf_state = ConfState { voters: ids, ..ConfState::default() };
    let members = members(cluster, token);
    let target = Target::create(&wanted.data_dir, wanted.wal_dir.as_ref())?;
    let own = conf_state.clone();
    target.write_store(&database, |last| {
        let contents = Contents { index, term, conf_state: Some(own), members, removed: Vec::new(), ..contents };
        let state = contents.checkpoint(last);
        if !wanted.marks_compacted {
            return Ok(state);
        }
        let moved = state.revision.checked_add(wanted.revision_bump);
        let Some(revision) = moved.filter(|revision| *revision <= FOUNDING_REVISION_MAX) else {
            return Err(Error::Refused(format!(
                "--bump-revision={} leaves no revisions for later changes: the last one is {}, and it may be moved on to {} at most",
                wanted.revision_bump, state.revision, FOUNDING_REVISION_MAX
            )));
        };
        Ok(Checkpoint { revision, compact_revision: revision, ..state })
    })?;
    target.write_log(&founding.metadata, (0, 0, ConfState::default()), &founding.entries, &founding.hard_state)
}

/// The member that an entry of a founder is about.
fn change_of(entry: &api::raftpb::Entry) -> Option<u64> {
    use api::Message;
    Some(api::raftpb::ConfChange::decode(entry.data.clone()?).ok()?.node_id())
}

fn members(cluster: &[(String, Vec<String>)], token: &str) -> Vec<store::Member> {
    let member = |(name, urls): &(String, Vec<String>)| store::Member {
        id: replica::member_id(urls, token, None),
        peer_urls: urls.clone(),
        name: name.clone(),
        ..store::Member::default()
    };
    cluster.iter().map(member).collect()
}

/// No two members can be at one URL.
fn check_founders(cluster: &[(String, Vec<String>)]) -> Result<(), Error> {
    let mut pairs: Vec<(&String, &String)> =
        cluster.iter().flat_map(|(name, urls)| urls.iter().map(move |url| (url, name))).collect();
    pairs.sort_unstable();
    if pairs.iter().zip(pairs.iter().skip(1)).all(|(pair, next)| pair.0 != next.0) {
        return Ok(());
    }
    let mut shown: Vec<String> = pairs.iter().map(|(url, name)| format!("{name}={url}")).collect();
    shown.sort_unstable();
    Err(Error::Refused(format!("initial cluster {} has duplicate url", shown.join(","))))
}

/// A member must be known to the others by the URLs that it has.
fn check_urls(wanted: &Restore) -> Result<(), Error> {
    let sorted = |urls: &[String]| {
        let mut urls = urls.to_vec();
        urls.sort_unstable();
        urls
    };
    let own = sorted(&wanted.peer_urls);
    let founder = wanted.cluster.iter().find(|(name, _)| *name == wanted.name);
    let listed = sorted(founder.map_or(&[], |(_, urls)| urls));
    if own == listed {
        return Ok(());
    }
    let named = |urls: &[String]| urls.iter().map(|url| format!("{}={url}", wanted.name)).collect::<Vec<_>>().join(",");
    let counts = match own.len() == listed.len() {
        true => String::new(),
        false => format!(" (len([{}]) != len([{}]))", quoted(&own), quoted(&listed)),
    };
    let text = if let Some(missing) = listed.iter().find(|url| !own.contains(url)) {
        format!(
            "--initial-cluster has {}={missing} but missing from --initial-advertise-peer-urls={}{counts}",
            wanted.name,
            own.join(",")
        )
    } else if let Some(missing) = own.iter().find(|url| !listed.contains(url)) {
        // What the other flag would have to be.
        let cluster = named(&own);
        format!("--initial-advertise-peer-urls has {missing} but missing from --initial-cluster={cluster}")
    } else {
        format!("failed to resolve {} to match --initial-cluster={}{counts}", own.join(","), named(&own))
    };
    Err(Error::Refused(text))
}

fn quoted(urls: &[String]) -> String {
    urls.iter().map(|url| format!("{url:?}")).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn founders_are_at_different_places() {
        let cluster = |pairs: &[(&str, &str)]| {
            let cluster: Vec<_> =
                pairs.iter().map(|(name, url)| ((*name).to_string(), vec![(*url).to_string()])).collect();
            check_founders(&cluster).map_err(|error| error.to_string())
        };
        assert_eq!(cluster(&[("a", "http://a:1"), ("b", "http://a:2")]), Ok(()));
        let wanted = "initial cluster a=http://a:1,b=http://a:1 has duplicate url";
        assert_eq!(cluster(&[("b", "http://a:1"), ("a", "http://a:1")]), Err(wanted.into()));
    }
}
