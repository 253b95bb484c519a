//! Compiles `proto/*.proto` with `protox`, so that building Cairn needs no `protoc`.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let files = ["kv", "auth", "membership", "rpc", "election", "lock", "lease", "wal", "snap", "raft"];
    let files: Vec<String> = files.iter().map(|name| format!("{name}.proto")).collect();
    println!("cargo:rerun-if-changed=proto");
    let descriptors = protox::compile(&files, ["proto"])?;
    prost_build::Config::new()
        .bytes(["."])
        .btree_map(["."])
        .type_attribute(".", "#[allow(missing_docs)]")
        .compile_fds(descriptors)?;
    Ok(())
}
