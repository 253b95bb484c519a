//! `cairn-bench base` with all its processes.

use std::process::Command;

#[test]
fn both_costs_are_measured_and_nothing_is_left() {
    let dir = std::env::temp_dir().join(format!("cairn-bench-base-{}", std::process::id()));
    std::fs::create_dir(&dir).expect("a directory of our own");
    let mut bench = Command::new(env!("CARGO_BIN_EXE_cairn-bench"));
    bench.args(["base", "--seconds", "0.05", "--writers", "2", "--dir"]).arg(&dir);
    let output = bench.output().expect("it starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let said: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    for name in ["round_trip_us", "fdatasync_us"] {
        let number = |field: &str| said[name][field].as_f64().expect("a number");
        assert!(number("count") > 0.0 && number("mean") > 0.0, "{said}");
        assert!(number("median") > 0.0 && number("median") <= number("p99"), "{said}");
    }
    // Fails unless it is empty.
    std::fs::remove_dir(&dir).expect("no file is left");
}
