//! Where and how a run was made, and what a reader has to know before the figures: the same for page, Markdown and JSON.

use super::numbers::{bytes, count};
use super::table::heading;
use super::view::View;
use crate::runfile::{Disk, Machine, Parameters, Run, Side, State};

/// Names with values, under a title.
pub(super) struct Facts {
    pub(super) title: String,
    pub(super) list: Vec<(String, String)>,
}

impl Facts {
    fn new(title: impl Into<String>, list: impl IntoIterator<Item = (&'static str, String)>) -> Facts {
        let known = list.into_iter().filter(|(_, value)| !value.is_empty());
        Facts { title: title.into(), list: known.map(|(name, value)| (name.to_owned(), value)).collect() }
    }
}

/// Machine, disk, servers, plan and command of the run, then those of the baseline.
pub(super) fn facts(view: View<'_>) -> Vec<Facts> {
    let mut all = of_run(view.run, "");
    if let Some(other) = view.baseline {
        all.extend(of_run(other, "Baseline: "));
    }
    all
}

fn of_run(run: &Run, before: &str) -> Vec<Facts> {
    let title = |text: &str| {
        let mut title = format!("{before}{text}");
        title[..1].make_ascii_uppercase();
        title
    };
    let place = machine(&run.machine).into_iter().chain(run.disk.iter().flat_map(disk));
    let mut all = vec![Facts::new(title("machine of the load"), place)];
    all.extend(run.sides.iter().map(|side| of_side(side, before)));
    let mut plan = Facts::new(title("plan"), []);
    plan.list = run.plan.iter().map(|(name, value)| (heading(name), value.to_string())).collect();
    let more = [
        ("label", run.label.clone()),
        ("tool", run.tool.clone()),
        ("started", run.started.clone()),
        ("finished", run.finished.clone().unwrap_or_default()),
        ("command", run.command.join(" ")),
    ];
    plan.list.extend(Facts::new("", more).list);
    all.push(plan);
    all
}

fn machine(machine: &Machine) -> [(&'static str, String); 4] {
    let known = |number: u64, shown: String| if number == 0 { String::new() } else { shown };
    [
        ("processor", machine.cpu.clone()),
        ("cores", known(machine.cores, count(machine.cores))),
        ("memory", known(machine.memory_bytes, bytes(machine.memory_bytes as f64))),
        ("kernel", machine.kernel.clone()),
    ]
}

fn disk(disk: &Disk) -> [(&'static str, String); 2] {
    let model = disk.model.as_ref().map_or(String::new(), |model| format!(", {model}"));
    [("disk", format!("{} ({}){model}", disk.device, disk.file_system)), ("data", disk.path.clone())]
}

fn of_side(side: &Side, before: &str) -> Facts {
    let names: Vec<&str> = side.members.iter().map(|member| member.name.as_str()).collect();
    let list = [
        ("version", side.version.clone()),
        ("cluster", side.cluster.clone()),
        ("members", format!("{}: {}", names.len(), names.join(", "))),
        ("endpoints", side.endpoints.join(", ")),
    ];
    let mut facts = Facts::new(format!("{before}{}", side.name), list);
    facts.list.extend(side.settings.iter().map(|(name, value)| (name.clone(), value.clone())));
    facts
}

/// The warnings that a reader must see before the figures.
pub(super) fn warnings(view: View<'_>) -> Vec<String> {
    let run = view.run;
    let rows = |state: State| run.rows.iter().filter(|row| row.result.state == state).count();
    let errors = run.rows.iter().filter(|row| row.result.errors_all() > 0).count();
    let said = [
        (run.finished.is_none(), "The run is not finished: rows are missing.".to_owned()),
        (rows(State::Stopped) > 0, format!("{} rows were stopped before their end.", rows(State::Stopped))),
        (rows(State::LeftOut) > 0, format!("{} rows were left out; the tables say why.", rows(State::LeftOut))),
        (
            errors > 0,
            format!("{errors} rows have requests that failed; rates and latencies are of those that did not."),
        ),
    ];
    let own = said.into_iter().filter(|(is_so, _)| *is_so).map(|(_, text)| text);
    own.chain(of_baseline(view)).collect()
}

/// Warnings about differences that make the baseline unsuitable for a comparison.
pub(super) fn of_baseline(view: View<'_>) -> Vec<String> {
    let Some(other) = view.baseline else { return Vec::new() };
    let mut said = Vec::new();
    if other.finished.is_none() {
        said.push("The baseline is not finished: rows are missing there.".to_owned());
    }
    let differences = differences(view.run, other);
    if !differences.is_empty() {
        said.push(format!(
            "The baseline was made under other conditions, so that a ratio is not of the servers alone: {}.",
            differences.join("; ")
        ));
    }
    let alone = view.run.rows.iter().filter(|row| view.base(row).is_none()).count();
    if alone > 0 {
        let all = view.run.rows.len();
        said.push(format!("{} of {} rows have no partner in the baseline.", count(alone as u64), count(all as u64)));
    }
    said
}

/// The differences in plan, members, machine and disk: name, value here, value there.
fn differences(run: &Run, other: &Run) -> Vec<String> {
    let members = |run: &Run| {
        let members = run.sides.first().map_or(0, |side| side.members.len());
        [("members", members.to_string())]
    };
    let disks =
        |run: &Run| run.disk.as_ref().map(|disk| (disk.device.clone(), disk.file_system.clone(), disk.model.clone()));
    let mut found = of_plan(&run.plan, &other.plan);
    let both = members(run).into_iter().chain(machine(&run.machine));
    let others = members(other).into_iter().chain(machine(&other.machine));
    for ((name, own), (_, there)) in both.zip(others) {
        // An unknown value is no difference.
        if own != there && !own.is_empty() && !there.is_empty() {
            found.push(format!("{name} {own}, baseline {there}"));
        }
    }
    if let (Some(own), Some(there)) = (disks(run), disks(other))
        && own != there
    {
        found.push(format!("disk {} ({}), baseline {} ({})", own.0, own.1, there.0, there.1));
    }
    found
}

fn of_plan(own: &Parameters, other: &Parameters) -> Vec<String> {
    let names = own.iter().chain(other.iter().filter(|(name, _)| own.get(name).is_none())).map(|(name, _)| name);
    let shown = |plan: &Parameters, name: &str| plan.get(name).map_or("nothing".into(), ToString::to_string);
    names
        .filter(|name| own.get(name) != other.get(name))
        .map(|name| format!("{} {}, baseline {}", heading(name), shown(own, name), shown(other, name)))
        .collect()
}
