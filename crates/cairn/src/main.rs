//! The one binary: subcommands, or, started under the name of one of etcd's programs, that program.

mod pages;

use std::ffi::OsString;
use std::io::Write;
use std::path::Path;
use std::process::exit;

fn main() {
    contain::install_plain();
    host::names::need_no_libraries();
    // An argument that is not text belongs to no flag; what is left of it is named in the refusal.
    let mut words = std::env::args_os();
    let program = words.next().unwrap_or_default();
    let name = Path::new(&program).file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let words: Vec<_> = words.collect();
    let args: Vec<String> = words.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    let asks = args.first().is_some_and(|word| word.starts_with("__complete"));
    match name {
        "benchmark" if asks => exit(propose(&bench_report::page(), &args)),
        "etcd" if asks => exit(propose(&pages::etcd(), &args)),
        "benchmark" => exit(bench_report::run(name, args)),
        "etcd" if args.first().is_some_and(|word| word == "gateway") => exit(relay::run("etcd gateway", &args[1..])),
        "etcd" if args.first().is_some_and(|word| word == "grpc-proxy") => {
            exit(proxy::run("etcd grpc-proxy", &args[1..]))
        }
        "etcd" => exit(server::run(args)),
        "etcdctl" => exit(cli::run(name, words)),
        "etcdutl" => exit(cli::run_util(name, words)),
        _ => {}
    }
    match args.first().map(String::as_str) {
        Some("backup") => exit(cli::run_backup("cairn", words)),
        Some("bench") => exit(bench_report::run("cairn bench", args.into_iter().skip(1))),
        Some("__complete" | "__completeNoDesc") => exit(complete(words, &args)),
        Some("check" | "doctor") => exit(cli::run_checks("cairn", words)),
        Some("cluster") => exit(server::run_local(args.into_iter().skip(1))),
        Some("completion") => exit(completion(args.get(1..).unwrap_or_default())),
        Some("ctl") => exit(cli::run("cairn ctl", words.into_iter().skip(1))),
        Some("restore") => exit(cli::run_restore("cairn", words)),
        Some("serve") => exit(server::run(args.into_iter().skip(1))),
        Some("takeover") => exit(cli::run_takeover("cairn", words)),
        Some("top") => exit(cli::run_top("cairn", words)),
        Some("util") => exit(cli::run_util("cairn util", words.into_iter().skip(1))),
        Some("version") => server::print_version(),
        Some("gateway") => exit(relay::run("cairn gateway", &args[1..])),
        Some("grpc-proxy") => exit(proxy::run("cairn grpc-proxy", &args[1..])),
        Some("help") if args.len() > 1 => exit(help(&args[1..])),
        Some("help") => tell(&mut std::io::stdout(), &server::usage()),
        None => tell(&mut std::io::stdout(), COMMANDS_PAGE),
        Some(other) if !other.starts_with('-') => {
            tell(&mut std::io::stderr(), &format!("{COMMANDS_PAGE}\nunknown command `{other}`\n"));
            exit(2);
        }
        _ => exit(server::run(args)),
    }
}

/// Answers a shell that asks what may stand in the place of the last word: the commands of the programs in here know theirs.
fn complete(words: Vec<OsString>, args: &[String]) -> i32 {
    let (asked, rest) = words.split_at(1);
    let behind = |known: &str| rest.len() > 1 && rest[0] == known;
    let ask = |words: &[OsString]| asked.iter().chain(words).cloned().collect::<Vec<_>>();
    if behind("ctl") {
        return cli::run("cairn ctl", ask(&rest[1..]));
    }
    if behind("util") {
        return cli::run_util("cairn util", ask(&rest[1..]));
    }
    if behind("takeover") {
        return cli::run_takeover("cairn", ask(rest));
    }
    if behind("check") || behind("doctor") {
        return cli::run_checks("cairn", ask(rest));
    }
    if behind("backup") {
        return cli::run_backup("cairn", ask(rest));
    }
    if behind("restore") {
        return cli::run_restore("cairn", ask(rest));
    }
    if behind("top") {
        return cli::run_top("cairn", ask(rest));
    }
    propose(&pages::whole(), args)
}

/// The same for what has a page and no more.
fn propose(page: &flags::Page, args: &[String]) -> i32 {
    let describes = args.first().is_some_and(|word| word == "__complete");
    tell(&mut std::io::stdout(), &flags::complete(page, args.get(1..).unwrap_or_default(), describes));
    0
}

/// Prints the scripts that have a shell ask.
fn completion(args: &[String]) -> i32 {
    let script = match args {
        [shell] => cli::script_of_all(shell),
        _ => None,
    };
    match script {
        Some(script) => tell(&mut std::io::stdout(), &script),
        None => {
            tell(&mut std::io::stderr(), "Usage: cairn completion bash|zsh|fish|powershell\n");
            return 2;
        }
    }
    0
}

/// `help --man DIR`.
fn help(args: &[String]) -> i32 {
    let [flag, dir] = args else {
        tell(&mut std::io::stderr(), "Usage: cairn help [--man DIR]\n");
        return 2;
    };
    if flag != "--man" {
        tell(&mut std::io::stderr(), &format!("Usage: cairn help [--man DIR]\nunknown flag: {flag}\n"));
        return 2;
    }
    match pages::write_manual(Path::new(dir)) {
        Ok(count) => tell(&mut std::io::stdout(), &format!("{count} man pages are in {dir}\n")),
        Err(error) => {
            tell(&mut std::io::stderr(), &format!("cannot write the man pages: {error}\n"));
            return 1;
        }
    }
    0
}

/// Nobody can be told that nobody reads this.
fn tell(out: &mut dyn Write, text: &str) {
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

/// What `cairn` alone prints.
const COMMANDS_PAGE: &str = "\
cairn - a distributed key-value store that speaks the etcd v3 protocol

  cairn serve [flags]     starts a member, with etcd's flags (also: cairn --name=...)
  cairn cluster           starts a cluster on this machine
  cairn gateway start     passes TCP connections on to the members of a cluster
  cairn grpc-proxy start  serves the API by asking members, and shares watches
  cairn ctl ...           etcdctl
  cairn util ...          etcdutl
  cairn backup            archives what a cluster applies, in S3 or a directory
  cairn restore           makes data directories of such an archive, at any revision
  cairn bench ...         etcd's benchmark, sweeps and comparisons
  cairn check ...         measures the disk, the network, a running cluster
  cairn doctor            looks at a machine and a cluster, and says what to change
  cairn takeover          moves a running cluster from etcd to Cairn, or back
  cairn top               shows what a cluster does, as it does it
  cairn completion SHELL  prints completions for bash, zsh, fish or powershell
  cairn version           prints the version
  cairn help              lists the flags of a member; help --man DIR writes man pages

Under the names etcd, etcdctl, etcdutl and benchmark the binary is that program.
";
