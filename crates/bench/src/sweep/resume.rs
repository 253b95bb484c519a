//! Going on with a run that is already in the file.

use std::path::Path;

use super::options::Options;
use crate::BenchError;
use crate::runfile::{self, Disk, Kind, Machine, Run, Side};

/// The run in the file of `options`, or a new one.
pub(super) fn begin(options: &Options, side: Side) -> Result<Run, BenchError> {
    let disk = match &options.data_dir {
        None => None,
        Some(path) => Some(Disk::of(path).map_err(|error| BenchError::Io(path.display().to_string(), error))?),
    };
    if !options.out.exists() {
        let run = Run::begin(Kind::Sweep, options.label.clone(), options.command.clone(), options.plan(), vec![side]);
        return Ok(Run { disk, ..run });
    }
    let run = runfile::read(&options.out).map_err(|error| BenchError::Server(error.to_string()))?;
    check(&options.out, &run, options, &side)?;
    Ok(run)
}

/// Refuses a run that the rows to come would not belong to.
fn check(path: &Path, run: &Run, options: &Options, side: &Side) -> Result<(), BenchError> {
    let refuse = |why: String| {
        let path = path.display();
        Err(BenchError::Server(format!("`{path}` cannot be gone on with: {why}; choose another `--out`, or remove it")))
    };
    if run.kind != Kind::Sweep {
        return refuse("it is a comparison".into());
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
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_same_run_is_gone_on_with() {
        let parse = |line: &str| {
            let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
            Options::parse(&words).expect("options")
        };
        let side =
            |cluster: &str, version: &str| Side { cluster: cluster.into(), version: version.into(), ..Side::default() };
        let options = parse("--out run.json --quick --only put");
        let mut run = begin(&options, side("a", "1")).expect("there is no such file");
        let refused = |run: &Run, line: &str, side: Side| {
            check(Path::new("run.json"), run, &parse(line), &side)
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
        run.kind = Kind::Compare;
        assert!(refused(&run, "--out run.json --quick --only put", side("a", "1")).contains("it is a comparison"));
    }
}
