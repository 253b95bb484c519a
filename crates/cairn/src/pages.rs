//! The pages of all commands: completions and man pages are made of them.

use flags::Page;
use std::io;
use std::path::Path;

/// `cairn` with everything under it.
pub(crate) fn whole() -> Page {
    let small = |name: &str, arguments: &str, help: &str| Page {
        name: name.into(),
        arguments: arguments.into(),
        help: help.into(),
        ..Page::default()
    };
    let shells = ["bash", "fish", "powershell", "zsh"].map(|shell| small(shell, "", "for this shell"));
    let completion = Page {
        commands: shells.into(),
        ..small("completion", "bash|zsh|fish|powershell", "Prints completions, for all names of the binary")
    };
    let mut commands = cli::pages();
    commands.extend([
        Page { help: "Measures a cluster: etcd's benchmark, sweeps and comparisons".into(), ..bench_report::page() },
        completion,
        proxy::page(),
        relay::page(),
        server::local_page(),
        small("help", "[--man DIR]", "Lists the flags of a member, or writes man pages"),
        server::page(),
        small("version", "", "Prints the version"),
    ]);
    commands.sort_by(|one, other| one.name.cmp(&other.name));
    Page {
        name: "cairn".into(),
        arguments: "[command] [flags]".into(),
        help: "a distributed key-value store that speaks the etcd v3 protocol".into(),
        notes: "Under the names etcd, etcdctl, etcdutl and benchmark the binary is that program. Without a command it is `cairn serve`.".into(),
        flags: Vec::new(),
        commands,
    }
}

/// The program `etcd`: a member, and the other commands that etcd's server has.
pub(crate) fn etcd() -> Page {
    let mut page = server::page();
    page.commands.extend([proxy::page(), relay::page()]);
    page
}

/// Writes `cairn.1` and a page for each command into `dir`; returns how many.
pub(crate) fn write_manual(dir: &Path) -> io::Result<usize> {
    std::fs::create_dir_all(dir)?;
    let whole = whole();
    let version = env!("CARGO_PKG_VERSION");
    for page in &whole.commands {
        let name = format!("cairn-{}", page.name);
        let text = flags::man(page, &name, &format!("cairn {}", page.name), version);
        std::fs::write(dir.join(format!("{name}.1")), text)?;
    }
    // The commands have pages of their own.
    let mut root = whole.clone();
    for page in &mut root.commands {
        (page.flags, page.commands, page.notes) = (Vec::new(), Vec::new(), format!("See cairn-{}(1).", page.name));
    }
    std::fs::write(dir.join("cairn.1"), flags::man(&root, "cairn", "cairn", version))?;
    Ok(whole.commands.len() + 1)
}
