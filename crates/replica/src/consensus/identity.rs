//! Member and cluster ids, computed as etcd computes them, so that both give the same cluster the same ids.

use sha1::{Digest, Sha1};

/// The id of a member: the first eight bytes of SHA-1 over its sorted peer URLs, the cluster token, and, for a member added at
/// run time, the decimal Unix time in seconds.
pub fn member_id(peer_urls: &[String], token: &str, added_unix_seconds: Option<i64>) -> u64 {
    let mut sorted: Vec<&str> = peer_urls.iter().map(String::as_str).collect();
    sorted.sort_unstable();
    let mut hash = Sha1::new();
    for url in sorted {
        hash.update(url);
    }
    hash.update(token);
    if let Some(seconds) = added_unix_seconds {
        hash.update(seconds.to_string());
    }
    first_eight(hash)
}

/// The id of a cluster: the first eight bytes of SHA-1 over its founding members' ids, sorted, big-endian.
pub fn cluster_id(members: &[u64]) -> u64 {
    let mut sorted = members.to_vec();
    sorted.sort_unstable();
    let mut hash = Sha1::new();
    for id in sorted {
        hash.update(id.to_be_bytes());
    }
    first_eight(hash)
}

fn first_eight(hash: Sha1) -> u64 {
    let digest: [u8; 20] = hash.finalize().into();
    digest.first_chunk().map_or(0, |first| u64::from_be_bytes(*first))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The ids that etcd prints for its defaults (`etcdctl member list -w fields` on a fresh `etcd`).
    #[test]
    fn defaults_have_the_well_known_ids() {
        let id = member_id(&["http://localhost:2380".into()], "etcd-cluster", None);
        assert_eq!(id, 0x8e9e_05c5_2164_694d);
        assert_eq!(cluster_id(&[id]), 0xcdf8_1819_4e3a_8c32);
    }
}
