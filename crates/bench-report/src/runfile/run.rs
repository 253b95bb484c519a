//! A whole run.

use std::collections::BTreeMap;

use bench::utc_now;
use serde::{Deserialize, Serialize};

use super::{Disk, Machine, Parameters, Row};

/// The value of the field `format`.
pub(crate) const FORMAT: &str = "cairn-bench-run";
/// The version of the format that is written, and the only one that is read.
pub(crate) const VERSION: u32 = 1;

/// The value of the field `tool`.
pub(crate) const TOOL: &str = concat!("cairn ", env!("CARGO_PKG_VERSION"));

/// The command that made a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Kind {
    Sweep,
    Compare,
}

/// A run: what was measured, where and how.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Run {
    pub(crate) format: String,
    pub(crate) version: u32,
    /// Name and version of the program.
    pub(crate) tool: String,
    pub(crate) kind: Kind,
    /// The user's name for the run.
    pub(crate) label: String,
    /// The command line, without passwords.
    pub(crate) command: Vec<String>,
    /// Start time in UTC, in the format of RFC 3339.
    pub(crate) started: String,
    /// End time; `None` while rows are missing.
    pub(crate) finished: Option<String>,
    /// The parameters that determine the rows and how each is measured. A run can be resumed only with the same plan.
    pub(crate) plan: Parameters,
    /// The machine of the load generator.
    pub(crate) machine: Machine,
    /// The servers' disk, if they are on the same machine and the user has named their directory.
    pub(crate) disk: Option<Disk>,
    /// One cluster; two if they were compared.
    pub(crate) sides: Vec<Side>,
    pub(crate) rows: Vec<Row>,
}

/// A cluster that was measured.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Side {
    pub(crate) name: String,
    /// Version of the members' server.
    pub(crate) version: String,
    /// The cluster's id in hexadecimal digits.
    pub(crate) cluster: String,
    pub(crate) endpoints: Vec<String>,
    pub(crate) members: Vec<Member>,
    /// The visible part of the configuration, in words.
    pub(crate) settings: BTreeMap<String, String>,
}

/// A member as the cluster lists it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Member {
    pub(crate) name: String,
    /// The member's id in hexadecimal digits.
    pub(crate) id: String,
    pub(crate) is_learner: bool,
    pub(crate) client_urls: Vec<String>,
}

impl Side {
    /// A line of text that describes the servers.
    pub(crate) fn words(&self) -> String {
        let members =
            if self.members.len() == 1 { "1 member".into() } else { format!("{} members", self.members.len()) };
        format!("{} {}, {members}, {}", self.name, self.version, self.endpoints.join(", "))
    }
}

impl Run {
    /// A run without rows that begins now.
    pub(crate) fn begin(kind: Kind, label: String, command: Vec<String>, plan: Parameters, sides: Vec<Side>) -> Run {
        Run {
            format: FORMAT.into(),
            version: VERSION,
            tool: TOOL.into(),
            kind,
            label,
            command,
            started: utc_now(),
            finished: None,
            plan,
            machine: Machine::here(),
            disk: None,
            sides,
            rows: Vec::new(),
        }
    }

    /// The finished row of `table` with these parameters.
    pub(crate) fn row(&self, table: &str, parameters: &Parameters) -> Option<&Row> {
        self.rows.iter().find(|row| row.table == table && row.parameters == *parameters)
    }
}
