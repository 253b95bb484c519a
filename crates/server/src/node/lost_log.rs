//! The end of a member whose log is proven to have lost what it acknowledged.

use super::Node;
use crate::LOG_LOST_EXIT_CODE;
use disk::{OsDisk, data_dir};
use replica::Proof;
use telemetry::logging::{self, Value};

/// Marks the data directory so that no later start uses it, and ends the process before it sends anything more.
pub(super) fn end(node: &Node, proof: &Proof) -> ! {
    let text = text(node.member_id, proof);
    // The mark is synced even with --unsafe-no-fsync: it is written once in the life of a directory.
    let disk = OsDisk { unsafe_no_sync: false };
    if let Err(error) = data_dir::mark_lost_log(&disk, &node.config.data_dir, &text) {
        // The next start finds the proof again.
        logging::error("cannot mark the data directory of a lost log", &[("error", Value::Shown(&error))]);
    }
    logging::fatal_with(
        LOG_LOST_EXIT_CODE,
        "this member's Raft log is not what it acknowledged to the cluster; it ends, and does not start again on this directory",
        &[("error", (&text).into()), ("data-dir", Value::Shown(&node.config.data_dir.display()))],
    )
}

/// What is wrong, and the way back.
fn text(member_id: u64, proof: &Proof) -> String {
    let caution = match proof {
        // The entries that only this member has were never committed.
        Proof::Lost { .. } | Proof::Replaced { .. } => "",
        Proof::Contradicted { .. } => {
            " Copy this data directory first: it may hold acknowledged writes that the other members have lost."
        }
    };
    format!(
        "{proof}. Went it on, writes that the cluster has acknowledged could be lost.{caution} The way back: remove this member from the \
         cluster (`etcdctl member remove {member_id:x}`), empty its data directory, and add it again as a learner.\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_names_both_indexes_and_the_way_back() {
        let lost = text(0x7b, &Proof::Lost { leader: 1, term: 4, acknowledged: 110, last: 59 });
        for part in ["up to 110", "entry 59", "member remove 7b", "empty its data directory", "as a learner"] {
            assert!(lost.contains(part), "{lost}");
        }
        assert!(!lost.contains("Copy"));
        let replaced = text(0x7b, &Proof::Replaced { leader: 1, term: 4, acknowledged: 110, theirs: 4, ours: 3 });
        for part in ["up to 110", "of term 4", "of term 3", "older copy", "member remove 7b"] {
            assert!(replaced.contains(part), "{replaced}");
        }
        assert!(!replaced.contains("Copy"));
        let proof = Proof::Contradicted { leader: 1, term: 4, index: 60, theirs: 4, committed: 110, ours: 3 };
        let contradicted = text(0x7b, &proof);
        for part in ["entry 60", "entry 110", "Copy this data directory first"] {
            assert!(contradicted.contains(part), "{contradicted}");
        }
    }
}
