//! What a program, a command or a group of them is called, takes and does: completions and man pages are made of it.

use std::fmt::Write;

/// A command, and those under it.
#[derive(Clone, Debug, Default)]
pub struct Page {
    /// The word by which it is called.
    pub name: String,
    /// What follows the name, `<key> [flags]`.
    pub arguments: String,
    /// What it is for, in one line.
    pub help: String,
    /// More about it.
    pub notes: String,
    /// Its flags.
    pub flags: Vec<Entry>,
    /// Commands under it.
    pub commands: Vec<Page>,
}

/// A flag of a [`Page`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Without dashes.
    pub name: String,
    /// The letter behind one dash, if it has one.
    pub short: Option<char>,
    /// Whether a value follows.
    pub takes_value: bool,
    /// The value when it is not given; may be empty.
    pub default: String,
    /// What it is for.
    pub help: String,
}

impl From<&crate::Flag> for Entry {
    fn from(flag: &crate::Flag) -> Entry {
        Entry {
            name: flag.name.into(),
            short: flag.short,
            takes_value: flag.kind != crate::Kind::Switch,
            default: flag.default.into(),
            help: flag.help.into(),
        }
    }
}

/// What may stand in the place of the last of `words`: a word and what it is, on a line each, then the line by which cobra tells a shell
/// not to propose files. After a flag that takes a value nothing is proposed, so that the shell proposes files.
pub fn complete(page: &Page, words: &[String], describes: bool) -> String {
    let (last, before) = words.split_last().map_or(("", words), |(last, before)| (last.as_str(), before));
    let (mut page, mut flags) = (page, page.flags.iter().collect::<Vec<_>>());
    let mut is_value = false;
    for word in before {
        if std::mem::take(&mut is_value) {
            continue;
        }
        if word.starts_with('-') {
            let name = word.trim_start_matches('-');
            is_value = flags.iter().any(|flag| flag.takes_value && flag.is_called(name));
        } else if let Some(found) = page.commands.iter().find(|command| command.name == *word) {
            page = found;
            flags.extend(&page.flags);
        }
    }
    if is_value {
        return ":0\n".into();
    }
    let line = |word: &str, help: &str| if describes { format!("{word}\t{help}\n") } else { format!("{word}\n") };
    let mut out = String::new();
    if last.starts_with('-') {
        let of =
            |flag: &&Entry| (format!("--{}{}", flag.name, if flag.takes_value { "=" } else { "" }), flag.help.clone());
        let named = flags.iter().map(of).filter(|(word, _)| word.starts_with(last));
        out.extend(named.map(|(word, help)| line(&word, &help)));
    } else {
        let begun = page.commands.iter().filter(|command| command.name.starts_with(last));
        out.extend(begun.map(|command| line(&command.name, &command.help)));
    }
    out + ":4\n"
}

impl Entry {
    fn is_called(&self, name: &str) -> bool {
        self.name == name || self.short.is_some_and(|short| name.chars().eq([short]))
    }
}

/// A man page of section 1: the command `name` (`cairn-ctl`), called as `called` (`cairn ctl`), with all commands under it.
pub fn man(page: &Page, name: &str, called: &str, version: &str) -> String {
    let mut out = String::new();
    put(&mut out, format_args!(".TH {} 1 \"\" \"Cairn {version}\" \"Cairn\"\n", text(&name.to_uppercase())));
    put(&mut out, format_args!(".SH NAME\n{} \\- {}\n", text(name), text(&page.help)));
    put(&mut out, format_args!(".SH SYNOPSIS\n.B {}\n{}\n", text(called), text(&page.arguments)));
    if !page.notes.is_empty() {
        put(&mut out, format_args!(".SH DESCRIPTION\n{}\n", paragraphs(&page.notes)));
    }
    if !page.flags.is_empty() {
        out.push_str(".SH OPTIONS\n");
        options(&mut out, &page.flags);
    }
    if !page.commands.is_empty() {
        out.push_str(".SH COMMANDS\n");
        for command in &page.commands {
            section(&mut out, command, called);
        }
    }
    out
}

/// A command under the one that has the page. Groups are two words deep: their own commands follow each other.
fn section(out: &mut String, page: &Page, called: &str) {
    let called = format!("{called} {}", page.name);
    put(out, format_args!(".SS {} {}\n{}.\n", text(&called), text(&page.arguments), text(&page.help)));
    if !page.notes.is_empty() {
        put(out, format_args!(".PP\n{}\n", paragraphs(&page.notes)));
    }
    options(out, &page.flags);
    for command in &page.commands {
        section(out, command, &called);
    }
}

fn options(out: &mut String, flags: &[Entry]) {
    for flag in flags {
        let short = flag.short.map_or(String::new(), |short| format!("\\-{short}, "));
        let value = if flag.takes_value { " \\fIvalue\\fR" } else { "" };
        let default = match flag.default.as_str() {
            "" | "false" => String::new(),
            default => format!(" (default {default})"),
        };
        let told = text(&format!("{}{default}", flag.help));
        put(out, format_args!(".TP\n{short}\\fB\\-\\-{}\\fR{value}\n{told}\n", text(&flag.name)));
    }
}

/// Lines that begin with blanks keep their look.
fn paragraphs(notes: &str) -> String {
    let mut out = String::from(".nf\n");
    notes.trim_end().lines().for_each(|line| put(&mut out, format_args!("{}\n", text(line))));
    out + ".fi"
}

/// A text that is no command of roff.
fn text(plain: &str) -> String {
    let escaped = plain.replace('\\', "\\e").replace('-', "\\-");
    if escaped.starts_with(['.', '\'']) { format!("\\&{escaped}") } else { escaped }
}

/// Writing to a string cannot fail.
fn put(out: &mut String, text: std::fmt::Arguments<'_>) {
    let _ = out.write_fmt(text);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(name: &str, takes_value: bool) -> Entry {
        Entry { name: name.into(), short: None, takes_value, default: String::new(), help: format!(".what {name} is") }
    }

    fn page() -> Page {
        let put =
            Page { name: "put".into(), help: "puts".into(), flags: vec![entry("total", true)], ..Page::default() };
        let watch = Page { name: "watch".into(), help: "watches".into(), ..Page::default() };
        let (flags, commands) = (vec![entry("clients", true), entry("precise", false)], vec![put, watch]);
        Page { name: "bench".into(), help: "measures".into(), flags, commands, ..Page::default() }
    }

    #[test]
    fn what_may_follow_is_proposed() {
        let proposed = |line: &str| {
            let words: Vec<String> = line.split(' ').map(String::from).collect();
            complete(&page(), &words, false)
        };
        assert_eq!(proposed(""), "put\nwatch\n:4\n");
        assert_eq!(proposed("p"), "put\n:4\n");
        assert_eq!(proposed("put --t"), "--total=\n:4\n");
        assert_eq!(proposed("put --"), "--clients=\n--precise\n--total=\n:4\n");
        assert_eq!(proposed("--precise p"), "put\n:4\n");
        assert_eq!(proposed("--clients p"), ":0\n", "a value, which may be a file");
        assert_eq!(proposed("--clients put w"), "watch\n:4\n", "`put` is a value");
        assert_eq!(complete(&page(), &["w".into()], true), "watch\twatches\n:4\n");
    }

    #[test]
    fn pages_have_everything_and_no_commands_by_accident() {
        let text = man(&page(), "cairn-bench", "cairn bench", "1.0");
        for part in [
            ".TH CAIRN\\-BENCH 1",
            "cairn\\-bench \\- measures",
            ".SS cairn bench put",
            "\\fB\\-\\-total\\fR",
            "\\&.what total is",
        ] {
            assert!(text.contains(part), "no {part} in\n{text}");
        }
        let known = [".TH", ".SH", ".SS", ".TP", ".B", ".PP", ".nf", ".fi"];
        for line in text.lines().filter(|line| line.starts_with('.')) {
            assert!(known.contains(&line.split(' ').next().unwrap_or_default()), "{line}");
        }
    }
}
