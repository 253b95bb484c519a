//! `bench report`: a run as a page to look at.
//!
//! [`run`] reads the command line and the files; `view` finds rows in them, `sections` makes `chart`s of them and `table` tables,
//! `facts` is what else is told, and `page`, `markdown` and `summary` put those together.

mod chart;
mod facts;
mod markdown;
mod numbers;
mod page;
mod sections;
mod summary;
mod table;
#[cfg(test)]
mod tests;
mod text;
mod view;

use std::path::{Path, PathBuf};

use bench::BenchError;
pub(crate) use numbers::{bytes, count, rate, ratio, time_us};
pub(crate) use table::heading;
use view::{Partners, View};

use crate::runfile::{self, Kind, Run};
use crate::words;

const USAGE: &str = "\
usage: cairn bench report RUN.json [--baseline OTHER.json] [--out report.html] [--markdown FILE] [--json FILE]

Makes one HTML file of a run of `bench sweep` or `bench compare`: charts, the machine, all rows, and figures published of etcd.

  --out FILE       the page (RUN.html)
  --baseline FILE  another run of `bench sweep` to stand beside it, with ratios
  --markdown FILE  the same without charts as Markdown, too
  --json FILE      the same for programs, too
";

/// Runs the command. Returns the exit code: 0 if the files were written, 2 if not.
pub(crate) fn run(args: impl Iterator<Item = String>) -> i32 {
    let args: Vec<String> = args.collect();
    if args.iter().any(|arg| arg == "--help" || arg == "-h") {
        bench::say(USAGE);
        return 0;
    }
    match make(args) {
        Ok(told) => {
            bench::say(&(told + "\n"));
            0
        }
        Err(BenchError::Usage(text)) => {
            flags::say!("{text}\n\n{USAGE}");
            2
        }
        Err(error) => {
            flags::say!("{error}");
            2
        }
    }
}

fn make(args: Vec<String>) -> Result<String, BenchError> {
    let (words, mut flags) = words::sort(args.into_iter(), &[])?;
    let [path] = &words[..] else {
        return Err(BenchError::Usage(format!("one run is wanted, not {}", words.len())));
    };
    let path = Path::new(path);
    let out: PathBuf = flags.take("out")?.unwrap_or_else(|| path.with_extension("html"));
    let [baseline, markdown, json] = ["baseline", "markdown", "json"].map(|name| flags.take::<PathBuf>(name));
    let (baseline, markdown, json) = (baseline?, markdown?, json?);
    flags.end()?;
    let outputs: Vec<&Path> =
        [Some(&out), markdown.as_ref(), json.as_ref()].into_iter().flatten().map(PathBuf::as_path).collect();
    check_outputs(&outputs, &[Some(path), baseline.as_deref()].into_iter().flatten().collect::<Vec<_>>())?;
    let read = |path: &Path| runfile::read(path).map_err(|error| BenchError::Server(error.to_string()));
    let run = read(path)?;
    let other = baseline.as_deref().map(read).transpose()?;
    if let Some(other) = &other {
        check(&run, other)?;
    }
    let partners = Partners::of(other.as_ref());
    let view = View::new(&run, other.as_ref(), &partners);
    facts::of_baseline(view).iter().for_each(|text| flags::say!("{text}"));
    let mut written = Vec::new();
    let mut write = |path: &Path, text: String| {
        written.push(format!("`{}`", path.display()));
        runfile::replace(path, text.as_bytes()).map_err(|error| BenchError::Server(error.to_string()))
    };
    write(&out, page::html(view))?;
    if let Some(path) = &markdown {
        write(path, markdown::markdown(view))?;
    }
    if let Some(path) = &json {
        write(path, summary::json(view).map_err(|error| BenchError::Server(error.to_string()))?)?;
    }
    Ok(format!("{} rows written to {}", run.rows.len(), written.join(", ")))
}

/// Fails if an output would overwrite an input, or two outputs have the same file.
fn check_outputs(outputs: &[&Path], inputs: &[&Path]) -> Result<(), BenchError> {
    for (number, out) in outputs.iter().enumerate() {
        if inputs.iter().any(|input| runfile::is_same_file(input, out)) {
            let text = format!(
                "`{}` is a run, and would be replaced by what is said about it: choose another file",
                out.display()
            );
            return Err(BenchError::Usage(text));
        }
        if outputs[..number].iter().any(|other| runfile::is_same_file(other, out)) {
            let text = format!("`{}` is named twice: page, Markdown and JSON are three files", out.display());
            return Err(BenchError::Usage(text));
        }
    }
    Ok(())
}

/// Checks that two runs can be compared.
fn check(run: &Run, other: &Run) -> Result<(), BenchError> {
    if run.kind == Kind::Compare || other.kind == Kind::Compare {
        return Err(BenchError::Usage(
            "`--baseline` is for two runs of `bench sweep`: a comparison has both sides in it".into(),
        ));
    }
    Ok(())
}
