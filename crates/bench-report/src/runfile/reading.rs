//! Reading a run.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use serde::Deserialize;

use super::{FORMAT, Run, VERSION};

/// No run is larger than this.
const FILE_BYTES_MAX: u64 = 64 << 20;

/// Why a file cannot be read as a run.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReadError {
    #[error("cannot read `{0}`: {1}")]
    Io(String, std::io::Error),
    #[error("`{0}` is larger than {limit} MiB: that is no run of `cairn bench`", limit = FILE_BYTES_MAX >> 20)]
    Size(String),
    #[error("`{0}` is no run of `cairn bench`: {1}")]
    Other(String, String),
    #[error("`{0}` is a run in version {1} of the format; this program reads version {VERSION}")]
    Version(String, u64),
}

/// The fields with which every version begins.
#[derive(Deserialize)]
struct Head {
    format: String,
    version: u64,
}

/// Reads the run in `path`, whole and checked.
pub(crate) fn read(path: &Path) -> Result<Run, ReadError> {
    let name = path.display().to_string();
    let mut text = String::new();
    let read = File::open(path).and_then(|file| file.take(FILE_BYTES_MAX + 1).read_to_string(&mut text));
    match read {
        Ok(bytes) if bytes as u64 > FILE_BYTES_MAX => return Err(ReadError::Size(name)),
        Ok(_) => {}
        Err(error) if error.kind() == std::io::ErrorKind::InvalidData => {
            return Err(ReadError::Other(name, "it is not text".into()));
        }
        Err(error) => return Err(ReadError::Io(name, error)),
    }
    parse(&name, &text)
}

fn parse(name: &str, text: &str) -> Result<Run, ReadError> {
    let other = |why: String| ReadError::Other(name.to_owned(), why);
    let head: Head = serde_json::from_str(text).map_err(|error| other(error.to_string()))?;
    if head.format != FORMAT {
        return Err(other(format!("its format is {:?}", head.format)));
    }
    if head.version != u64::from(VERSION) {
        return Err(ReadError::Version(name.to_owned(), head.version));
    }
    let run: Run = serde_json::from_str(text).map_err(|error| other(error.to_string()))?;
    for (number, row) in run.rows.iter().enumerate() {
        // JSON has no numbers that are not finite, but it has negative ones.
        if let Some((field, _)) = row.result.numbers().find(|(_, number)| !number.is_finite() || *number < 0.0) {
            return Err(other(format!("`{field}` of row {} is not a number from 0 on", number + 1)));
        }
    }
    Ok(run)
}

#[cfg(test)]
mod tests {
    use super::super::{Kind, Latency, Measured, Parameters, Row, Side, write};
    use super::*;

    fn sample() -> Run {
        let plan = Parameters::default().with("quick", "no");
        let mut run = Run::begin(Kind::Sweep, "a \"label\"".into(), vec!["cairn".into()], plan, vec![Side::default()]);
        let parameters = Parameters::default().with("zebra", 3_u64).with("apple", "x").with("ratio", 0.5);
        let us = Latency { mean: 1.5, p50: 1.0, p90: 2.0, p99: 3.0, p999: 4.0, max: 5.0 };
        let mut result =
            Measured { requests: 2, unsent: 3, succeeded: 1, rate: 1.5, latency_us: Some(us), ..Measured::default() };
        result.errors.insert("UNAVAILABLE".into(), 1);
        run.rows.push(Row { table: "put".into(), parameters, result });
        run
    }

    #[test]
    fn what_was_written_is_read_and_parameters_keep_their_order() {
        let dir = std::env::temp_dir().join(format!("cairn-runfile-{}", std::process::id()));
        std::fs::create_dir_all(&dir).expect("a directory");
        let path = dir.join("run.json");
        let run = sample();
        for _ in 0..2 {
            write(&path, &run).expect("room on the disk");
            assert_eq!(read(&path).expect("a run"), run);
        }
        let names: Vec<String> =
            read(&path).expect("a run").rows[0].parameters.iter().map(|(name, _)| name.into()).collect();
        assert_eq!(names, ["zebra", "apple", "ratio"]);
        let left: Vec<_> = std::fs::read_dir(&dir).expect("a directory").collect();
        assert_eq!(left.len(), 1, "no temporary file stays");
        assert!(write(&dir.join("absent/run.json"), &run).is_err_and(|error| error.to_string().contains("absent")));
        std::fs::remove_dir_all(&dir).expect("ours");
    }

    #[test]
    fn nothing_else_is_taken_for_a_run() {
        let whole = serde_json::to_string(&sample()).expect("plain data");
        let error = |text: &str| parse("f.json", text).err().map(|error| error.to_string()).unwrap_or_default();
        assert!(parse("f.json", &whole).is_ok());
        assert!(error("").starts_with("`f.json` is no run of `cairn bench`: EOF"));
        assert!(error("[1]").starts_with("`f.json` is no run"));
        assert!(error(r#"{"format":"x","version":1}"#).ends_with("its format is \"x\""));
        let newer = whole.replace("\"version\":1", "\"version\":9");
        assert_eq!(error(&newer), "`f.json` is a run in version 9 of the format; this program reads version 1");
        assert!(
            error(&whole.replace("\"rate\":1.5", "\"rate\":-1.5"))
                .ends_with("`rate` of row 1 is not a number from 0 on")
        );
        assert!(error(&whole.replace("\"rate\":1.5", "\"rate\":1e999")).starts_with("`f.json` is no run"));
        assert!(error(&whole.replace("\"apple\"", "\"zebra\"")).contains("`zebra` is there twice"));
        for end in 1..whole.len() {
            assert!(!error(&whole[..end]).is_empty(), "cut off at {end}");
        }
    }
}
