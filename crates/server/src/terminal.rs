//! Messages on standard output and standard error. If they cannot be written, the process continues all the same.

use std::fmt;
use std::io::{self, Write};

/// Writes to the standard output.
pub(crate) fn out(text: fmt::Arguments<'_>) {
    write(&mut io::stdout().lock(), text);
}

/// Writes to the standard error.
pub(crate) fn err(text: fmt::Arguments<'_>) {
    write(&mut io::stderr().lock(), text);
}

fn write(to: &mut dyn Write, text: fmt::Arguments<'_>) {
    let _ = to.write_fmt(text).and_then(|()| to.flush());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_nobody_reads_nothing_ends() {
        let (reader, mut writer) = io::pipe().expect("a pipe");
        drop(reader);
        write(&mut writer, format_args!("{}", "said"));
        let mut full = std::fs::OpenOptions::new().write(true).open("/dev/full").expect("a full device");
        write(&mut full, format_args!("{}", "said"));
    }
}
