//! The sizes of clusters in etcd's hardware guide, and which of them this machine can serve.

use super::Machine;
use crate::checks::disk::Steady;
use crate::checks::format::{bytes, number};
use crate::print::json::Object;

/// A size.
#[derive(Debug, PartialEq)]
pub(super) struct Class {
    pub(super) name: &'static str,
    processors: u64,
    memory_bytes: u64,
    /// Synced writes a second.
    iops: f64,
    /// What such a cluster does.
    load: &'static str,
    /// What it is advised to take of data at most.
    pub(super) quota_bytes: u64,
}

const GIB: u64 = 1 << 30;

const CLASSES: [Class; 4] = [
    Class {
        name: "small",
        processors: 2,
        memory_bytes: 8 * GIB,
        iops: 50.0,
        load: "up to 100 clients, 200 requests a second and 100 MB of data",
        quota_bytes: 2 * GIB,
    },
    Class {
        name: "medium",
        processors: 4,
        memory_bytes: 16 * GIB,
        iops: 50.0,
        load: "up to 500 clients, 1,000 requests a second and 500 MB of data",
        quota_bytes: 4 * GIB,
    },
    Class {
        name: "large",
        processors: 8,
        memory_bytes: 32 * GIB,
        iops: 500.0,
        load: "up to 1,500 clients, 10,000 requests a second and 1 GB of data",
        quota_bytes: 8 * GIB,
    },
    Class {
        name: "xlarge",
        processors: 16,
        memory_bytes: 64 * GIB,
        iops: 500.0,
        load: "more than 1,500 clients, 10,000 requests a second or 1 GB of data",
        quota_bytes: 8 * GIB,
    },
];

/// Of the memory that is sold, the kernel keeps some for itself.
const MEMORY_SHARE: f64 = 0.9;

/// Processors, memory or disk.
pub(super) struct Part {
    name: &'static str,
    here: String,
    /// How many of the classes it is enough for.
    classes: usize,
    /// What the next class wants.
    next: Option<String>,
}

/// What the machine is good for.
pub(super) struct Fit {
    pub(super) parts: Vec<Part>,
    knows_memory: bool,
}

/// Holds the machine, and its disk if that was tested, against the classes.
pub(super) fn fit(machine: &Machine, disk: Option<&Steady>) -> Fit {
    let part = |name, here: String, value: f64, wanted: &dyn Fn(&Class) -> f64, shown: &dyn Fn(f64) -> String| {
        let classes = CLASSES.iter().take_while(|class| wanted(class) <= value).count();
        let next = CLASSES.get(classes).map(|class| format!("{} for {}", shown(wanted(class)), class.name));
        Part { name, here, classes, next }
    };
    let count = machine.processors;
    let mut parts =
        vec![part("processors", count.to_string(), count as f64, &|class| class.processors as f64, &number)];
    // What is not known keeps nothing from anything.
    if let Some(memory) = machine.memory_bytes {
        parts.push(part(
            "memory",
            bytes(memory),
            memory as f64 / MEMORY_SHARE,
            &|class| class.memory_bytes as f64,
            &|wanted| bytes(wanted as u64),
        ));
    }
    if let Some(steady) = disk {
        let shown = |iops: f64| format!("{}/s", number(iops));
        parts.push(part("synced writes", shown(steady.iops()), steady.iops(), &|class| class.iops, &shown));
    }
    Fit { parts, knows_memory: machine.memory_bytes.is_some() }
}

impl Fit {
    /// The largest class that every part is enough for.
    pub(super) fn class(&self) -> Option<&'static Class> {
        let count = self.parts.iter().map(|part| part.classes).min().unwrap_or_default();
        CLASSES.get(count.checked_sub(1)?)
    }

    /// Which parts keep it from the next class.
    fn reasons(&self) -> Vec<&'static str> {
        let least = self.parts.iter().map(|part| part.classes).min().unwrap_or_default();
        self.parts.iter().filter(|part| part.classes == least && part.next.is_some()).map(|part| part.name).collect()
    }

    pub(super) fn verdict(&self) -> String {
        let kept = match self.reasons() {
            reasons if reasons.is_empty() => String::new(),
            reasons => format!("; what keeps it there: {}", reasons.join(", ")),
        };
        let unknown = if self.knows_memory { "" } else { "; its memory is not known" };
        match self.class() {
            Some(class) => format!("{} ({}){kept}{unknown}", class.name, class.load),
            None => format!("below small{kept}{unknown}"),
        }
    }

    pub(super) fn json(&self) -> String {
        let parts: Vec<String> = self.parts.iter().map(Part::json).collect();
        let reasons: Vec<String> = self.reasons().iter().map(|reason| format!("\"{reason}\"")).collect();
        Object::default()
            .text("name", self.class().map_or("below small", |class| class.name))
            .raw("limitedBy", format!("[{}]", reasons.join(",")))
            .raw("parts", format!("[{}]", parts.join(",")))
            .end()
    }
}

impl Part {
    fn good_for(&self) -> &'static str {
        self.classes.checked_sub(1).and_then(|place| CLASSES.get(place)).map_or("less than small", |class| class.name)
    }

    pub(super) fn row(&self) -> Vec<String> {
        let next = self.next.clone().unwrap_or_else(|| "-".into());
        vec![self.name.into(), self.here.clone(), self.good_for().into(), next]
    }

    fn json(&self) -> String {
        let object =
            Object::default().text("name", self.name).text("here", &self.here).text("goodFor", self.good_for());
        match &self.next {
            Some(next) => object.text("next", next).end(),
            None => object.end(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::times::Times;
    use std::time::Duration;

    fn disk(iops: u64) -> Steady {
        let syncs = Times::new(vec![1; iops as usize]);
        Steady { block_bytes: 2300, took: Duration::from_secs(1), writes: Times::default(), syncs }
    }

    #[test]
    fn the_weakest_part_decides() {
        let of = |processors, gib: u64, iops| {
            let machine = Machine { processors, memory_bytes: Some(gib * GIB), ..Machine::default() };
            let fit = fit(&machine, Some(&disk(iops)));
            (fit.class().map(|class| class.name), fit.reasons())
        };
        assert_eq!(of(2, 24, 5000), (Some("small"), vec!["processors"]));
        assert_eq!(of(16, 15, 5000), (Some("medium"), vec!["memory"]), "15 of 16 GiB are what is left of 16");
        assert_eq!(of(16, 64, 499), (Some("medium"), vec!["synced writes"]));
        assert_eq!(of(16, 64, 500), (Some("xlarge"), vec![]));
        let unknown = Machine { processors: 2, memory_bytes: None, ..Machine::default() };
        let verdict = fit(&unknown, Some(&disk(5000))).verdict();
        assert!(verdict.starts_with("small (") && verdict.ends_with("memory is not known"), "{verdict}");
        assert_eq!(of(1, 64, 10), (None, vec!["processors", "synced writes"]));
    }
}
