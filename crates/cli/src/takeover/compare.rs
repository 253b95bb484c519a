//! Whether members have the same: their history by HashKV, and of learners, which answer no HashKV, all keys.

use super::screen::{Look, Screen};
use super::survey::Cluster;
use super::view::Seen;
use crate::failure::{Failure, Outcome, code};
use api::etcdserverpb::{HashKvRequest, HashKvResponse, RangeRequest, RangeResponse, ResponseHeader};
use api::mvccpb::KeyValue;
use bytes::Bytes;
use client::Client;
use sha2::{Digest, Sha256};

/// How often members that cannot be compared by their hashes are asked before their keys are read.
const INCOMPARABLE_MAX: u32 = 10;
/// How often hashes must differ before the members do. They are asked for again at the revision that is the last one then, which is the
/// same if nothing is written.
const DIFFERENT_MIN: u32 = 2;
/// Bytes of a page of keys, roughly.
const PAGE_BYTES: usize = 2 << 20;
/// Keys of the first page: values may be large.
const PAGE_KEYS_FIRST: i64 = 16;
const PAGE_KEYS_MAX: i64 = 4096;

/// What members were found to share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Same {
    /// The history from a compaction to a revision.
    History { revision: i64, hash: u32 },
    /// The keys at a revision.
    Keys { revision: i64, keys: u64 },
}

impl std::fmt::Display for Same {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Same::History { revision, hash } => write!(f, "HashKV {hash:08x} at revision {revision}"),
            Same::Keys { revision, keys } => write!(f, "{keys} keys at revision {revision}"),
        }
    }
}

/// What hashes at one revision say.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Verdict {
    Same(u32),
    /// They are over different parts of the history: some members keep the hash of a compaction, which those that have been started since
    /// do not.
    Incomparable,
    Different(String),
    /// Another member has answered, or none of this cluster.
    Foreign(String),
}

/// Who has answered in a member's place, if somebody did: behind one address for several members one would be compared with itself.
fn foreign(member: &Seen, header: Option<&ResponseHeader>) -> Option<String> {
    let told = member.told.as_ref().ok()?;
    let (id, cluster) = header.map_or((0, 0), |header| (header.member_id, header.cluster_id));
    let is_own = id == member.id && cluster == told.cluster();
    (!is_own).then(|| format!("{} answers as member {id:x} of cluster {cluster:x}", told.endpoint))
}

fn judge(answers: &[(&Seen, HashKvResponse)]) -> Verdict {
    if let Some(why) = answers.iter().find_map(|(member, answer)| foreign(member, answer.header.as_ref())) {
        return Verdict::Foreign(why);
    }
    let Some((_, first)) = answers.first() else { return Verdict::Incomparable };
    if answers.iter().any(|(_, answer)| answer.compact_revision != first.compact_revision) {
        return Verdict::Incomparable;
    }
    if answers.iter().all(|(_, answer)| answer.hash == first.hash) {
        return Verdict::Same(first.hash);
    }
    let each: Vec<String> = answers.iter().map(|(name, answer)| format!("{name} {:08x}", answer.hash)).collect();
    Verdict::Different(each.join(", "))
}

/// Compares what `members`, all with a vote, have stored. Each is asked for a revision that it has applied, and that none has compacted.
pub(super) async fn history(cluster: &Cluster<'_>, screen: &Screen, members: &[&Seen]) -> Outcome<Same> {
    let (mut different, mut incomparable) = (0, 0);
    let look = async || {
        let revision = match applied(cluster, members).await {
            Ok(revision) => revision,
            Err(error) => return passing(error),
        };
        let mut answers = Vec::with_capacity(members.len());
        for member in members {
            let Ok(told) = &member.told else { continue };
            let client = cluster.patient_client_of(&told.endpoint)?;
            match client.hash_kv(&told.endpoint, HashKvRequest { revision }).await {
                Ok(answer) => answers.push((*member, answer)),
                Err(error) => return passing(error),
            }
        }
        match judge(&answers) {
            Verdict::Same(hash) => Ok(Look::There(Some(Same::History { revision, hash }))),
            Verdict::Foreign(why) => Ok(Look::NotYet(why)),
            Verdict::Incomparable => {
                incomparable += 1;
                if incomparable >= INCOMPARABLE_MAX {
                    return Ok(Look::There(None));
                }
                Ok(Look::NotYet("a compaction has just been; another revision is needed".into()))
            }
            Verdict::Different(how) => {
                different += 1;
                if different >= DIFFERENT_MIN {
                    return Err(differs(&format!("HashKV at revision {revision}: {how}")));
                }
                Ok(Look::NotYet(format!("different hashes at revision {revision}: {how}")))
            }
        }
    };
    match screen.until("all members have the same history", look).await? {
        Some(same) => Ok(same),
        // Nothing has been written since the last compaction.
        None => keys(cluster, screen, members).await,
    }
}

fn differs(how: &str) -> Failure {
    Failure::new(code::DIFFERENCE, format!("the members differ: {how}"))
}

/// A revision that each of `members` has applied.
async fn applied(cluster: &Cluster<'_>, members: &[&Seen]) -> Result<i64, client::Error> {
    let read = |client: Client, serializable| async move {
        let request = RangeRequest { key: "health".into(), count_only: true, serializable, ..Default::default() };
        client.range(request).await.map(|answer| answer.header.unwrap_or_default())
    };
    let revision = read(cluster.client(), false).await?.revision;
    for member in members {
        let Ok(told) = &member.told else { continue };
        let client = cluster.client_of(&told.endpoint).map_err(|failure| unavailable(&failure.text))?;
        // A learner has no linearizable reads.
        let header = read(client, member.is_learner).await?;
        if let Some(why) = foreign(member, Some(&header)) {
            return Err(unavailable(&why));
        }
        let reached = header.revision;
        if reached < revision {
            return Err(unavailable(&format!("{member} is at revision {reached} of {revision}")));
        }
    }
    Ok(revision)
}

fn unavailable(why: &str) -> client::Error {
    rpc::Status::new(api::Code::Unavailable, why.to_string()).into()
}

/// What a failed question means.
fn passing<T>(error: client::Error) -> Outcome<Look<T>> {
    let codes = [api::Code::Unavailable, api::Code::DeadlineExceeded, api::Code::OutOfRange, api::Code::Canceled];
    // A member that got its vote a moment ago may not have heard of that yet.
    let texts = [api::Error::TooManyRequests, api::Error::NotSupportedForLearner];
    if error.code().is_some_and(|code| codes.contains(&code)) || texts.iter().any(|text| error.is(*text)) {
        return Ok(Look::NotYet(Failure::from(error).text));
    }
    Err(error.into())
}

/// Compares all keys, values and leases of `members` at one revision.
pub(super) async fn keys(cluster: &Cluster<'_>, screen: &Screen, members: &[&Seen]) -> Outcome<Same> {
    let look = async || {
        let revision = match applied(cluster, members).await {
            Ok(revision) => revision,
            Err(error) => return passing(error),
        };
        let mut first: Option<(&Seen, Contents)> = None;
        for member in members {
            let Ok(told) = &member.told else { continue };
            let contents = match read(&cluster.patient_client_of(&told.endpoint)?, member, revision).await {
                Ok(contents) => contents?,
                Err(error) => return passing(error),
            };
            match &first {
                None => first = Some((*member, contents)),
                Some((other, wanted)) if *wanted != contents => {
                    let text = format!(
                        "at revision {revision} {other} has {} keys, {member} {}, with different contents",
                        wanted.keys, contents.keys
                    );
                    return Err(differs(&text));
                }
                Some(_) => {}
            }
        }
        let keys = first.map_or(0, |(_, contents)| contents.keys);
        Ok(Look::There(Same::Keys { revision, keys }))
    };
    screen.until("all members have the same keys", look).await
}

/// All keys of a member, as a checksum.
#[derive(Debug, Default, PartialEq, Eq)]
struct Contents {
    keys: u64,
    checksum: Vec<u8>,
}

/// Reads all keys at `revision`, page by page.
async fn read(client: &Client, member: &Seen, revision: i64) -> Result<Outcome<Contents>, client::Error> {
    let (mut hash, mut keys, mut limit) = (Sha256::new(), 0_u64, PAGE_KEYS_FIRST);
    let mut next = Bytes::from_static(b"\0");
    loop {
        let request = RangeRequest {
            key: next.clone(),
            range_end: Bytes::from_static(b"\0"),
            limit,
            revision,
            serializable: true,
            ..Default::default()
        };
        let page = client.range(request).await?;
        if let Some(why) = foreign(member, page.header.as_ref()) {
            return Err(unavailable(&why));
        }
        let bytes: usize = page.kvs.iter().map(|kv| kv.key.len() + kv.value.len()).sum();
        if !is_page(&page, &next) {
            let text = "a member answers with keys that were not asked for";
            return Ok(Err(Failure::new(code::INVALID_INPUT, text)));
        }
        page.kvs.iter().for_each(|kv| digest(&mut hash, kv));
        keys += page.kvs.len() as u64;
        match page.kvs.last() {
            Some(last) if page.more => next = [&last.key[..], b"\0"].concat().into(),
            _ => return Ok(Ok(Contents { keys, checksum: hash.finalize().to_vec() })),
        }
        limit = if bytes < PAGE_BYTES / 2 { (limit * 2).min(PAGE_KEYS_MAX) } else { (limit / 2).max(1) };
    }
}

/// Whether the keys are in order, from `first` on, and at least one if more follow.
fn is_page(page: &RangeResponse, first: &[u8]) -> bool {
    let starts = page.kvs.first().map_or(!page.more, |kv| &kv.key[..] >= first);
    starts && page.kvs.windows(2).all(|two| two[0].key < two[1].key)
}

fn digest(hash: &mut Sha256, kv: &KeyValue) {
    for part in [&kv.key, &kv.value] {
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part);
    }
    for number in [kv.create_revision, kv.mod_revision, kv.version, kv.lease] {
        hash.update(number.to_le_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::super::view::Kind;
    use super::super::view::samples::member;
    use super::*;

    fn answer(member: &Seen, hash: u32, compact_revision: i64) -> (&Seen, HashKvResponse) {
        let header = member.told.as_ref().ok().and_then(|told| told.status.header);
        (member, HashKvResponse { header, hash, compact_revision, ..Default::default() })
    }

    #[test]
    fn a_member_that_does_not_know_of_its_vote_yet_is_waited_for() {
        let of = |error: api::Error| passing::<()>(client::Error::Status(error.into()));
        assert!(matches!(of(api::Error::NotSupportedForLearner), Ok(Look::NotYet(_))));
        assert!(of(api::Error::PermissionDenied).is_err());
    }

    #[test]
    fn hashes_count_only_over_the_same_history() {
        let [a, b, c] = [(1, "a"), (2, "b"), (3, "c")].map(|(id, name)| member(id, name, Some(Kind::Etcd), 1));
        assert_eq!(judge(&[answer(&a, 1, 5), answer(&b, 1, 5)]), Verdict::Same(1));
        assert_eq!(judge(&[answer(&a, 1, 5), answer(&b, 2, 5)]), Verdict::Different("a 00000001, b 00000002".into()));
        assert_eq!(judge(&[answer(&a, 1, 0), answer(&b, 2, 5)]), Verdict::Incomparable);
        assert_eq!(judge(&[answer(&a, 1, 5), answer(&b, 1, 5), answer(&c, 1, 0)]), Verdict::Incomparable);
        assert_eq!(judge(&[]), Verdict::Incomparable);
    }

    /// One address may lead to any of the members, or to another cluster by now.
    #[test]
    fn a_member_is_not_compared_with_itself() {
        let [a, b] = [(1, "a"), (2, "b")].map(|(id, name)| member(id, name, Some(Kind::Etcd), 1));
        let told = |header: ResponseHeader| {
            let (_, answer) = answer(&a, 1, 5);
            judge(&[(&a, answer), (&b, HashKvResponse { header: Some(header), ..answer })])
        };
        let header = ResponseHeader { cluster_id: 7, member_id: 2, ..Default::default() };
        assert_eq!(told(header), Verdict::Same(1));
        let wanted = "http://10.0.0.2:2379 answers as member 1 of cluster 7";
        assert_eq!(told(ResponseHeader { member_id: 1, ..header }), Verdict::Foreign(wanted.into()));
        let wanted = "http://10.0.0.2:2379 answers as member 2 of cluster 8";
        assert_eq!(told(ResponseHeader { cluster_id: 8, ..header }), Verdict::Foreign(wanted.into()));
    }

    fn page(keys: &[&str], more: bool) -> RangeResponse {
        let kv = |key: &&str| KeyValue { key: Bytes::copy_from_slice(key.as_bytes()), ..Default::default() };
        RangeResponse { kvs: keys.iter().map(kv).collect(), more, ..Default::default() }
    }

    #[test]
    fn pages_that_would_not_end_are_refused() {
        assert!(is_page(&page(&["a", "b"], true), b"a"));
        assert!(is_page(&page(&[], false), b"a"));
        for (keys, more, first) in
            [(&["a"][..], true, "b"), (&[], true, "a"), (&["b", "a"], false, "a"), (&["a", "a"], true, "a")]
        {
            assert!(!is_page(&page(keys, more), first.as_bytes()), "{keys:?}");
        }
    }

    #[test]
    fn contents_differ_in_any_part() {
        let sum = |kv: &KeyValue| {
            let mut hash = Sha256::new();
            digest(&mut hash, kv);
            hash.finalize().to_vec()
        };
        let base = KeyValue { key: "ab".into(), value: "c".into(), ..Default::default() };
        let others = [
            KeyValue { key: "a".into(), value: "bc".into(), ..Default::default() },
            KeyValue { lease: 1, ..base.clone() },
            KeyValue { version: 1, ..base.clone() },
            KeyValue { mod_revision: 1, ..base.clone() },
        ];
        assert!(others.iter().all(|other| sum(other) != sum(&base)));
    }
}
