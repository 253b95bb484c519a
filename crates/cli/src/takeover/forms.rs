//! The lines for a member's host, in the form that its operator works with.

use super::host::Host;
use super::view::{Kind, plain};
use crate::failure::{Failure, Outcome};

/// A form of the lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    Shell,
    Systemd,
    Compose,
    StaticPod,
}

/// How far the flags of a command are indented below it.
const INDENT: &str = "  ";

impl Form {
    pub(super) fn parse(name: &str) -> Outcome<Form> {
        match name {
            "shell" => Ok(Form::Shell),
            "systemd" => Ok(Form::Systemd),
            "compose" => Ok(Form::Compose),
            "static-pod" => Ok(Form::StaticPod),
            _ => Err(Failure::args(format!("--print={name} is none of shell, systemd, compose and static-pod"))),
        }
    }

    /// What starts this member as the new program, after it was stopped if it runs.
    ///
    /// What is to be written into a file comes first. The commands after it are one for a shell: whatever fails, nothing after it runs.
    pub(super) fn lines(self, host: &Host) -> String {
        let mut out = format!("# on the host of {}:\n", plain(&host.name));
        let (to, old) = (host.to.word(), host.to.other().word());
        let (file, stop, starts) = match self {
            Form::Shell => (String::new(), format!("systemctl stop {old}"), vec![shell(host)]),
            Form::Systemd => {
                let mut starts = vec!["systemctl daemon-reload".into()];
                starts.extend(host.stops().then(|| format!("systemctl disable {old}")));
                starts.push(format!("systemctl enable --now {to}"));
                (systemd(host), format!("systemctl stop {old}"), starts)
            }
            Form::Compose => {
                let name = shell_word(&host.name);
                (compose(host), format!("docker compose stop {name}"), vec![format!("docker compose up -d {name}")])
            }
            Form::StaticPod => {
                let starts = vec![format!("mv /root/{to}.yaml /etc/kubernetes/manifests/")];
                (static_pod(host), format!("mv /etc/kubernetes/manifests/{old}.yaml /root/"), starts)
            }
        };
        out += &file;
        let mut commands: Vec<String> = host.stops().then_some(stop).into_iter().collect();
        if self == Form::StaticPod && host.stops() {
            out += &format!("{}\n# wait until the container is gone, then:\n", commands.join(""));
            commands.clear();
        }
        if let Some(words) = host.conversion() {
            commands.push(words.iter().map(|word| shell_word(word)).collect::<Vec<_>>().join(" "));
        }
        commands.extend(starts);
        out += &format!("{}\n", commands.join(" && \\\n"));
        for remark in host.remarks() {
            out += &format!("# {}\n", plain(&remark));
        }
        out
    }
}

/// The program and what it is told to be.
fn command(host: &Host) -> &'static [&'static str] {
    match host.to {
        Kind::Cairn => &["cairn", "serve"],
        Kind::Etcd => &["etcd"],
    }
}

fn shell(host: &Host) -> String {
    let flags: String = host.flags().iter().map(|flag| format!(" \\\n{INDENT}{}", shell_word(flag))).collect();
    format!("{}{flags}", command(host).join(" "))
}

fn systemd(host: &Host) -> String {
    let unit = host.to.word();
    let flags: String = host.flags().iter().map(|flag| format!(" \\\n{INDENT}{}", systemd_word(flag))).collect();
    format!(
        "# in /etc/systemd/system/{unit}.service, [Service]:\nExecStart=/usr/local/bin/{}{flags}\n# then:\n",
        command(host).join(" ")
    )
}

fn compose(host: &Host) -> String {
    let mut out = format!("# in compose.yaml:\nservices:\n  {}:\n", yaml_word(&host.name));
    // Cairn's image starts `etcd`, which is a name of the binary.
    let program = match host.to {
        Kind::Cairn => "    image: cairn\n    command:\n",
        Kind::Etcd => "    image: gcr.io/etcd-development/etcd:v3.7.3\n    command:\n      - etcd\n",
    };
    out += program;
    out.extend(host.flags().iter().map(|flag| format!("      - {}\n", flag_word(flag))));
    out += "# then:\n";
    out
}

/// The kubelet starts what lies in its directory, so the file is made elsewhere.
fn static_pod(host: &Host) -> String {
    let image = match host.to {
        Kind::Cairn => "cairn",
        Kind::Etcd => "registry.k8s.io/etcd:3.7.3-0",
    };
    let mut out = format!(
        "# in /root/{}.yaml, the container (all else as in the manifest that the member has):\n    image: {image}\n    command:\n    - etcd\n",
        host.to.word()
    );
    out.extend(host.flags().iter().map(|flag| format!("    - {}\n", flag_word(flag))));
    out += "# then:\n";
    out
}

/// What all forms take as it is.
fn is_simple(word: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./:,=@+[]".contains(c);
    !word.is_empty() && word.chars().all(is_plain)
}

/// A word for a shell. Names come from the cluster: nothing in them may be run.
fn shell_word(word: &str) -> String {
    let has_no_pattern = !word.contains(['[', ']']);
    if is_simple(word) && has_no_pattern { word.into() } else { format!("'{}'", word.replace('\'', "'\\''")) }
}

/// A word of `ExecStart`.
fn systemd_word(word: &str) -> String {
    if is_simple(word) {
        return word.into();
    }
    quoted(&word.replace('%', "%%").replace('$', "$$"))
}

/// In double quotes, as both systemd and YAML read them: control characters by their numbers, other text as it is.
fn quoted(word: &str) -> String {
    // What YAML takes for the end of a line, or for no text.
    let is_odd = |c: char| matches!(c, '\u{2028}' | '\u{2029}' | '\u{feff}' | '\u{fffe}' | '\u{ffff}');
    let escape = |c: char| match c {
        '"' | '\\' => format!("\\{c}"),
        _ if c.is_ascii_control() => format!("\\x{:02x}", u32::from(c)),
        _ if c.is_control() || is_odd(c) => format!("\\u{:04x}", u32::from(c)),
        _ => c.to_string(),
    };
    format!("\"{}\"", word.chars().map(escape).collect::<String>())
}

/// A flag in a file that is searched for variables before it is YAML: compose takes `$x`, Kubernetes `$(x)`, and both `$$` for one `$`.
fn flag_word(flag: &str) -> String {
    yaml_word(&flag.replace('$', "$$"))
}

/// A scalar of YAML.
fn yaml_word(word: &str) -> String {
    let is_bare =
        is_simple(word) && word.starts_with(|c: char| c.is_ascii_alphabetic() || c == '-') && !word.contains(": ");
    let is_list = word.contains(['[', ']', ',']) && !word.starts_with("--");
    // Words that YAML reads as something else than text.
    let is_special =
        ["true", "false", "yes", "no", "on", "off", "null", "y", "n", "-"].contains(&&*word.to_lowercase());
    if is_bare && !is_list && !is_special && !word.ends_with(':') { word.into() } else { quoted(word) }
}

#[cfg(test)]
mod tests {
    use super::super::host::tests::host;
    use super::super::settings::Way;
    use super::*;

    #[test]
    fn shells_get_a_whole_command() {
        let lines = Form::Shell.lines(&host(Way::InPlace, Kind::Cairn));
        let wanted =
            "# on the host of b:\nsystemctl stop etcd && \\\ncairn serve \\\n  --adopt-etcd-data \\\n  --name=b \\\n";
        assert!(lines.starts_with(wanted), "{lines}");
        assert!(lines.ends_with("--initial-cluster-state=new\n# and the other flags that this member's etcd has\n"));
        let lines = Form::Shell.lines(&host(Way::InPlace, Kind::Etcd));
        assert!(lines.contains(
            "systemctl stop cairn && \\\ncairn util export --data-dir /var/lib/etcd --to /var/lib/cairn && \\\netcd \\\n"
        ));
        let lines = Form::Shell.lines(&host(Way::NewAddresses, Kind::Cairn));
        assert!(!lines.contains("stop") && lines.contains("/var/lib/cairn must be empty or not there"), "{lines}");
    }

    #[test]
    fn other_forms_have_the_same_flags() {
        let host = host(Way::InPlace, Kind::Cairn);
        let lines = Form::Systemd.lines(&host);
        assert!(lines.contains("ExecStart=/usr/local/bin/cairn serve \\\n  --adopt-etcd-data \\\n"), "{lines}");
        let wanted = "# then:\nsystemctl stop etcd && \\\nsystemctl daemon-reload && \\\nsystemctl disable etcd && \\\nsystemctl enable --now cairn\n";
        assert!(lines.contains(wanted), "{lines}");
        let lines = Form::Compose.lines(&host);
        let wanted = "services:\n  b:\n    image: cairn\n    command:\n      - --adopt-etcd-data\n      - --name=b\n";
        assert!(lines.contains(wanted), "{lines}");
        let lines = Form::StaticPod.lines(&host);
        assert!(lines.contains("    command:\n    - etcd\n    - --adopt-etcd-data\n    - --name=b\n"), "{lines}");
        for form in [Form::Shell, Form::Systemd, Form::Compose, Form::StaticPod] {
            let lines = form.lines(&host);
            assert!(host.flags().iter().all(|flag| lines.contains(flag)), "{lines}");
        }
    }

    #[test]
    fn nothing_runs_after_a_failed_export() {
        let host = host(Way::InPlace, Kind::Etcd);
        let export = "cairn util export --data-dir /var/lib/etcd --to /var/lib/cairn && \\\n";
        for (form, before, start) in [
            (Form::Shell, "systemctl stop cairn && \\\n", "etcd \\\n"),
            (Form::Systemd, "systemctl stop cairn && \\\n", "systemctl daemon-reload && \\\n"),
            (Form::Compose, "docker compose stop b && \\\n", "docker compose up -d b\n"),
            (Form::StaticPod, "is gone, then:\n", "mv /root/etcd.yaml /etc/kubernetes/manifests/\n"),
        ] {
            let lines = form.lines(&host);
            assert!(lines.contains(&format!("{before}{export}{start}")), "{lines}");
        }
    }

    #[test]
    fn names_of_the_cluster_run_nothing() {
        let mut host = host(Way::InPlace, Kind::Cairn);
        host.name = "x'; rm -rf /; '$(id)\n%n".into();
        let lines = Form::Shell.lines(&host);
        assert!(lines.contains("'--name=x'\\''; rm -rf /; '\\''$(id)\n%n'"), "{lines}");
        assert!(lines.starts_with("# on the host of \"x'; rm -rf /; '$(id)\\n%n\":\n"), "{lines}");
        let lines = Form::Systemd.lines(&host);
        assert!(lines.contains("\"--name=x'; rm -rf /; '$$(id)\\x0a%%n\""), "{lines}");
        for form in [Form::Compose, Form::StaticPod] {
            let lines = form.lines(&host);
            assert!(lines.contains("- \"--name=x'; rm -rf /; '$$(id)\\x0a%n\"\n"), "{lines}");
        }
    }

    #[test]
    fn words_of_yaml_stay_text() {
        for (word, wanted) in [
            ("m1", "m1"),
            ("--name=m1", "--name=m1"),
            ("1", "\"1\""),
            ("no", "\"no\""),
            ("[x]", "\"[x]\""),
            ("", "\"\""),
            ("é\u{85}\t\u{2028}", "\"é\\u0085\\x09\\u2028\""),
            ("a\\\"b", "\"a\\\\\\\"b\""),
        ] {
            assert_eq!(yaml_word(word), wanted);
        }
        assert_eq!(systemd_word("--name=é$x%\u{1b}"), "\"--name=é$$x%%\\x1b\"");
        assert_eq!(flag_word("--name=$$(x)"), "\"--name=$$$$(x)\"");
        assert_eq!(shell_word("--listen=http://[::1]:1"), "'--listen=http://[::1]:1'");
    }
}
