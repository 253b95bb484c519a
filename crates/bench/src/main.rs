//! The load generator as a program of its own.

fn main() {
    contain::install_plain();
    let args = std::env::args_os().skip(1).map(|arg| arg.to_string_lossy().into_owned());
    std::process::exit(bench::run(args));
}
