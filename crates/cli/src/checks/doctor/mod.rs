//! `cairn doctor`: checks the machine, its disk and the other members, and reports faults, the size of cluster that this machine can
//! serve, and what to set.

mod advice;
mod class;
mod clocks;
mod cluster;
mod finding;
mod machine;
mod storage;

use super::disk::{Place, Steady, measure as measure_disk};
use super::format::{Grade, columns};
use super::network::{Rule, Trip, measure as measure_network};
use super::{DATA_DIR, JSON, network, wants_json};
use crate::command::{Command, Context, command};
use crate::failure::{Failure, Outcome, code};
use crate::print;
use crate::print::json::Object;
use advice::Advice;
use class::Fit;
use finding::Finding;
use machine::Machine;

pub(super) const COMMAND: Command =
    command("doctor", "", "Looks at the machine and the cluster, and says what to set", run).with(&[DATA_DIR, JSON]);

/// What the disk is tested with: less than `check disk` writes, enough for a p99.
const DISK_BYTES: u64 = 4 << 20;
const BLOCK_BYTES: usize = 2300;
/// Requests to each member.
const REQUESTS: usize = 50;

/// Everything that was found out.
struct Report {
    place: Outcome<Place>,
    disk: Option<Outcome<Steady>>,
    machine: Machine,
    trips: Option<Outcome<Vec<Trip>>>,
    /// Revisions that are kept by a cluster that is compacted.
    kept: Option<u64>,
    findings: Vec<Finding>,
}

fn run(context: &Context) -> Outcome {
    if !context.args().is_empty() {
        return Err(Failure::args(
            "doctor takes no arguments: name a directory with --data-dir, members with --endpoints",
        ));
    }
    let wants_json = wants_json(&context.parsed)?;
    let report = examine(context)?;
    // A file system in memory says nothing about a disk.
    let disk = report.steady().filter(|_| report.place.as_ref().is_ok_and(|place| !place.is_memory()));
    let fit = class::fit(&report.machine, disk);
    let advice = advice::all(&report, fit.class());
    let text = if wants_json { json(&report, &fit, &advice) + "\n" } else { shown(&report, &fit, &advice) };
    print::out(text.as_bytes())?;
    let is_sick = report.findings.iter().any(|finding| finding.grade == Grade::Fail);
    if is_sick { Err(Failure::new(code::ERROR, "")) } else { Ok(()) }
}

fn examine(context: &Context) -> Outcome<Report> {
    let place = Place::find(context.parsed.text("data-dir"));
    let disk = place.as_ref().ok().map(|place| measure_disk(context, place, DISK_BYTES, BLOCK_BYTES));
    // A signal during the disk test ends the whole command.
    let disk = match disk {
        Some(Err(failure)) if failure.code == code::INTERRUPTED => return Err(failure),
        disk => disk,
    };
    let machine = Machine::look(place.as_ref().ok().map(Place::dir));
    let was_asked = context.parsed.is_given("endpoints") || context.parsed.is_given("discovery-srv");
    let asked = if was_asked || cluster::is_somebody_there(context) { Some(cluster::ask(context)) } else { None };
    let trips = match &asked {
        Some(Ok(_)) => {
            Some(network::of_cluster(context).and_then(|targets| measure_network(context, targets, REQUESTS)))
        }
        _ => None,
    };
    let kept = asked.as_ref().and_then(|asked| cluster::kept(asked.as_ref().ok()?));
    let mut report = Report { place, disk, machine, trips, kept, findings: Vec::new() };
    let is_named = context.parsed.is_given("data-dir") || std::env::var_os("ETCD_DATA_DIR").is_some();
    let mut findings = machine::findings(&report.machine);
    findings.extend(storage::findings(&report, is_named));
    findings.extend(clocks::findings(&report));
    match asked {
        Some(Ok(members)) => {
            findings.extend(network_findings(report.trips.as_ref()));
            findings.extend(cluster::findings(&members));
        }
        Some(Err(failure)) => {
            let text = format!("no member answers at {}: {}", context.parsed.text("endpoints"), failure.text);
            findings.push(Finding::new("cluster", Grade::Fail, text));
        }
        None => {
            let text = "not looked at: nobody is at 127.0.0.1:2379; name members with --endpoints";
            findings.push(Finding::new("cluster", Grade::Info, text));
        }
    }
    report.findings = findings;
    Ok(report)
}

fn network_findings(trips: Option<&Outcome<Vec<Trip>>>) -> Vec<Finding> {
    match trips {
        None => Vec::new(),
        Some(Err(failure)) => vec![Finding::new("network", Grade::Fail, failure.text.clone())],
        Some(Ok(trips)) => {
            let of = |trip: &Trip| Finding::new("network", trip.grade(Rule::DEFAULT), trip.verdict(Rule::DEFAULT));
            trips.iter().map(of).collect()
        }
    }
}

impl Report {
    fn steady(&self) -> Option<&Steady> {
        self.disk.as_ref()?.as_ref().ok()
    }

    fn reached(&self) -> &[Trip] {
        match &self.trips {
            Some(Ok(trips)) => trips,
            _ => &[],
        }
    }
}

fn shown(report: &Report, fit: &Fit, advice: &[Advice]) -> String {
    let mut out = String::new();
    let wide = report.findings.iter().map(|finding| finding.name.len()).max().unwrap_or_default();
    for Finding { name, grade, text } in &report.findings {
        out += &format!("  {}  {name:<wide$}  {text}\n", grade.shown());
    }
    out += &format!("\nSize class by etcd's hardware guide: {}\n", fit.verdict());
    let rows: Vec<Vec<String>> = fit.parts.iter().map(class::Part::row).collect();
    out += &columns(&["", "here", "good for", "next"], &rows);
    out += "\nFlags to set\n";
    let flags: Vec<&Advice> = advice.iter().filter(|advice| advice.is_flag()).collect();
    let wide = advice.iter().map(|advice| advice.setting.chars().count()).max().unwrap_or_default();
    let line = |advice: &Advice| format!("  {:<wide$}  {}\n", advice.setting, advice.why);
    out.extend(flags.into_iter().map(line));
    let others: Vec<&Advice> = advice.iter().filter(|advice| !advice.is_flag()).collect();
    if !others.is_empty() {
        out += "\nTo set on the system\n";
        out.extend(others.into_iter().map(line));
    }
    out
}

fn json(report: &Report, fit: &Fit, advice: &[Advice]) -> String {
    let list = |items: Vec<String>| format!("[{}]", items.join(","));
    let object = Object::default().raw("findings", list(report.findings.iter().map(Finding::json).collect()));
    let object = match (&report.place, report.steady()) {
        (Ok(place), Some(steady)) => object.raw("disk", steady.json(place)),
        _ => object,
    };
    let members = report.reached().iter().map(|trip| trip.json(Rule::DEFAULT)).collect();
    let is_sick = report.findings.iter().any(|finding| finding.grade == Grade::Fail);
    object
        .raw("network", list(members))
        .raw("sizeClass", fit.json())
        .raw("settings", list(advice.iter().map(Advice::json).collect()))
        .text("verdict", Grade::of(!is_sick).name())
        .end()
}
