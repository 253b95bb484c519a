//! `cairn top`: a page about a running cluster that draws itself anew, from the members' metrics and a sample of their writes.

mod ask;
mod hot;
mod json;
mod look;
mod screen;
mod view;

use crate::command::{Command, Context, command};
use crate::failure::{Failure, Outcome};
use crate::flags::{duration, switch, text};
use crate::print::{self, Format};
use crate::signals::Signals;
use ask::Members;
use hot::Hot;
use screen::Screen;
use std::io::IsTerminal;
use std::time::Duration;
use view::View;

/// The one command.
pub(crate) const COMMANDS: &[Command] = &[command("top", "", "Shows what a cluster does, as it does it", run)
    .with(&[
        duration("interval", "2s", "time between two looks, of which the figures are"),
        switch("once", "look twice, print one page and end"),
        switch("json", "print JSON instead of a page, a line per look (as --write-out=json does)"),
        switch("no-keys", "do not sample writes for the hottest prefixes"),
        text("separator", "/", "what ends a level of a prefix"),
    ])
    .explained(
        "Every interval it asks each member for its status and its page of metrics, and watches all keys until it has seen 1,000 writes, 4 MiB\n\
         of them, or a quarter of the interval is over: the hottest prefixes are those of this sample, on one member, and of writes alone.\n\
         Times are 99th percentiles of what happened between the two looks. A request that took more than about a quarter of a second\n\
         is told of by kind and number; its key is in the member's log. A member that shows its metrics on --listen-metrics-urls\n\
         only has no figures here. Ctrl-C ends it.\n",
    )];

/// Shorter ones would measure this program.
const INTERVAL_MIN: Duration = Duration::from_millis(100);

fn run(context: &Context) -> Outcome {
    if !context.args().is_empty() {
        return Err(Failure::args("top takes no arguments: name members with --endpoints"));
    }
    let parsed = &context.parsed;
    let wants_json = match Format::parse(parsed.text("write-out"))? {
        Format::Json => true,
        Format::Simple => parsed.switch("json"),
        _ => return Err(Failure::args("top prints a page or JSON")),
    };
    let interval = parsed.duration("interval").max(INTERVAL_MIN);
    let is_once = parsed.switch("once");
    let has_screen = !wants_json && !is_once;
    if has_screen && !std::io::stdout().is_terminal() {
        let text =
            "top draws itself in a terminal, and the output is none: --once prints one page, --json a line per look";
        return Err(Failure::args(text));
    }
    let mut members = Members::find(context)?;
    let mut hot = (!parsed.switch("no-keys")).then(|| Hot::new(context, parsed.text("separator"))).transpose()?;
    let mut view = View::default();
    view.take(context.wait(members.look(context))?, &Default::default());
    // From here on there is a terminal to put back. What comes while a page is drawn ends the next wait.
    let mut signals = {
        let _guard = context.enter();
        Signals::new()?
    };
    let mut screen = has_screen.then(Screen::open).transpose()?;
    loop {
        let ended: Outcome<bool> = context.wait(async {
            let work = async {
                let pause = tokio::time::sleep(interval);
                let hottest = match &mut hot {
                    Some(hot) => hot.sample(interval / 4).await,
                    None => Default::default(),
                };
                pause.await;
                view.take(members.look(context).await?, &hottest);
                Ok(false)
            };
            tokio::select! {
                outcome = work => outcome,
                () = signals.any() => Ok(true),
            }
        });
        if ended? {
            return Ok(());
        }
        match &mut screen {
            Some(screen) => screen.draw(&view)?,
            None if wants_json => print::out((json::object(&view) + "\n").as_bytes())?,
            None => {
                let (width, height) = screen::size();
                print::out((screen::lines(&view, width, height).join("\n") + "\n").as_bytes())?;
            }
        }
        if is_once {
            return Ok(());
        }
    }
}
