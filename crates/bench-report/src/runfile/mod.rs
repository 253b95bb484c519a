//! The file that a run of `bench sweep` or `bench compare` is kept in: JSON, described in `docs/formats.md`.
//!
//! [`Run`] is what is in it. `writing` puts it in place whole or not at all, `reading` takes nothing that is not whole; `machine`
//! and `disk` find out what is written about the place of the measurement.

mod disk;
mod machine;
mod parameters;
mod reading;
mod row;
mod run;
mod writing;

pub(crate) use disk::Disk;
pub(crate) use machine::Machine;
pub(crate) use parameters::{Parameters, Value};
pub(crate) use reading::read;
pub(crate) use row::{Beside, Latency, Measured, Row, State};
pub(crate) use run::{FORMAT, Kind, Member, Run, Side, TOOL, VERSION};
pub(crate) use writing::{is_replaceable, is_same_file, replace, write};
