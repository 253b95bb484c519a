//! The one binary: subcommands, or, started under the name of one of etcd's programs, that program.

use std::path::Path;
use std::process::exit;

fn main() {
    // An argument that is not text belongs to no flag; what is left of it is named in the refusal.
    let mut words = std::env::args_os();
    let program = words.next().unwrap_or_default();
    let name = Path::new(&program).file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let words: Vec<_> = words.collect();
    let args: Vec<String> = words.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    match name {
        "benchmark" => exit(bench::run_tool(name, args)),
        "etcd" => exit(server::run(args)),
        "etcdctl" => exit(cli::run(name, words)),
        "etcdutl" => exit(cli::run_util(name, words)),
        _ => {}
    }
    match args.first().map(String::as_str) {
        Some("bench") => exit(bench::run_tool("cairn bench", args.into_iter().skip(1))),
        Some("check" | "doctor") => exit(cli::run_checks("cairn", words)),
        Some("cluster") => exit(server::run_local(args.into_iter().skip(1))),
        Some("ctl") => exit(cli::run("cairn ctl", words.into_iter().skip(1))),
        Some("serve") => exit(server::run(args.into_iter().skip(1))),
        Some("util") => exit(cli::run_util("cairn util", words.into_iter().skip(1))),
        Some("version") => server::print_version(),
        Some("help") => print!("{}", server::usage()),
        Some(other) if !other.starts_with('-') => {
            eprint!("unknown command `{other}`\n{}", server::usage());
            exit(2);
        }
        _ => exit(server::run(args)),
    }
}
