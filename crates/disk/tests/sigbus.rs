//! A mapped file that is cut behind our back ends the process with the file's name and the offset.

use disk::{Disk, Mode, OsDisk};
use std::process::Command;

const CHILD: &str = "CAIRN_SIGBUS_CHILD";

#[test]
fn a_cut_file_is_named() {
    let dir = std::env::temp_dir().join(format!("cairn-sigbus-{}", std::process::id()));
    if let Ok(path) = std::env::var(CHILD) {
        disk::sigbus::install();
        let file = OsDisk::default().open(path.as_ref(), Mode::Write).expect("exists");
        let mapping = file.map(16384).expect("maps");
        mapping.removes_when_unreadable(&std::path::Path::new(&path).with_file_name("goes"));
        file.truncate(4096).expect("cuts");
        let byte = mapping.get(8192, 1).expect("in bounds")[0];
        unreachable!("read {byte}");
    }
    std::fs::create_dir_all(&dir).expect("temporary directory");
    let path = dir.join("file");
    std::fs::write(&path, vec![7; 16384]).expect("writes");
    let goes = dir.join("goes");
    std::fs::write(&goes, "made from it").expect("writes");
    let this = std::env::current_exe().expect("known");
    let child =
        Command::new(this).env(CHILD, &path).args(["--nocapture", "a_cut_file_is_named"]).output().expect("runs");
    let is_gone = !goes.exists();
    std::fs::remove_dir_all(&dir).expect("cleans up");
    let said = String::from_utf8_lossy(&child.stderr);
    assert_eq!(child.status.code(), Some(1), "{said}");
    assert!(said.contains(&format!("{} at offset 8192", path.display())), "{said}");
    assert!(is_gone, "what was made from the file goes with it");
}
