//! `watch`.

mod interactive;
mod show;

use super::keys;
use super::lock::stopped;
use crate::command::{Command, Context, command};
use crate::failure::{Failure, Outcome, code};
use crate::flags::{Flag, Parsed, int, switch};
use api::etcdserverpb::WatchCreateRequest;

pub(crate) const COMMAND: Command =
    command("watch", "<key> [range_end] [-- program argument ...]", "Shows what happens to keys", run).with(FLAGS);

const FLAGS: &[Flag] = &[
    Flag { short: Some('i'), ..switch("interactive", "read watches from the standard input") },
    switch("prefix", "all keys that begin with the given one"),
    int("rev", "0", "from this revision on"),
    switch("prev-kv", "the pairs as they were before as well"),
    switch("progress-notify", "tell now and then how far the watch has come"),
];

/// What is wrong with a number of arguments.
const BAD_NUMBER: &str = "bad number of arguments";

fn run(context: &Context) -> Outcome {
    let variables = Variables::read()?;
    if context.parsed.switch("interactive") {
        return interactive::run(context, &variables);
    }
    let printer = context.printer()?;
    let (args, program) = variables.arguments(&context.parsed)?;
    let client = context.client_that_needs_a_leader()?;
    let mut watcher = client.watch(request(&context.parsed, &args)?);
    let mut stopped = std::pin::pin!(stopped());
    let error = context.wait(async {
        loop {
            tokio::select! {
                watched = watcher.next() => match watched {
                    Ok(watched) => {
                        show::show(printer, &watched)?;
                        show::run(&watched, &program).await?;
                    }
                    Err(error) => return Ok::<_, Failure>(Some(error)),
                },
                () = &mut stopped => return Ok(None),
            }
        }
    })?;
    let Some(error) = error else { return Ok(()) };
    show::ended(printer, &watcher, &error)?;
    Err(Failure::new(code::INTERRUPTED, "watch is canceled by the server"))
}

/// What is watched, if the environment says so.
struct Variables(Vec<String>);

impl Variables {
    fn read() -> Outcome<Variables> {
        let read = |name: &str| std::env::var_os(name).map(|value| crate::raw::word(&value)).unwrap_or_default();
        let (key, end) = (read("ETCDCTL_WATCH_KEY"), read("ETCDCTL_WATCH_RANGE_END"));
        if key.is_empty() && !end.is_empty() {
            let text = format!("ETCDCTL_WATCH_KEY is empty but got ETCDCTL_WATCH_RANGE_END={end:?}");
            return Err(Failure::args(text));
        }
        Ok(Variables([key, end].into_iter().filter(|value| !value.is_empty()).collect()))
    }

    /// Key and end of what is watched, and the program to be run for each event.
    fn arguments(&self, parsed: &Parsed) -> Outcome<(Vec<String>, Vec<String>)> {
        let (args, program) = match parsed.dash {
            Some(dash) => parsed.args.split_at(dash),
            None => (&parsed.args[..], &[][..]),
        };
        if parsed.dash.is_some() && program.is_empty() {
            return Err(Failure::args(format!("{BAD_NUMBER} (found separator --, but no commands)")));
        }
        if !args.is_empty() && !self.0.is_empty() {
            return Err(Failure::args(format!("{BAD_NUMBER} (found conflicting environment key)")));
        }
        let args = if args.is_empty() { self.0.clone() } else { args.to_vec() };
        if args.is_empty() {
            return Err(Failure::args(BAD_NUMBER));
        }
        Ok((args, program.to_vec()))
    }
}

fn request(parsed: &Parsed, args: &[String]) -> Outcome<WatchCreateRequest> {
    // As with etcd's tool, more than an end means none.
    let args = if args.len() > 2 { &args[..1] } else { args };
    if args.len() == 2 && parsed.switch("prefix") {
        return Err(Failure::args("`range_end` and `--prefix` are mutually exclusive"));
    }
    let (key, range_end) = keys::range(parsed, args, "watch")?;
    Ok(WatchCreateRequest {
        key,
        range_end,
        start_revision: parsed.int("rev"),
        prev_kv: parsed.switch("prev-kv"),
        progress_notify: parsed.switch("progress-notify"),
        ..Default::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flags;

    #[test]
    fn keys_come_from_arguments_or_from_variables() {
        let read = |line: &str, variables: &[&str]| {
            let words: Vec<String> = line.split_whitespace().map(String::from).collect();
            let variables = Variables(variables.iter().map(|value| (*value).to_string()).collect());
            let parsed = flags::parse(&words, FLAGS).expect("a command line");
            variables.arguments(&parsed).map_err(|failure| failure.text)
        };
        let is = |args: &[&str], program: &[&str]| {
            let owned = |words: &[&str]| words.iter().map(|word| (*word).to_string()).collect::<Vec<_>>();
            Ok((owned(args), owned(program)))
        };
        assert_eq!(read("a b --rev 5", &[]), is(&["a", "b"], &[]));
        assert_eq!(read("a -- echo x", &[]), is(&["a"], &["echo", "x"]));
        assert_eq!(read("-- echo x", &["k", "e"]), is(&["k", "e"], &["echo", "x"]));
        assert_eq!(read("", &[]), Err("bad number of arguments".into()));
        assert!(read("a --", &[]).is_err_and(|text| text.ends_with("but no commands)")));
        assert!(read("a", &["k"]).is_err_and(|text| text.ends_with("environment key)")));
    }
}
