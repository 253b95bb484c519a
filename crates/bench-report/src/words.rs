//! The words of a command line, sorted before [`Arguments`] reads the flags.

use bench::{Arguments, BenchError};

/// Separates flags from other words. Flags in `switches` need no value: `--quick` means `--quick=true`.
pub(crate) fn sort(
    args: impl Iterator<Item = String>,
    switches: &[&str],
) -> Result<(Vec<String>, Arguments), BenchError> {
    let (mut words, mut flags) = (Vec::new(), Vec::new());
    let mut args = args;
    while let Some(arg) = args.next() {
        match arg.strip_prefix("--") {
            None => words.push(arg),
            Some(name) if switches.contains(&name) => flags.push(format!("{arg}=true")),
            Some(name) if name.contains('=') => flags.push(arg),
            Some(_) => {
                flags.push(arg);
                flags.extend(args.next());
            }
        }
    }
    Ok((words, Arguments::parse(flags.into_iter())?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn switches_need_no_value() {
        let line = "a --quick --out x b --label=y --strict=false".split(' ').map(str::to_owned);
        let (words, mut flags) = sort(line, &["quick", "strict"]).expect("flags");
        assert_eq!(words, ["a", "b"]);
        assert_eq!((flags.or("quick", false).ok(), flags.or("strict", true).ok()), (Some(true), Some(false)));
        assert_eq!(flags.take::<String>("out").ok().flatten().as_deref(), Some("x"));
    }
}
