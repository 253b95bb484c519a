//! The command line and the environment as they may be shown: without passwords.

/// Stands for what is not shown.
const HIDDEN: &str = "***";
/// A flag, variable or option with such a word in its name holds a secret itself; those that name files do not.
const SECRET: [&str; 4] = ["password", "passwd", "secret", "credential"];
/// The flag that holds a name, and after a colon a password.
const USER: &str = "discovery-user";

/// The words of a command line.
pub(crate) fn command_line(words: impl Iterator<Item = String>) -> Vec<String> {
    // The flag whose value is the next word.
    let mut flag: Option<String> = None;
    words
        .map(|word| match (flag.take(), word.strip_prefix('-')) {
            (Some(name), _) => value(&name, &word),
            (None, Some(rest)) => match word.split_once('=') {
                Some((name, given)) => format!("{name}={}", value(name.trim_start_matches('-'), given)),
                None => {
                    let name = rest.trim_start_matches('-');
                    flag = holds_secret(name).then(|| name.to_string());
                    word
                }
            },
            (None, None) => without_userinfo(&word),
        })
        .collect()
}

/// The value of a flag or variable.
pub(crate) fn value(name: &str, given: &str) -> String {
    match given.split_once(':') {
        _ if given.is_empty() => String::new(),
        Some((user, _)) if name.eq_ignore_ascii_case(USER) || is_variable_of_user(name) => format!("{user}:{HIDDEN}"),
        _ if is_secret(name) => HIDDEN.into(),
        _ => without_userinfo(given),
    }
}

fn is_variable_of_user(name: &str) -> bool {
    name.to_ascii_lowercase().replace('_', "-").ends_with(USER)
}

fn is_secret(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    SECRET.iter().any(|word| name.contains(word))
}

fn holds_secret(name: &str) -> bool {
    is_secret(name) || name.eq_ignore_ascii_case(USER)
}

/// The text without the user part of URLs in it. It hides too much rather than too little: a password may hold a slash.
fn without_userinfo(text: &str) -> String {
    let hide = |part: &str| match part.split_once("://") {
        Some((scheme, rest)) => match rest.rsplit_once('@') {
            Some((_, host)) => format!("{scheme}://{HIDDEN}@{host}"),
            None => part.to_string(),
        },
        None => part.to_string(),
    };
    text.split(',').map(hide).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_are_hidden_and_the_rest_is_shown() {
        let words = [
            ("/usr/bin/cairn", "/usr/bin/cairn"),
            ("serve", "serve"),
            ("--name=a", "--name=a"),
            ("--discovery-user", "--discovery-user"),
            ("root:pa:ss", "root:***"),
            ("-discovery-user=root:pass", "-discovery-user=root:***"),
            ("--discovery-user=root", "--discovery-user=root"),
            ("--discovery-password", "--discovery-password"),
            ("--odd", "***"),
            ("--discovery-password=pass=word", "--discovery-password=***"),
            ("--discovery-password=", "--discovery-password="),
            ("--discovery-endpoints", "--discovery-endpoints"),
            ("https://u:p@a:1,https://b:2,https://u:p/w@c:3/x", "https://***@a:1,https://b:2,https://***@c:3/x"),
            ("--initial-cluster=a=http://u:p@a:1,b=http://b:1", "--initial-cluster=a=http://***@a:1,b=http://b:1"),
            ("--client-key-file=/secret/key.pem", "--client-key-file=/secret/key.pem"),
            ("--initial-cluster-token=etcd-cluster", "--initial-cluster-token=etcd-cluster"),
            ("a@b", "a@b"),
        ];
        let shown = command_line(words.iter().map(|(word, _)| word.to_string()));
        assert_eq!(shown, words.map(|(_, shown)| shown));
        for (name, given, shown) in [
            ("ETCD_ROOT_PASSWORD", "pass", "***"),
            ("ETCD_DISCOVERY_USER", "u:p", "u:***"),
            ("ETCD_UNKNOWN", "http://u:p@h", "http://***@h"),
            ("ETCD_PORT", "tcp", "tcp"),
        ] {
            assert_eq!(value(name, given), shown, "{name}");
        }
    }
}
