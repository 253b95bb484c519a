//! The audit log.

use super::ConfigError;
use super::values::{Values, unusable};
use telemetry::audit::Target;

/// Where requests are recorded, and which.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Audit {
    /// The file, or standard error.
    pub target: Target,
    /// Reads too.
    pub reads: bool,
}

pub(super) fn read(values: &mut Values) -> Result<Option<Audit>, ConfigError> {
    let reads = values.is_on("audit-log-reads");
    let target = match values.get("audit-log") {
        "" => None,
        "stderr" => Some(Target::Stderr),
        // What --log-outputs takes must not become a file of this name.
        word @ ("stdout" | "default" | "systemd/journal") => {
            return Err(unusable("audit-log", word, "it must be a file, or stderr"));
        }
        path => Some(Target::File(path.strip_prefix("file://").unwrap_or(path).into())),
    };
    if reads && target.is_none() {
        values.warnings.push("--audit-log-reads has no effect without --audit-log".into());
    }
    Ok(target.map(|target| Audit { target, reads }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn audit(args: &[&str]) -> (Option<Audit>, usize) {
        let mut values = super::super::flags::parse(args.iter().map(|arg| arg.to_string())).expect("flags");
        let audit = read(&mut values).expect("valid");
        (audit, values.warnings.len())
    }

    #[test]
    fn targets() {
        assert_eq!(audit(&[]), (None, 0));
        let stderr = Audit { target: Target::Stderr, reads: true };
        assert_eq!(audit(&["--audit-log=stderr", "--audit-log-reads"]), (Some(stderr), 0));
        let file = Audit { target: Target::File("/var/log/a".into()), reads: false };
        assert_eq!(audit(&["--audit-log", "/var/log/a"]), (Some(file), 0));
        assert_eq!(audit(&["--audit-log-reads"]), (None, 1));
        let here = Audit { target: Target::File("./stdout".into()), reads: false };
        assert_eq!(audit(&["--audit-log=./stdout"]), (Some(here), 0));
    }

    #[test]
    fn other_words_of_log_outputs_are_refused() {
        for word in ["stdout", "default", "systemd/journal"] {
            let mut values = super::super::flags::parse([format!("--audit-log={word}")]).expect("flags");
            let Err(ConfigError::Value(text)) = read(&mut values) else { panic!("{word} is taken") };
            assert_eq!(text, format!("cannot use {word:?} for --audit-log: it must be a file, or stderr"));
        }
    }
}
