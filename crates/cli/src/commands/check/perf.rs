//! `check perf`.

use super::report::Report;
use super::writers::Writers;
use super::{Keys, is_free, load, print_line, tidy, tidy_space};
use crate::command::Context;
use crate::failure::{Failure, Outcome, code};
use crate::print;
use crate::progress::Bar;
use client::Client;
use std::cell::RefCell;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// Writes a second, and clients, of each load.
const LOADS: [(u32, usize); 4] = [(150, 50), (1000, 200), (8000, 500), (15000, 1000)];
/// How long the load lasts.
const DURATION: Duration = Duration::from_secs(60);
/// Bytes of a key after the prefix, and of a value.
const KEY_BYTES: usize = 256;
const VALUE_BYTES: usize = 1024;
/// Writes that could not be begun in time are begun later, up to so much of it.
const BACKLOG: Duration = Duration::from_millis(5);
/// How often writes are begun.
const STEP: Duration = Duration::from_millis(1);

pub(super) fn run(context: &Context) -> Outcome {
    let (wanted, clients) = LOADS[load(context)?];
    context.printer()?;
    let clients = (0..clients).map(|_| context.client()).collect::<Outcome<Vec<Client>>>()?;
    let Some(first) = clients.first() else { unreachable!("every load has clients") };
    is_free(context, first, "'")?;
    let mut keys = Keys::new(context, KEY_BYTES);
    let report = Rc::new(RefCell::new(Report::begin()));
    let is_whole = context.wait(tokio::task::LocalSet::new().run_until(async {
        let mut bar = Bar::new();
        let writers = Writers::start(&clients, VALUE_BYTES, &report);
        let is_whole = writers.work(async |writers| pace(writers, wanted, &mut keys, &report, &mut bar).await).await;
        bar.end(&format!("{} writes", report.borrow().count()));
        is_whole
    }));
    let per_second = report.borrow().per_second();
    if let Err(error) = tidy(context, first) {
        print_line(&format!("FAIL: Cleanup failed during key deletion: ERROR({error})"));
    }
    tidy_space(context, first)?;
    if !is_whole {
        // As etcd's tool does: the verdict is on what there is.
        flags::say!("check interrupted");
    }
    let (text, is_good) = report.borrow().verdict(per_second, wanted);
    print::out(text.as_bytes())?;
    if is_good { Ok(()) } else { Err(Failure::new(code::ERROR, "")) }
}

/// Every client writes one key after the other, all of them together no more than `wanted` a second.
async fn pace(writers: &Writers, wanted: u32, keys: &mut Keys, report: &RefCell<Report>, bar: &mut Bar) {
    let (started, rate) = (Instant::now(), f64::from(wanted));
    let mut begun = 0.0;
    while started.elapsed() < DURATION {
        let due = started.elapsed().as_secs_f64() * rate;
        begun = f64::max(begun, due - BACKLOG.as_secs_f64() * rate - 1.0);
        while begun < due {
            writers.write(keys.next()).await;
            begun += 1.0;
        }
        let seconds = started.elapsed().as_secs();
        bar.draw(seconds, DURATION.as_secs(), &format!("{} writes", report.borrow().count()));
        tokio::time::sleep(STEP).await;
    }
}
