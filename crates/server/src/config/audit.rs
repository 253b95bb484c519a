//! The audit log.

use super::values::Values;
use telemetry::audit::Target;

/// Where requests are recorded, and which.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Audit {
    /// The file, or standard error.
    pub target: Target,
    /// Reads too.
    pub reads: bool,
}

pub(super) fn read(values: &mut Values) -> Option<Audit> {
    let reads = values.is_on("audit-log-reads");
    let target = match values.get("audit-log") {
        "" => None,
        "stderr" => Some(Target::Stderr),
        path => Some(Target::File(path.strip_prefix("file://").unwrap_or(path).into())),
    };
    if reads && target.is_none() {
        values.warnings.push("--audit-log-reads has no effect without --audit-log".into());
    }
    target.map(|target| Audit { target, reads })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn audit(args: &[&str]) -> (Option<Audit>, usize) {
        let mut values = super::super::flags::parse(args.iter().map(|arg| arg.to_string())).expect("flags");
        let audit = read(&mut values);
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
    }
}
