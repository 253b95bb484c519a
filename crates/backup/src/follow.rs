//! Writing an archive: a member is asked for what it has applied, again and again, and that is shipped every few seconds.

use crate::archive::{Archive, Mark};
use crate::base::{Base, FORMAT};
use crate::error::Error;
use crate::piece::At;
use crate::prune::prune;
use crate::ship::{SEALED_BYTES, Shipper};
use crate::source::{Answer, Found, Source, SourceError};
use crate::time;
use crate::vault::Vault;
use etcd_import::{Database, SnapshotFile};
use std::collections::BTreeSet;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::time::{Duration, Instant};
use tokio::task::JoinHandle;

/// Pause between two questions while a member has nothing new.
const ASK: Duration = Duration::from_millis(100);
/// Bytes that wait for a store that fails; then members are asked no further, and keep what they can.
const WAITING_BYTES_MAX: usize = 64 << 20;
/// Pause before the next attempt to write, after one that failed.
const RETRY: Duration = Duration::from_secs(5);
/// How long a member may be behind the archive before another one is asked.
const BEHIND_MAX: Duration = Duration::from_secs(3);
/// How long all members, each with a leader, may be behind the archive before that is taken for what it is: they have another history.
const SET_BACK: Duration = Duration::from_secs(if cfg!(test) { 1 } else { 30 });
/// A member's clock may be ahead of this machine's by so much.
const CLOCK_AHEAD_MS: u64 = 60_000;
/// While the store fails, members are told this often what to keep.
const KEEP: Duration = Duration::from_secs(10);
/// A failure that goes on is told again after this long.
const TELL: Duration = Duration::from_secs(30);
/// How often it is said that nothing has changed.
const MARK: Duration = Duration::from_secs(30);
/// How long it asks once more when it is stopped.
const END_MAX: Duration = Duration::from_secs(2);
/// Old things are looked for this often.
const PRUNE: Duration = Duration::from_secs(600);

/// How an archive is written.
#[derive(Clone, Debug)]
pub struct Options {
    /// What was applied is shipped this often.
    pub every: Duration,
    /// A new base is made this often.
    pub base_every: Duration,
    /// For how long back everything can be restored; without it nothing is ever removed.
    pub keep: Option<Duration>,
    /// End once everything is in the archive that was applied when it began; end at the first failure, too.
    pub is_once: bool,
    /// Takes snapshots on their way; they are as large as the database.
    pub scratch: PathBuf,
}

/// Writes an archive.
pub struct Follower<S> {
    source: S,
    vault: Vault,
    options: Options,
    shipper: Shipper,
    cluster_id: u64,
    /// The member that is asked now.
    member: usize,
    /// A base that is being made.
    basing: Option<JoinHandle<Result<Base, Error>>>,
    newest_base: Option<Base>,
    /// When the last base was begun, or failed.
    base_tried: Option<Instant>,
    shipped_at: Instant,
    /// When the last attempt to write failed.
    failed_at: Option<Instant>,
    pruned_at: Option<Instant>,
    behind_since: Option<Instant>,
    /// Since when every member that was asked has been behind, and which were.
    all_behind: Option<(Instant, BTreeSet<usize>)>,
    /// The member that is asked goes on from where the archive ends.
    follows: bool,
    /// Index of the entry from which on the archive goes without a gap up to its end.
    run_begin: u64,
    /// A base that is in the store, and counts once all entries up to it are there, too.
    pending_base: Option<Base>,
    kept_at: Instant,
    /// Up to when, by a member's clock, everything was taken, and the last entry of that.
    complete: Option<(u64, u64)>,
    marked: Option<(Instant, u64)>,
    /// What was told last of failures that may pass.
    told: Option<(Instant, String)>,
    tell: fn(&str),
}

impl<S: Source> Follower<S> {
    /// Looks into the archive, and asks the members who they are.
    ///
    /// # Errors
    /// If either fails, or the archive is of another cluster.
    pub async fn begin(source: S, vault: Vault, options: Options, tell: fn(&str)) -> Result<Follower<S>, Error> {
        let mut archive = Archive::read(&vault).await?;
        if archive.cluster_id.is_none() && !(archive.bases.is_empty() && archive.pieces.is_empty()) {
            return Err(Error::Refused(format!(
                "{} has pieces of an archive, but nothing readable says of which cluster (archive.json): name another place",
                vault.place()
            )));
        }
        let (member, now) = present(&source).await?;
        let cluster_id = now.cluster_id;
        match archive.cluster_id {
            Some(id) if id != cluster_id => {
                return Err(Error::Refused(format!(
                    "{} is the archive of cluster {id:x}, and the members are of cluster {cluster_id:x}: name another place for it",
                    vault.place()
                )));
            }
            Some(_) => {}
            None => Archive::found(&vault, cluster_id).await?,
        }
        Shipper::tidy(&vault, &mut archive).await?;
        check_history(&source, &vault, &archive).await?;
        let start = match (archive.end(), &now.found) {
            (Some(end), _) => end,
            (None, Found::Next(at, _)) => *at,
            (None, _) => return Err(Error::Member(format!("{} does not say where it is", source.name(member)))),
        };
        tell(&match archive.end() {
            Some(end) => format!("{} goes on behind entry {}", vault.place(), end.index),
            None => format!("{} is a new archive of cluster {cluster_id:x}, from entry {}", vault.place(), start.index),
        });
        let shipper = Shipper::new(vault.clone(), cluster_id, start, &archive);
        Ok(Follower {
            source,
            vault,
            options,
            shipper,
            cluster_id,
            member,
            basing: None,
            run_begin: archive.bases.last().map_or(start.index, |base| base.index),
            newest_base: archive.bases.last().cloned(),
            base_tried: None,
            shipped_at: Instant::now(),
            failed_at: None,
            pruned_at: None,
            behind_since: None,
            all_behind: None,
            follows: false,
            pending_base: None,
            kept_at: Instant::now(),
            complete: None,
            marked: None,
            told: None,
            tell,
        })
    }

    /// Follows until `stop`, or, if that was asked for, once. Ships what it has before it ends.
    ///
    /// # Errors
    /// What cannot pass: the key is refused, the user may not, the members have another history. With `is_once`, any failure.
    pub async fn run(&mut self, stop: impl Future<Output = ()>) -> Result<(), Error> {
        let mut stop = pin!(stop);
        let goal = if self.options.is_once { Some(self.goal().await?) } else { None };
        loop {
            let is_idle = tokio::select! {
                () = &mut stop => {
                    return self.end().await;
                }
                turn = self.turn() => self.pass(turn)?.unwrap_or(true),
            };
            let is_there = goal.is_some_and(|goal| self.follows && self.shipper.last().index >= goal);
            let last = self.shipper.last().index;
            let is_based = self.basing.is_none() && self.pending_base.as_ref().is_none_or(|base| base.index <= last);
            if is_there && !self.needs_base() && is_based {
                self.ship().await?;
                self.seal().await?;
                return self.prune().await;
            }
            if is_idle {
                tokio::select! {
                    () = &mut stop => {
                        return self.end().await;
                    }
                    () = tokio::time::sleep(ASK) => {}
                }
            }
        }
    }

    /// Asks for what was applied up to now, and ships what waits.
    async fn end(&mut self) -> Result<(), Error> {
        self.end_basing();
        let ask =
            async { while self.shipper.waiting() < WAITING_BYTES_MAX && matches!(self.ask().await, Ok(false)) {} };
        // Whatever could not be asked in time is asked by the next one.
        let _ = tokio::time::timeout(END_MAX, ask).await;
        self.shipper.ship().await?;
        self.describe().await?;
        self.mark().await
    }

    /// The last entry that any member had applied when it began. That member is asked.
    async fn goal(&mut self) -> Result<u64, Error> {
        let mut goal = present(&self.source).await?.1.applied;
        for member in 0..self.source.members() {
            // One that cannot be asked has nothing to say.
            if let Ok(answer) = self.source.entries(member, None, 0).await
                && answer.applied >= goal
            {
                (goal, self.member) = (answer.applied, member);
            }
        }
        Ok(goal)
    }

    /// Tells of a failure that may pass, and goes on.
    fn pass<T>(&mut self, outcome: Result<T, Error>) -> Result<Option<T>, Error> {
        match outcome {
            Ok(done) => Ok(Some(done)),
            Err(error) if error.is_passing() && !self.options.is_once => {
                let text = error.to_string();
                if self.told.as_ref().is_none_or(|(at, known)| *known != text || at.elapsed() >= TELL) {
                    (self.tell)(&format!("{text}; trying again"));
                    self.told = Some((Instant::now(), text));
                }
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Asks once, and writes what is due. Returns whether there was nothing new.
    async fn turn(&mut self) -> Result<bool, Error> {
        self.end_base().await?;
        self.describe().await?;
        // Of a member that goes on from the archive's end, not of one that is elsewhere.
        if self.follows && self.needs_base() && self.basing.is_none() {
            self.begin_base();
        }
        let is_full = self.shipper.waiting() >= WAITING_BYTES_MAX;
        let asked = if is_full { Ok(true) } else { self.ask().await };
        if self.kept_at.elapsed() >= KEEP {
            self.kept_at = Instant::now();
            let kept = self.shipper.shipped().index;
            // One that cannot be asked keeps nothing.
            let _ = self.source.entries(self.member, None, kept).await;
            self.keep_elsewhere(kept).await;
        }
        let is_due = self.shipped_at.elapsed() >= self.options.every || self.shipper.waiting() as u64 >= SEALED_BYTES;
        if is_due && self.failed_at.is_none_or(|at| at.elapsed() >= RETRY.min(self.options.every)) {
            self.failed_at = Some(Instant::now());
            self.ship().await?;
            self.seal().await?;
            self.failed_at = None;
            if self.pruned_at.is_none_or(|at| at.elapsed() >= PRUNE) {
                self.prune().await?;
            }
        }
        asked
    }

    async fn ask(&mut self) -> Result<bool, Error> {
        let (after, kept) = (self.shipper.last(), self.shipper.shipped().index);
        let answer = match self.source.entries(self.member, Some(after), kept).await {
            Ok(answer) => answer,
            Err(error) => {
                let name = self.source.name(self.member);
                self.next_member();
                return Err(refusal(&name, error));
            }
        };
        self.check_cluster(&answer)?;
        match answer.found {
            Found::Next(at, entries) if at == after => {
                (self.behind_since, self.all_behind, self.follows) = (None, None, true);
                // A clock that is far ahead would count for ever, for times never go back.
                let latest_ms = time::now_ms().saturating_add(CLOCK_AHEAD_MS);
                self.shipper.push(answer.time_ms.min(latest_ms), &entries)?;
                let is_level = self.shipper.last().index >= answer.applied;
                if is_level && answer.complete_ms > 0 {
                    self.complete = Some((answer.complete_ms.min(latest_ms), self.shipper.last().index));
                }
                // Asked at once, it would answer with an entry or two each time.
                Ok(is_level || entries.is_empty())
            }
            Found::Next(at, _) => Err(Error::Member(format!(
                "{} answers with entries behind entry {at}, not behind entry {after}",
                self.source.name(self.member)
            ))),
            Found::Behind => {
                self.follows = false;
                self.note_behind(answer.complete_ms > 0)?;
                if self.behind_since.get_or_insert_with(Instant::now).elapsed() > BEHIND_MAX {
                    self.behind_since = None;
                    self.next_member();
                }
                Ok(true)
            }
            Found::Trimmed => self.leap(after).await,
            Found::Differs(ours) => Err(self.differs(after, ours)),
        }
    }

    fn differs(&self, after: At, ours: u64) -> Error {
        Error::Refused(format!(
            "{} has entry {} of term {ours}, and the archive of term {}: the cluster was set back, or is another one. Name another \
             place for its archive",
            self.source.name(self.member),
            after.index,
            after.term
        ))
    }

    fn check_cluster(&self, answer: &Answer) -> Result<(), Error> {
        if answer.cluster_id == self.cluster_id {
            return Ok(());
        }
        let name = self.source.name(self.member);
        Err(Error::Refused(format!(
            "{name} is of cluster {:x}, others are of {:x}",
            answer.cluster_id, self.cluster_id
        )))
    }

    /// A member is behind the archive. Refuses if all of them are, with a leader, for long: what is in the archive never was in theirs.
    fn note_behind(&mut self, has_leader: bool) -> Result<(), Error> {
        if !has_leader {
            self.all_behind = None;
            return Ok(());
        }
        let (since, members) = self.all_behind.get_or_insert_with(|| (Instant::now(), BTreeSet::new()));
        members.insert(self.member);
        if members.len() < self.source.members() || since.elapsed() < SET_BACK {
            return Ok(());
        }
        Err(Error::Refused(format!(
            "no member has applied entry {}, where the archive ends: the cluster was set back, or is another one. Name another place for \
             its archive",
            self.shipper.last().index
        )))
    }

    fn next_member(&mut self) {
        self.follows = false;
        self.member = self.member.wrapping_add(1) % self.source.members().max(1);
    }

    /// Has the other members keep what is not in the store yet: any of them may have to go on.
    async fn keep_elsewhere(&self, kept: u64) {
        let others = (0..self.source.members()).filter(|member| *member != self.member);
        let questions = others.map(|member| self.source.entries(member, None, kept));
        // Those that cannot be reached keep nothing.
        let _ = tokio::time::timeout(Duration::from_secs(1), futures_util::future::join_all(questions)).await;
    }

    /// No member has the entries behind `after` any more: leaves a gap, and makes a new base.
    async fn leap(&mut self, after: At) -> Result<bool, Error> {
        let kept = self.shipper.shipped().index;
        let mut now = None;
        for _ in 0..self.source.members() {
            self.next_member();
            match self.source.entries(self.member, Some(after), kept).await.map(|answer| answer.found) {
                Ok(Found::Next(..)) => return Ok(false),
                Ok(Found::Differs(ours)) => return Err(self.differs(after, ours)),
                _ => {}
            }
            if let Ok(answer) = self.source.entries(self.member, None, 0).await {
                self.check_cluster(&answer)?;
                if let Found::Next(at, _) = answer.found {
                    now = Some(at);
                }
            }
        }
        let now = now.filter(|now| now.index > after.index);
        let now = now.ok_or_else(|| Error::Member("no member says where it is".into()))?;
        if now.term < after.term {
            return Err(self.differs(after, now.term));
        }
        self.shipper.ship().await?;
        (self.tell)(&format!(
            "no member has entry {} any more: what is between entries {} and {} cannot be restored; a new base is made",
            after.index.saturating_add(1),
            after.index,
            now.index
        ));
        self.shipper.leap(now);
        self.run_begin = now.index;
        self.pending_base = None;
        self.end_basing();
        self.newest_base = None;
        self.base_tried = None;
        Ok(false)
    }

    async fn ship(&mut self) -> Result<(), Error> {
        self.shipper.ship().await?;
        self.shipped_at = Instant::now();
        self.keep_elsewhere(self.shipper.shipped().index).await;
        self.describe().await?;
        self.mark().await
    }

    /// Says up to when the archive is complete. Nothing may wait.
    async fn mark(&mut self) -> Result<(), Error> {
        let Some((time_ms, index)) = self.complete.filter(|_| self.newest_base.is_some()) else { return Ok(()) };
        // While nothing changes, each second of it need not be told.
        if self.marked.is_some_and(|(at, known)| known == index && at.elapsed() < MARK) {
            return Ok(());
        }
        Archive::set_mark(&self.vault, &Mark::new(time_ms, index)).await?;
        self.marked = Some((Instant::now(), index));
        Ok(())
    }

    async fn seal(&mut self) -> Result<(), Error> {
        self.shipper.seal().await
    }

    async fn prune(&mut self) -> Result<(), Error> {
        self.pruned_at = Some(Instant::now());
        let Some(keep) = self.options.keep else { return Ok(()) };
        let archive = Archive::read(&self.vault).await?;
        let pruned = prune(&self.vault, &archive, archive.keep_from_ms(keep), false).await?;
        if let Some(oldest) = &pruned.oldest {
            self.shipper.forget(oldest.index);
        }
        if pruned.bases > 0 || pruned.pieces > 0 {
            (self.tell)(&format!(
                "removed {} bases and {} pieces, {} bytes",
                pruned.bases, pruned.pieces, pruned.bytes
            ));
        }
        Ok(())
    }

    /// Whether a base is due.
    fn needs_base(&self) -> bool {
        match (self.pending_base.as_ref().or(self.newest_base.as_ref()), self.base_tried) {
            (_, Some(tried)) if tried.elapsed() < RETRY => false,
            (None, _) => true,
            (Some(base), _) => {
                let age = time::now_ms().saturating_sub(base.time_ms);
                !self.options.base_every.is_zero() && u128::from(age) >= self.options.base_every.as_millis()
            }
        }
    }

    fn begin_base(&mut self) {
        self.base_tried = Some(Instant::now());
        let (source, vault, member) = (self.source.clone(), self.vault.clone(), self.member);
        let before_ms = self.newest_base.as_ref().map_or(0, |base| base.time_ms).max(self.shipper.time_ms());
        let (cluster_id, run_begin) = (self.cluster_id, self.run_begin);
        let file = self.options.scratch.join(format!("cairn-backup-{}-{}.db", std::process::id(), time::now_ms()));
        self.basing = Some(tokio::spawn(async move {
            let file = Scrap(file);
            let base = read_base(&source, member, &file.0).await?;
            // Times never go back in an archive, nor far ahead, whatever clocks do.
            let time_ms = base.time_ms.min(time::now_ms().saturating_add(CLOCK_AHEAD_MS)).max(before_ms);
            if base.cluster_id != format!("{cluster_id:x}") {
                return Err(Error::Refused(format!("{} is of cluster {}", source.name(member), base.cluster_id)));
            }
            if base.index < run_begin {
                return Err(Error::Member(format!(
                    "{} is behind: its snapshot ends with entry {}, and the archive begins behind entry {run_begin}",
                    source.name(member),
                    base.index
                )));
            }
            let (bytes, sha256) = vault.put_file(&base.file(), &file.0).await?;
            Ok(Base { time_ms, bytes, sha256, ..base })
        }));
    }

    /// Takes a base that is finished.
    async fn end_base(&mut self) -> Result<(), Error> {
        if self.basing.as_ref().is_none_or(|basing| !basing.is_finished()) {
            return Ok(());
        }
        let Some(basing) = self.basing.take() else { return Ok(()) };
        self.base_tried = Some(Instant::now());
        let made = basing.await.map_err(|error| Error::Member(format!("making a base broke off: {error}")))?;
        match made {
            Ok(base) => self.pending_base = Some(base),
            Err(error) => {
                if matches!(error, Error::Member(_)) {
                    self.next_member();
                }
                return Err(error);
            }
        }
        Ok(())
    }

    /// Makes a base count once all entries up to it are in the archive: whoever goes on behind it leaves none out then.
    async fn describe(&mut self) -> Result<(), Error> {
        let shipped = self.shipper.shipped().index;
        let Some(base) = self.pending_base.take_if(|base| base.index <= shipped) else { return Ok(()) };
        if let Err(error) = Archive::describe(&self.vault, &base).await {
            self.pending_base = Some(base);
            return Err(error);
        }
        (self.tell)(&format!("a base is at entry {}, revision {}, {} bytes", base.index, base.revision, base.bytes));
        self.newest_base = Some(base);
        Ok(())
    }

    fn end_basing(&mut self) {
        if let Some(basing) = self.basing.take() {
            basing.abort();
        }
    }
}

impl<S> Drop for Follower<S> {
    fn drop(&mut self) {
        if let Some(basing) = self.basing.take() {
            basing.abort();
        }
    }
}

/// Where the first member is that can be asked.
async fn present<S: Source>(source: &S) -> Result<(usize, Answer), Error> {
    let mut failed = None;
    for member in 0..source.members() {
        match source.entries(member, None, 0).await {
            Ok(answer) => return Ok((member, answer)),
            Err(error) => failed = Some(refusal(&source.name(member), error)),
        }
    }
    Err(failed.unwrap_or_else(|| Error::Refused("no member is named".into())))
}

fn refusal(name: &str, error: SourceError) -> Error {
    let text = format!("{name}: {}", error.text);
    if error.is_final { Error::Refused(text) } else { Error::Member(text) }
}

/// Refuses if a member has something else where the archive ends: its last entry is compared, as far as a member still has it.
async fn check_history<S: Source>(source: &S, vault: &Vault, archive: &Archive) -> Result<(), Error> {
    let Some(end) = archive.end() else { return Ok(()) };
    let Some((name, _)) = archive.pieces.iter().rev().find(|(name, _)| name.last == end) else { return Ok(()) };
    let piece = archive.piece(vault, *name).await?;
    let (mut before, mut last) = (piece.before, None);
    for batch in piece.batches() {
        for entry in batch.map_err(|what| vault.damaged(&name.to_string(), what))?.entries {
            if let Some(known) = last.replace(entry) {
                before = At { index: known.index(), term: known.term() };
            }
        }
    }
    for member in 0..source.members() {
        // What one does not have, or cannot say, proves nothing.
        let Ok(answer) = source.entries(member, Some(before), 0).await else { continue };
        let differs = match (&answer.found, &last) {
            (Found::Differs(_), _) => true,
            (Found::Next(_, entries), Some(last)) => entries.first().is_some_and(|first| first != last),
            _ => false,
        };
        if differs {
            return Err(Error::Refused(format!(
                "{} has another entry {} than the archive: the cluster was set back, or is another one. Name another place for its archive",
                source.name(member),
                end.index
            )));
        }
    }
    Ok(())
}

/// Copies a member's database into a file, and looks at it.
async fn read_base<S: Source>(source: &S, member: usize, file: &Path) -> Result<Base, Error> {
    let name = source.name(member);
    let failed = |error| refusal(&name, error);
    source.snapshot(member, file.into()).await.map_err(failed)?;
    // Asked afterwards: what is in the snapshot was applied by then.
    let now = source.entries(member, None, 0).await.map_err(failed)?;
    let path = file.to_path_buf();
    let looked = tokio::task::spawn_blocking(move || {
        SnapshotFile::check(&path, false)?;
        let database = Database::open(&path)?;
        // Each page is looked at on the way.
        let mut last = 1;
        database.records(&mut |record| {
            last = record.rev.main;
            Ok(())
        })?;
        Ok::<_, etcd_import::Error>((database.contents()?, last))
    });
    let looked = looked.await.map_err(|error| Error::Member(format!("reading the snapshot broke off: {error}")))?;
    let (contents, last) = looked?;
    Ok(Base {
        format: FORMAT,
        cluster_id: format!("{:x}", now.cluster_id),
        index: contents.index,
        term: contents.term,
        revision: last.max(contents.compact_revision).max(1),
        compact_revision: contents.compact_revision,
        time_ms: now.time_ms,
        bytes: 0,
        sha256: String::new(),
    })
}

/// A file that goes again.
struct Scrap(PathBuf);

impl Drop for Scrap {
    fn drop(&mut self) {
        // It may not have been made.
        let _ = std::fs::remove_file(&self.0);
    }
}
