//! Going on with a run that is already in the file.

use std::path::Path;

use bench::BenchError;

use super::case::Case;
use super::options::Options;
use super::screen::words;
use crate::runfile::{self, Disk, Kind, Machine, Parameters, Run, Side, TOOL};

/// The run of `cases` in the file of `options`, or a new one.
pub(super) fn begin(options: &Options, cases: &[Case], side: Side) -> Result<Run, BenchError> {
    let disk = match &options.data_dir {
        None => None,
        Some(path) => Some(Disk::of(path).map_err(|error| BenchError::Io(path.display().to_string(), error))?),
    };
    if !options.out.exists() {
        let run = Run::begin(Kind::Sweep, options.label.clone(), options.command.clone(), options.plan(), vec![side]);
        return Ok(Run { disk, ..run });
    }
    let run = runfile::read(&options.out).map_err(|error| BenchError::Server(error.to_string()))?;
    check(&options.out, &run, options, cases, &side)?;
    // The run is only finished when the missing rows have been measured.
    Ok(Run { finished: run.finished.clone().filter(|_| is_whole(&run, cases)), ..run })
}

/// Whether every case has been measured.
pub(super) fn is_whole(run: &Run, cases: &[Case]) -> bool {
    let is_there = |case: &Case| run.row(case.table, &case.parameters).is_some_and(|row| row.result.is_measured());
    cases.iter().all(is_there)
}

/// Refuses a run to which further rows would not fit.
fn check(path: &Path, run: &Run, options: &Options, cases: &[Case], side: &Side) -> Result<(), BenchError> {
    let refuse = |why: String| {
        let path = path.display();
        Err(BenchError::Server(format!("`{path}` cannot be gone on with: {why}; choose another `--out`, or remove it")))
    };
    if run.kind != Kind::Sweep {
        return refuse("it is a comparison".into());
    }
    // Another version may measure something else under the same names.
    if run.tool != TOOL {
        return refuse(format!("it was measured by {}, and this is {TOOL}", run.tool));
    }
    let plan = options.plan();
    for (name, value) in plan.iter() {
        let own = run.plan.get(name);
        if own != Some(value) {
            let own = own.map_or("nothing".into(), ToString::to_string);
            return refuse(format!("its plan has {own} as `{name}`, this one {value}"));
        }
    }
    let Some(own) = run.sides.first() else { return refuse("it does not say which cluster was measured".into()) };
    if own.cluster != side.cluster {
        return refuse(format!("it is of cluster {}, and this is {}", own.cluster, side.cluster));
    }
    if own.version != side.version || own.name != side.name {
        let (old, new) = (format!("{} {}", own.name, own.version), format!("{} {}", side.name, side.version));
        return refuse(format!("it is of {old}, and this is {new}"));
    }
    let here = Machine::here();
    if (&run.machine.cpu, run.machine.cores) != (&here.cpu, here.cores) {
        return refuse("it was measured from another machine".into());
    }
    for (number, row) in run.rows.iter().enumerate() {
        let is_same = |table: &str, parameters: &Parameters| table == row.table && *parameters == row.parameters;
        if !cases.iter().any(|case| is_same(case.table, &case.parameters)) {
            return refuse(format!("its plan has no row `{}`", words(&row.table, &row.parameters)));
        }
        if run.rows[..number].iter().any(|row| is_same(&row.table, &row.parameters)) {
            return refuse(format!("it has the row `{}` twice", words(&row.table, &row.parameters)));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::tables::cases;
    use super::*;
    use crate::runfile::{Measured, Row};

    #[test]
    fn only_the_same_run_is_gone_on_with() {
        let parse = |line: &str| {
            let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
            Options::parse(&words).expect("options")
        };
        let side =
            |cluster: &str, version: &str| Side { cluster: cluster.into(), version: version.into(), ..Side::default() };
        let options = parse("--out run.json --quick --only put");
        let cases = cases(&options);
        let mut run = begin(&options, &cases, side("a", "1")).expect("there is no such file");
        let refused = |run: &Run, line: &str, side: Side| {
            check(Path::new("run.json"), run, &parse(line), &cases, &side)
                .err()
                .map(|error| error.to_string())
                .unwrap_or_default()
        };
        assert_eq!(refused(&run, "--out run.json --quick --only put --label x", side("a", "1")), "");
        let other = refused(&run, "--out run.json --only put", side("a", "1"));
        assert!(other.contains("its plan has yes as `quick`, this one no"), "{other}");
        assert!(
            refused(&run, "--out run.json --quick --only put", side("b", "1")).contains("of cluster a, and this is b")
        );
        assert!(refused(&run, "--out run.json --quick --only put", side("a", "2")).contains("and this is  2"));
        let row = |case: &Case| Row {
            table: case.table.into(),
            parameters: case.parameters.clone(),
            result: Measured::default(),
        };
        let same = "--out run.json --quick --only put";
        run.rows = cases[1..].iter().map(row).collect();
        assert_eq!((refused(&run, same, side("a", "1")).as_str(), is_whole(&run, &cases)), ("", false));
        run.rows.push(row(&cases[1]));
        assert!(refused(&run, same, side("a", "1")).contains("it has the row `put, clients"));
        run.rows.pop();
        run.rows.push(row(&cases[0]));
        assert!(is_whole(&run, &cases));
        run.rows.push(Row { table: "putt".into(), ..row(&cases[0]) });
        assert!(refused(&run, same, side("a", "1")).contains("its plan has no row `putt, clients"));
        run.rows.pop();
        let older = Run { tool: "cairn 0.0.0".into(), ..run.clone() };
        assert!(refused(&older, same, side("a", "1")).contains("it was measured by cairn 0.0.0, and this is cairn "));
        run.kind = Kind::Compare;
        assert!(refused(&run, "--out run.json --quick --only put", side("a", "1")).contains("it is a comparison"));
    }
}
