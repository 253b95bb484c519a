//! `/debug/pprof/`, in the forms that `go tool pprof` reads, for the programs that serve.

#![deny(clippy::print_stdout, clippy::print_stderr)]
#![deny(clippy::indexing_slicing, clippy::string_slice, clippy::arithmetic_side_effects, clippy::expect_used)]
#![cfg_attr(
    test,
    allow(clippy::indexing_slicing, clippy::string_slice, clippy::arithmetic_side_effects, clippy::expect_used)
)]

mod encode;
mod sampler;

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use http::{HeaderName, HeaderValue, Response, StatusCode, Uri, header};
use rpc::HttpResponder;
use sampler::{PERIOD, Sampling};
use std::io::Write;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// How long a profile takes by default.
const SECONDS_DEFAULT: u64 = 30;
/// How long it may take.
const SECONDS_MAX: u64 = 600;

/// What Go has and there is nothing of here, and why.
const ABSENT: &[(&str, &str)] = &[
    ("allocs", "allocations are not counted by where they are made; see memstats in /debug/vars"),
    ("heap", "allocations are not counted by where they are made; see memstats in /debug/vars"),
    ("block", "waiting is not counted by where it is done"),
    ("mutex", "waiting is not counted by where it is done"),
    ("goroutine", "there are no goroutines; see the threads with `ps -T`"),
    ("threadcreate", "threads are started once, at the beginning; see them with `ps -T`"),
    ("trace", "there is no Go runtime to be traced; use --enable-distributed-tracing"),
];

/// Answers a request below `/debug/pprof/`. `command_line` has the words of the program's, without passwords.
pub fn answer(uri: &Uri, command_line: impl FnOnce() -> Vec<String>, responder: HttpResponder) {
    let name = uri.path().trim_start_matches("/debug/pprof/");
    match name {
        "" => responder.send(index()),
        "cmdline" => {
            responder.send(plain(StatusCode::OK, command_line().join("\0")));
        }
        // The reader's binary names the functions.
        "symbol" => responder.send(plain(StatusCode::OK, "num_symbols: 0\n")),
        "profile" => cpu(uri.query().unwrap_or_default(), responder),
        _ => responder.send(match ABSENT.iter().find(|(absent, _)| *absent == name) {
            Some((_, why)) => marked(StatusCode::NOT_IMPLEMENTED, format!("no profile {name:?}: {why}\n")),
            None => marked(StatusCode::NOT_FOUND, "Unknown profile\n".into()),
        }),
    }
}

/// A text that `go tool pprof` shows to its user.
fn marked(status: StatusCode, text: String) -> Response<Bytes> {
    let mut response = plain(status, text);
    response.headers_mut().insert(HeaderName::from_static("x-go-pprof"), HeaderValue::from_static("1"));
    response
}

fn index() -> Response<Bytes> {
    let mut text = String::from(
        "<html>\n<head><title>/debug/pprof/</title></head>\n<body>\n<h1>/debug/pprof/</h1>\n<ul>\n\
         <li><a href='profile?seconds=10'>profile</a>: where the processor's time goes, for ?seconds=30</li>\n\
         <li><a href='cmdline'>cmdline</a>: the command line, without passwords</li>\n",
    );
    for (name, why) in ABSENT {
        text.push_str(&format!("<li>{name}: not here, {why}</li>\n"));
    }
    text.push_str("</ul>\n</body>\n</html>\n");
    page(StatusCode::OK, "text/html; charset=utf-8", text)
}

/// Samples for as long as the query says, one profile at a time.
fn cpu(query: &str, mut responder: HttpResponder) {
    let seconds = query.split('&').find_map(|part| part.strip_prefix("seconds=")?.parse().ok());
    let lasting = Duration::from_secs(seconds.unwrap_or(SECONDS_DEFAULT).clamp(1, SECONDS_MAX));
    let sampling = match Sampling::begin() {
        Some(Ok(sampling)) => sampling,
        Some(Err(error)) => {
            return responder.send(marked(StatusCode::INTERNAL_SERVER_ERROR, format!("cannot sample: {error}\n")));
        }
        None => {
            let text = "Could not enable CPU profiling: cpu profiling already in use\n";
            return responder.send(marked(StatusCode::INTERNAL_SERVER_ERROR, text.into()));
        }
    };
    tokio::spawn(async move {
        tokio::select! {
            () = tokio::time::sleep(lasting) => {}
            // Dropping the sampling ends it.
            () = responder.gone() => return,
        }
        let samples = sampling.end();
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let began_ns = now.saturating_sub(lasting).as_nanos() as u64;
        let profile = encode::profile(&samples, &maps, PERIOD, lasting, began_ns);
        let mut packer = GzEncoder::new(Vec::new(), Compression::fast());
        responder.send(match packer.write_all(&profile).and_then(|()| packer.finish()) {
            Ok(packed) => {
                let mut response = page(StatusCode::OK, "application/octet-stream", packed);
                let name = HeaderValue::from_static("attachment; filename=\"profile\"");
                response.headers_mut().insert(header::CONTENT_DISPOSITION, name);
                response
            }
            Err(error) => marked(StatusCode::INTERNAL_SERVER_ERROR, format!("cannot pack the profile: {error}\n")),
        });
    });
}

fn page(status: StatusCode, content_type: &'static str, body: impl Into<Bytes>) -> Response<Bytes> {
    let mut response = Response::new(body.into());
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

/// A plain-text response, marked so that no browser guesses another type.
fn plain(status: StatusCode, body: impl Into<Bytes>) -> Response<Bytes> {
    let mut response = page(status, "text/plain; charset=utf-8", body);
    response.headers_mut().insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}
