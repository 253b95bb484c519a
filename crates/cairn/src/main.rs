//! The one binary: subcommands, or, started under the name of one of etcd's programs, that program.

use std::path::Path;
use std::process::exit;

fn main() {
    // An argument that is not text belongs to no flag; what is left of it is named in the refusal.
    let mut args = std::env::args_os().map(|arg| arg.to_string_lossy().into_owned());
    let program = args.next().unwrap_or_default();
    let name = Path::new(&program).file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let args: Vec<String> = args.collect();
    match name {
        "etcd" => exit(server::run(args)),
        "etcdctl" => exit(cli::run(name, args)),
        _ => {}
    }
    match args.first().map(String::as_str) {
        Some("cluster") => exit(server::run_local(args.into_iter().skip(1))),
        Some("ctl") => exit(cli::run("cairn ctl", args.into_iter().skip(1))),
        Some("serve") => exit(server::run(args.into_iter().skip(1))),
        Some("version") => server::print_version(),
        Some("help") => print!("{}", server::usage()),
        Some(other) if !other.starts_with('-') => {
            eprint!("unknown command `{other}`\n{}", server::usage());
            exit(2);
        }
        _ => exit(server::run(args)),
    }
}
