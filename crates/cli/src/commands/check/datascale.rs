//! `check datascale`.

use super::report::Report;
use super::writers::Writers;
use super::{Keys, is_free, load, tidy, tidy_space};
use crate::command::Context;
use crate::failure::{Failure, Outcome, code};
use crate::globals;
use crate::print;
use crate::progress::Bar;
use client::{Client, Endpoint};
use std::cell::RefCell;
use std::rc::Rc;

/// Pairs, and clients, of each load.
const LOADS: [(u64, usize); 4] = [(10_000, 50), (100_000, 200), (1_000_000, 500), (3_000_000, 1000)];
/// Bytes of a pair: half of them the key's.
const PAIR_BYTES: usize = 1024;
/// What members say about their memory.
const MEMORY: &str = "process_resident_memory_bytes";

pub(super) fn run(context: &Context) -> Outcome {
    let (pairs, count) = LOADS[load(context)?];
    context.printer()?;
    let endpoints = globals::endpoints(&context.parsed)?;
    let clients = (0..count).map(|_| context.client()).collect::<Outcome<Vec<Client>>>()?;
    let Some(first) = clients.first() else { unreachable!("every load has clients") };
    is_free(context, first, "")?;
    let before = memory(context, first, &endpoints[0], "before")?;
    let text = format!(
        "Start data scale check for work load [{pairs} key-value pairs, {PAIR_BYTES} bytes per key-value, {count} \
         concurrent clients].\n"
    );
    print::out(text.as_bytes())?;
    let mut keys = Keys::new(context, PAIR_BYTES / 2);
    let report = Rc::new(RefCell::new(Report::begin()));
    let is_whole = context.wait(tokio::task::LocalSet::new().run_until(async {
        let mut bar = Bar::new();
        let writers = Writers::start(&clients, PAIR_BYTES / 2, &report);
        let is_whole = writers.work(async |writers| fill(writers, pairs, &mut keys, &mut bar).await).await;
        bar.end(&format!("{} pairs", report.borrow().count()));
        is_whole
    }));
    let after = memory(context, first, &endpoints[0], "after");
    tidy(context, first)?;
    tidy_space(context, first)?;
    if !is_whole {
        return Err(Failure::new(code::INTERRUPTED, "check interrupted"));
    }
    let errors = report.borrow().errors();
    if !errors.is_empty() {
        print::out(errors.as_bytes())?;
        return Err(Failure::new(code::ERROR, ""));
    }
    let used = (after? - before) / f64::from(1 << 20);
    print::out(format!("PASS: Approximate system memory used : {used:.2} MB.\n").as_bytes())
}

async fn fill(writers: &Writers, pairs: u64, keys: &mut Keys, bar: &mut Bar) {
    for number in 0..pairs {
        writers.write(keys.next()).await;
        bar.draw(number, pairs, &format!("{number} pairs"));
    }
}

fn memory(context: &Context, client: &Client, endpoint: &Endpoint, when: &str) -> Outcome<f64> {
    let why = match context.wait(client.page(endpoint, "/metrics")) {
        Err(error) => format!("fetch error: {error}\n"),
        Ok(page) => {
            let line = page.lines().find_map(|line| line.strip_prefix(MEMORY)?.trim().parse::<f64>().ok());
            match line.filter(|bytes| *bytes > 0.0) {
                Some(bytes) => return Ok(bytes),
                None => format!("could not find: {MEMORY}\n"),
            }
        }
    };
    print::out(format!("{why}FAIL: Could not read {MEMORY} {when} the put operations.\n").as_bytes())?;
    Err(Failure::new(code::ERROR, ""))
}
