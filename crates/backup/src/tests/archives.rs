//! Whole archives: what is made of them is what the member had.

use super::faults::Faulty;
use super::member::{Dir, Fact, Member, Random, time_of};
use crate::archive::{Archive, Mark};
use crate::chain::{Chain, Gap};
use crate::error::Error;
use crate::follow::{Follower, Options};
use crate::piece::PieceName;
use crate::restore::{Wanted, make};
use crate::vault::Vault;
use etcd_import::Database;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

fn options(dir: &Dir) -> Options {
    let (every, base_every) = (Duration::ZERO, Duration::ZERO);
    Options { every, base_every, keep: None, is_once: true, scratch: dir.0.clone() }
}

/// Has the archive follow once.
async fn follow(member: &Member, vault: &Vault) -> Result<(), Error> {
    let mut follower = Follower::begin(member.clone(), vault.clone(), options(&member.dir), |_| {}).await?;
    follower.run(std::future::pending()).await
}

/// The newest value of each key in a snapshot.
fn keys(path: &Path) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let mut keys = BTreeMap::new();
    let visit = &mut |record: etcd_import::Record<'_>| {
        let view = store::log::KvView::parse(record.bytes).expect("a record");
        if record.is_tombstone {
            keys.remove(view.key);
        } else {
            keys.insert(view.key.to_vec(), view.value.to_vec());
        }
        Ok(())
    };
    Database::open(path).expect("a database").records(visit).expect("records");
    keys
}

/// Makes a state, and compares it with the model and with what a member's store makes of the whole log.
async fn check(member: &Member, vault: &Vault, wanted: Wanted, fact: &Fact) {
    let (scratch, file) = (member.dir.file("scratch"), member.dir.file("made"));
    std::fs::create_dir(&scratch).expect("room");
    let made = make(vault, wanted, &scratch, &file).await.unwrap_or_else(|error| panic!("{wanted:?}: {error}"));
    assert_eq!((made.at, made.revision), (fact.at, fact.revision), "{wanted:?}");
    assert_eq!(keys(&file), fact.keys, "{wanted:?}");
    let found = Database::open(&file).expect("a database").hash_kv(0).expect("a hash");
    let (hash, compacted) = member.replay(fact.at.index).hash_kv().expect("a hash");
    assert_eq!((found.hash, found.compact_revision), (hash, compacted), "{wanted:?}");
    std::fs::remove_dir_all(scratch).expect("ours");
    std::fs::remove_file(file).expect("ours");
}

async fn refused(member: &Member, vault: &Vault, wanted: Wanted) -> String {
    let scratch = member.dir.file("scratch");
    std::fs::create_dir(&scratch).expect("room");
    let file = member.dir.file("made");
    let error = make(vault, wanted, &scratch, &file).await.expect_err("it is not there");
    assert!(!file.exists());
    error.to_string()
}

#[tokio::test]
async fn every_state_is_exact() {
    let member = Member::new(1, Arc::new(Dir::new("exact")));
    let vault = Vault::of(Faulty::new(i64::MAX));
    member.grow(20);
    for _ in 0..4 {
        follow(&member, &vault).await.expect("a store that works");
        member.grow(30);
    }
    follow(&member, &vault).await.expect("a store that works");
    let archive = Archive::read(&vault).await.expect("an archive");
    let first = archive.bases.first().expect("a base").clone();
    let facts = member.facts();
    for fact in facts.iter().filter(|fact| fact.at.index >= first.index).step_by(3) {
        check(&member, &vault, Wanted::Index(fact.at.index), fact).await;
    }
    let last = facts.last().expect("a fact");
    for revision in (first.revision..=last.revision).step_by(5) {
        // The base is the first state of its revision that the archive has.
        let fits = |fact: &&Fact| fact.revision == revision && fact.at.index >= first.index;
        check(&member, &vault, Wanted::Revision(revision), facts.iter().find(fits).expect("a state")).await;
    }
    for time_ms in (first.time_ms..=time_of(last.at.index)).step_by(3_500) {
        let by_then = |fact: &&Fact| fact.time_ms <= time_ms && fact.at.index >= first.index;
        let fact = facts.iter().rev().find(by_then).expect("a state");
        let made = make_at(&member, &vault, time_ms).await;
        // What a question brings has the time of its last entry.
        assert!(made <= fact.at.index && fact.at.index - made < 10, "{made} {fact:?}");
        check(&member, &vault, Wanted::Time(time_ms), &member.fact(made)).await;
    }
    check(&member, &vault, Wanted::Newest, last).await;
    let told = refused(&member, &vault, Wanted::Revision(last.revision + 1)).await;
    assert!(told.contains("it ends with entry"), "{told}");
    let told = refused(&member, &vault, Wanted::Index(first.index - 1)).await;
    assert!(told.contains("it begins with entry"), "{told}");
    let told = refused(&member, &vault, Wanted::Time(time_of(last.at.index) + 10_000)).await;
    assert!(told.contains("goes up to"), "{told}");
}

async fn make_at(member: &Member, vault: &Vault, time_ms: u64) -> u64 {
    let scratch = member.dir.file("scratch");
    std::fs::create_dir(&scratch).expect("room");
    let made = make(vault, Wanted::Time(time_ms), &scratch, &member.dir.file("made")).await;
    made.unwrap_or_else(|error| panic!("{time_ms}: {error}")).at.index
}

#[tokio::test]
async fn nothing_half_written_counts_and_all_goes_on() {
    for seed in 0..25_u64 {
        let member = Member::new(seed, Arc::new(Dir::new(&format!("faults-{seed}"))));
        let store = Faulty::new(i64::MAX);
        let vault = Vault::of(store.clone());
        let mut random = Random::new(seed);
        for round in 0..20 {
            member.grow(1 + random.below(9));
            store.left.store(random.below(9) as i64, Ordering::SeqCst);
            match follow(&member, &vault).await {
                Ok(()) => {}
                Err(Error::Full { .. }) => {}
                Err(Error::Damaged { .. }) => panic!("seed {seed}, round {round}: a torn object counts"),
                Err(other) => panic!("seed {seed}, round {round}: {other}"),
            }
        }
        store.left.store(i64::MAX, Ordering::SeqCst);
        follow(&member, &vault).await.expect("a store that works");
        let archive = Archive::read(&vault).await.expect("an archive");
        let first = archive.bases.first().expect("a base").index;
        assert_eq!(Chain::gaps(&archive.names(), first), [], "seed {seed}");
        let last = member.facts().len() as u64;
        for index in [first, first.midpoint(last), last] {
            check(&member, &vault, Wanted::Index(index), &member.fact(index)).await;
        }
    }
}

#[tokio::test]
async fn small_pieces_become_large_ones() {
    let member = Member::new(3, Arc::new(Dir::new("seal")));
    let vault = Vault::of(Faulty::new(i64::MAX));
    for _ in 0..150 {
        follow(&member, &vault).await.expect("a store that works");
        member.grow(2);
    }
    let archive = Archive::read(&vault).await.expect("an archive");
    assert!(archive.pieces.len() < 128, "{}", archive.pieces.len());
    assert!(archive.names().iter().any(|name| name.last.index - name.first > 100));
    let last = archive.end().expect("an end").index;
    check(&member, &vault, Wanted::Newest, &member.fact(last)).await;
}

#[tokio::test]
async fn entries_that_nobody_has_are_a_gap() {
    let member = Member::new(4, Arc::new(Dir::new("gap")));
    let vault = Vault::of(Faulty::new(i64::MAX));
    member.grow(30);
    follow(&member, &vault).await.expect("a store that works");
    let before = member.fact(31);
    member.grow(60);
    member.played.lock().expect("no panic").trimmed = 60;
    follow(&member, &vault).await.expect("a store that works");
    member.grow(10);
    follow(&member, &vault).await.expect("a store that works");
    let archive = Archive::read(&vault).await.expect("an archive");
    assert_eq!(archive.bases.len(), 2);
    check(&member, &vault, Wanted::Index(31), &before).await;
    check(&member, &vault, Wanted::Index(91), &member.fact(91)).await;
    check(&member, &vault, Wanted::Newest, &member.fact(101)).await;
    for index in [32, 60, 90] {
        let told = refused(&member, &vault, Wanted::Index(index)).await;
        assert!(told.contains("in a gap between entry 31") && told.contains("and entry 91"), "{told}");
    }
    let told = refused(&member, &vault, Wanted::Time(time_of(60))).await;
    assert!(told.contains("in a gap"), "{told}");
}

#[tokio::test]
async fn a_missing_or_torn_piece_is_named() {
    let member = Member::new(5, Arc::new(Dir::new("missing")));
    let store = Faulty::new(i64::MAX);
    let vault = Vault::of(store.clone());
    for _ in 0..4 {
        member.grow(10);
        follow(&member, &vault).await.expect("a store that works");
    }
    let names: Vec<PieceName> = Archive::read(&vault).await.expect("an archive").names();
    let second = names[1].to_string();
    let whole = vault.get(&second).await.expect("a store").expect("a piece");
    vault.put(&second, whole.slice(..whole.len() - 1), |_| true).await.expect("a store");
    let told = refused(&member, &vault, Wanted::Newest).await;
    assert!(told.contains(&second) && told.contains("damaged"), "{told}");
    vault.delete(&second).await.expect("a store");
    let told = refused(&member, &vault, Wanted::Index(names[2].last.index)).await;
    assert!(told.contains("it ends with entry"), "{told}");
    let base = Archive::read(&vault).await.expect("an archive").bases[0].clone();
    vault.delete(&base.file()).await.expect("a store");
    let told = refused(&member, &vault, Wanted::Newest).await;
    assert!(told.contains(&base.file()), "{told}");
}

/// The mark says how far the archive went: less than that is not its newest state.
#[tokio::test]
async fn an_end_that_is_missing_is_told() {
    let member = Member::new(12, Arc::new(Dir::new("end")));
    let vault = Vault::of(Faulty::new(i64::MAX));
    for _ in 0..3 {
        member.grow(10);
        follow(&member, &vault).await.expect("a store that works");
    }
    let archive = Archive::read(&vault).await.expect("an archive");
    assert_eq!(archive.gaps(), []);
    let names = archive.names();
    let (kept, last) = (names[names.len() - 2].last, names[names.len() - 1]);
    vault.delete(&last.to_string()).await.expect("a store");
    let told = refused(&member, &vault, Wanted::Newest).await;
    assert!(told.contains(&format!("ends with entry {}", kept.index)) && told.contains("mark.json"), "{told}");
    let gap = Gap { after: kept.index, until: last.last.index + 1 };
    assert_eq!(Archive::read(&vault).await.expect("an archive").gaps(), [gap]);
    // What there is can be had by its name.
    check(&member, &vault, Wanted::Index(kept.index), &member.fact(kept.index)).await;
}

/// The older base leads to the same states; it must not be removed for one that is not there.
#[tokio::test]
async fn a_base_without_its_file_counts_for_nothing() {
    let member = Member::new(13, Arc::new(Dir::new("base")));
    let vault = Vault::of(Faulty::new(i64::MAX));
    let daily = Options { base_every: Duration::from_millis(1), ..options(&member.dir) };
    for _ in 0..2 {
        member.grow(30);
        let begun = Follower::begin(member.clone(), vault.clone(), daily.clone(), |_| {}).await;
        begun.expect("a store that works").run(std::future::pending()).await.expect("a store that works");
    }
    let before = Archive::read(&vault).await.expect("an archive");
    assert_eq!((before.bases.len(), &before.unreadable), (2, &Vec::new()));
    let newest = before.bases[1].file();
    let whole = vault.get(&newest).await.expect("a store").expect("a base");
    for part in [None, Some(whole.slice(..whole.len() / 2))] {
        match part {
            None => vault.delete(&newest).await.expect("a store"),
            Some(part) => vault.put(&newest, part, |_| false).await.expect("a store"),
        }
        let archive = Archive::read(&vault).await.expect("an archive");
        assert!(archive.bases == before.bases[..1] && archive.unreadable[0].starts_with(&newest), "{archive:?}");
        check(&member, &vault, Wanted::Newest, &member.fact(61)).await;
        let pruned = crate::prune(&vault, &archive, u64::MAX, false).await.expect("a store that works");
        assert_eq!((pruned.bases, pruned.pieces), (0, 0));
        check(&member, &vault, Wanted::Newest, &member.fact(61)).await;
    }
}

#[tokio::test]
async fn what_is_old_is_removed() {
    let member = Member::new(6, Arc::new(Dir::new("prune")));
    let vault = Vault::of(Faulty::new(i64::MAX));
    for _ in 0..3 {
        member.grow(30);
        // So that each follower needs a base of its own.
        let mut follower = Follower::begin(
            member.clone(),
            vault.clone(),
            Options { base_every: Duration::from_millis(1), ..options(&member.dir) },
            |_| {},
        )
        .await
        .expect("a store that works");
        follower.run(std::future::pending()).await.expect("a store that works");
    }
    let before = Archive::read(&vault).await.expect("an archive");
    assert_eq!(before.bases.len(), 3);
    let from_ms = before.bases[1].time_ms;
    let tried = crate::prune(&vault, &before, from_ms, true).await.expect("a store that works");
    assert_eq!(Archive::read(&vault).await.expect("an archive").pieces, before.pieces);
    let pruned = crate::prune(&vault, &before, from_ms, false).await.expect("a store that works");
    assert_eq!((pruned.bases, &pruned), (1, &tried));
    let after = Archive::read(&vault).await.expect("an archive");
    assert_eq!(after.bases, before.bases[1..]);
    assert!(after.pieces.len() < before.pieces.len());
    let first = after.bases[0].index;
    for index in [first, first + 7, 91] {
        check(&member, &vault, Wanted::Index(index), &member.fact(index)).await;
    }
    refused(&member, &vault, Wanted::Index(first - 1)).await;
    let all = crate::prune(&vault, &after, u64::MAX, false).await.expect("a store that works");
    assert_eq!(all.oldest.as_ref(), after.bases.last());
    check(&member, &vault, Wanted::Newest, &member.fact(91)).await;
}

#[tokio::test]
async fn another_cluster_or_history_is_refused() {
    let dir = Arc::new(Dir::new("other"));
    let member = Member::new(7, dir.clone());
    let vault = Vault::of(Faulty::new(i64::MAX));
    member.grow(150);
    follow(&member, &vault).await.expect("a store that works");
    let other = Member::new(8, dir);
    other.grow(160);
    other.played.lock().expect("no panic").entries.iter_mut().for_each(|entry| entry.term = Some(entry.term() + 3));
    let error = follow(&other, &vault).await.expect_err("it has another history");
    assert!(error.to_string().contains("the cluster was set back"), "{error}");
    // Of the same terms, but with other entries.
    member.grow(20);
    follow(&member, &vault).await.expect("a store that works");
    let dir = Arc::new(Dir::new("restored"));
    let restored = Member::new(9, dir.clone());
    restored.grow(180);
    let error = follow(&restored, &vault).await.expect_err("it has another history");
    assert!(error.to_string().contains("has another entry"), "{error}");
    // Not that far: it stays behind, and is not taken for one that has nothing new.
    let fresh = Member::new(7, dir);
    fresh.grow(50);
    let error = follow(&fresh, &vault).await.expect_err("it is behind the archive");
    assert!(error.to_string().contains("no member has applied entry"), "{error}");
    // Nothing of these was written.
    let archive = Archive::read(&vault).await.expect("an archive");
    let last = member.facts().len() as u64;
    assert_eq!(archive.end(), Some(member.fact(last).at));
    check(&member, &vault, Wanted::Newest, &member.fact(last)).await;
}

#[tokio::test]
async fn a_member_without_a_leader_vouches_for_nothing_and_no_clock_counts_for_ever() {
    let dir = Arc::new(Dir::new("clocks"));
    let member = Member::new(11, dir);
    let vault = Vault::of(Faulty::new(i64::MAX));
    member.played.lock().expect("no panic").has_leader = false;
    for _ in 0..2 {
        member.grow(30);
        follow(&member, &vault).await.expect("a store that works");
    }
    let mark = async || Archive::read(&vault).await.expect("an archive").mark;
    assert_eq!(mark().await, None);
    member.played.lock().expect("no panic").has_leader = true;
    member.grow(30);
    follow(&member, &vault).await.expect("a store that works");
    let known = mark().await.expect("a mark");
    assert_eq!((known.time_ms, known.index), (member.fact(91).time_ms, 91));
    // A clock that is a year ahead of this machine's is taken for a minute ahead, here and in bases.
    member.played.lock().expect("no panic").ahead_ms = crate::now_ms() + 365 * 86_400_000;
    member.grow(30);
    let daily = Options { base_every: Duration::from_millis(1), ..options(&member.dir) };
    let mut follower = Follower::begin(member.clone(), vault.clone(), daily, |_| ()).await.expect("an archive");
    follower.run(std::future::pending()).await.expect("a store that works");
    let archive = Archive::read(&vault).await.expect("an archive");
    let latest_ms = crate::now_ms() + 60_000;
    assert!(
        archive.mark.as_ref().is_some_and(|mark| mark.time_ms <= latest_ms && mark.index == 121),
        "{:?}",
        archive.mark
    );
    assert!(archive.bases.len() == 2 && archive.bases.iter().all(|base| base.time_ms <= latest_ms));
    // What is kept is counted from what is vouched for, and from now at the latest.
    let day = Duration::from_secs(86_400);
    assert!(archive.keep_from_ms(day) <= crate::now_ms() - 86_400_000);
    let early = Archive { mark: Some(Mark::new(90_000_000, 1)), ..archive };
    assert_eq!(early.keep_from_ms(day), 90_000_000 - 86_400_000);
    assert_eq!(Archive { mark: None, ..early }.keep_from_ms(day), 0);
}

#[tokio::test]
async fn an_archive_that_grows_while_it_is_read_is_whole() {
    let member = Member::new(12, Arc::new(Dir::new("grows")));
    let store = Faulty::new(i64::MAX);
    let vault = Vault::of(store.clone());
    let mut states = Vec::new();
    for _ in 0..2 {
        member.grow(30);
        follow(&member, &vault).await.expect("a store that works");
        let end = Archive::read(&vault).await.expect("an archive").end().expect("a base");
        states.push((store.inner.fork(), end));
    }
    let [(before, early), (after, late)] = &states[..] else { panic!("two states") };
    assert!(early < late);
    // All is shipped between any two reads.
    for reads in 0.. {
        let growing = || {
            let (before, left) = ((before.fork(), AtomicI64::new(reads)), AtomicI64::new(i64::MAX));
            Arc::new(Faulty { inner: after.fork(), left, before: Some(before) })
        };
        let store = growing();
        let archive = Archive::read(&Vault::of(store.clone())).await.expect("an archive");
        assert_eq!(archive.gaps(), [], "shipped behind {reads} reads");
        let (scratch, file) = (member.dir.file("scratch"), member.dir.file("made"));
        std::fs::create_dir(&scratch).expect("room");
        let made = make(&Vault::of(growing()), Wanted::Newest, &scratch, &file).await;
        let made = made.unwrap_or_else(|error| panic!("shipped behind {reads} reads: {error}"));
        assert!((made.at == *early || made.at == *late) && !made.ends_in_gap, "{made:?}");
        std::fs::remove_dir_all(scratch).expect("ours");
        std::fs::remove_file(file).expect("ours");
        if store.before.as_ref().is_some_and(|(_, left)| left.load(Ordering::SeqCst) > 0) {
            assert!(reads > 4, "each read of an archive was the last one before");
            break;
        }
    }
}
