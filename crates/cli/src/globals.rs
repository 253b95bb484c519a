//! The flags that every command has.

use crate::failure::{Failure, Outcome, code};
use crate::flags::{Flag, Kind, Parsed, duration, int, switch, text};
use crate::print::go;
use crate::raw;
use client::{Client, Endpoint, Options, OptionsError, Security};
use std::sync::{Once, OnceLock};
use std::time::Duration;

pub(crate) const FLAGS: &[Flag] = &[
    Flag { kind: Kind::List, ..text("endpoints", "127.0.0.1:2379", "members to talk to, separated by commas") },
    switch("debug", "tell more"),
    text("write-out", "simple", "form of the output: simple, fields, json, protobuf or table").or('w'),
    switch("hex", "bytes in hexadecimal"),
    duration("dial-timeout", "2s", "time to connect to a member"),
    duration("command-timeout", "5s", "time for the command, connecting not counted"),
    duration("keepalive-time", "2s", "silence of a member after which it is pinged"),
    duration("keepalive-timeout", "6s", "time it has to answer that"),
    int("max-request-bytes", "0", "bytes of a request (0: no limit here)"),
    int("max-recv-bytes", "0", "bytes of an answer (0: no limit here)"),
    Flag { default: "true", ..switch("insecure-transport", "talk without TLS unless certificates are named") },
    Flag { default: "true", ..switch("insecure-discovery", "take endpoints without TLS from DNS") },
    switch("insecure-skip-tls-verify", "do not check the members' certificates"),
    text("cert", "", "file of the client certificate"),
    text("key", "", "file of its key"),
    text("cacert", "", "file of the authority that the members' certificates come from"),
    text("auth-jwt-token", "", "token (JWT) to use instead of user and password"),
    text("user", "", "user, as name or name:password"),
    text("password", "", "password of the user"),
    text("zone", "", "ask members of this zone before others; $CAIRN_ZONE says so, too"),
    text("discovery-srv", "", "domain whose SRV records name the members").or('d'),
    text("discovery-srv-name", "", "suffix of the service name in those records"),
    switch("help", "help for the command").or('h'),
];

/// Time to answer a ping when `--keepalive-timeout` is 0, which gRPC has then.
const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(20);
/// Time to connect to a member when `--dial-timeout` is 0.
const DIAL_TIMEOUT: Duration = Duration::from_secs(20);

/// What all variables of the tool begin with.
const VARIABLES: &str = "ETCDCTL_";

/// The variable of a flag. `--help` has none.
fn variable(flag: &Flag) -> Option<String> {
    (flag.name != "help").then(|| format!("{VARIABLES}{}", flag.name.to_ascii_uppercase().replace('-', "_")))
}

/// Puts `ETCDCTL_*` where no flag was given. What cannot be read counts for nothing, as it does with etcd's tool.
pub(crate) fn environment(parsed: &mut Parsed, read: impl Fn(&str) -> Option<String>) -> Outcome {
    for flag in FLAGS {
        let Some(variable) = variable(flag) else { continue };
        let Some(value) = read(&variable) else { continue };
        if parsed.is_given(flag.name) {
            // In the form of etcd's log, in which scripts look for it.
            let text = "conflicting environment variable is shadowed by corresponding command-line flag (either unset \
                        environment variable or disable flag))";
            flags::say!("{{\"level\":\"fatal\",\"msg\":\"{text}\",\"environment-variable\":\"{variable}\"}}");
            return Err(Failure::new(code::ERROR, ""));
        }
        if !value.is_empty() {
            let _ = parsed.suggest(flag, value);
        }
    }
    Ok(())
}

/// Says once, before the first connection, which variables mean nothing, and with `--debug` what all flags are.
fn announce(parsed: &Parsed) {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let variables: Vec<(String, String)> =
            std::env::vars_os().map(|(name, value)| (raw::word(&name), raw::word(&value))).collect();
        for (name, value) in unrecognized(&variables) {
            let text = go::quote(&raw::bytes(&format!("{name}={value}")));
            flags::say!(
                "{{\"level\":\"warn\",\"msg\":\"unrecognized environment variable\",\"environment-variable\":{text}}}"
            );
        }
        if parsed.switch("debug") {
            flags::say_bytes(&raw::bytes(&settings(parsed)));
        }
    });
}

/// Variables that look as if they meant something. Those of flags do only if they are not empty.
fn unrecognized(variables: &[(String, String)]) -> impl Iterator<Item = &(String, String)> {
    let is_known = |name: &str| FLAGS.iter().any(|flag| variable(flag).as_deref() == Some(name));
    variables.iter().filter(move |(name, value)| name.starts_with(VARIABLES) && (value.is_empty() || !is_known(name)))
}

/// All flags as variables would say them, secrets left out.
fn settings(parsed: &Parsed) -> String {
    let line = |flag: &Flag| {
        let name = variable(flag)?;
        let text = parsed.text(flag.name);
        let value = match (flag.name, flag.kind) {
            (_, Kind::List) => format!("[{text}]"),
            (_, Kind::Switch) => parsed.switch(flag.name).to_string(),
            (_, Kind::Int) => parsed.int(flag.name).to_string(),
            (_, Kind::Duration) => go::duration(parsed.duration(flag.name)),
            ("password" | "auth-jwt-token", _) if !text.is_empty() => "***".into(),
            ("user", _) => match text.split_once(':') {
                Some((name, _)) => format!("{name}:***"),
                None => text.into(),
            },
            _ => text.into(),
        };
        Some(format!("{name}={value}\n"))
    };
    let mut lines: Vec<String> = FLAGS.iter().filter_map(line).collect();
    lines.sort();
    lines.concat()
}

/// The endpoints that are meant.
pub(crate) fn endpoints(parsed: &Parsed) -> Outcome<Vec<Endpoint>> {
    if let Some(found) = discovered(parsed)? {
        return Ok(found);
    }
    if parsed.text("endpoints").is_empty() {
        return Err(Failure::new(code::BAD_CONNECTION, "etcdclient: no available endpoints"));
    }
    let named = parsed.text("endpoints").split(',').map(str::trim).filter(|text| !text.is_empty());
    let endpoints = named.map(|text| text.parse().map_err(|error| invalid(&error))).collect::<Outcome<Vec<_>>>()?;
    if endpoints.is_empty() { Err(invalid(&client::EndpointError::None)) } else { Ok(endpoints) }
}

/// The endpoints that `--discovery-srv` leads to.
fn discovered(parsed: &Parsed) -> Outcome<Option<Vec<Endpoint>>> {
    let domain = parsed.text("discovery-srv");
    if domain.is_empty() {
        return Ok(None);
    }
    let found = client::discover(domain, parsed.text("discovery-srv-name"));
    let found = found.map_err(|error| Failure::new(code::ERROR, error.to_string()))?;
    let takes_all = parsed.switch("insecure-discovery");
    let (kept, left): (Vec<_>, Vec<_>) = found.into_iter().partition(|endpoint| takes_all || endpoint.is_encrypted());
    for endpoint in left {
        flags::say!("ignoring discovered insecure endpoint {:?}", endpoint.as_str());
    }
    Ok(Some(kept).filter(|kept| !kept.is_empty()))
}

/// What the flags say about TLS. `prefix` is what those flags begin with.
fn security(parsed: &Parsed, prefix: &str) -> Outcome<Security> {
    let file = |name: &str| match parsed.text(&format!("{prefix}{name}")) {
        "" if prefix.is_empty() && parsed.is_given(name) => {
            Err(Failure::args(format!("empty string is passed to --{name} option")))
        }
        "" => Ok(None),
        path => Ok(Some(raw::path(path))),
    };
    let is_own = prefix.is_empty();
    let domain = Some(parsed.text("discovery-srv")).filter(|domain| is_own && !domain.is_empty());
    Ok(Security {
        cert: file("cert")?,
        key: file("key")?,
        authorities: file("cacert")?,
        server_name: domain.filter(|_| !parsed.switch("insecure-discovery")).map(String::from),
        skips_verification: is_own && parsed.switch("insecure-skip-tls-verify"),
        is_wanted: !parsed.switch(&format!("{prefix}insecure-transport")),
        is_nameless: false,
    })
}

/// For something that is not an endpoint: the exit code of etcd's tool, which tries to reach it, but at once and with the reason.
fn invalid(error: &client::EndpointError) -> Failure {
    Failure::new(code::ERROR, error.to_string())
}

/// User and password, which may be asked for on the terminal. `prefix` is what the flags begin with.
fn user(parsed: &Parsed, prefix: &str) -> Outcome<Option<(String, String)>> {
    // A failed login has an exit code of its own, whatever the reason.
    let given = |name: &str| {
        let text = raw::string(parsed.text(&format!("{prefix}{name}")));
        text.map_err(|failure| Failure { code: code::BAD_CONNECTION, ..failure })
    };
    let (user, password) = (given("user")?, given("password")?);
    if user.is_empty() {
        return Ok(None);
    }
    if !password.is_empty() {
        return Ok(Some((user, password)));
    }
    match user.split_once(':') {
        Some((name, password)) => Ok(Some((name.into(), password.into()))),
        None if prefix.is_empty() => Ok(Some((user, asked()?))),
        None => Ok(Some((user, crate::flags::password("Destination Password: ")?))),
    }
}

/// The password of `--user`, asked for once.
fn asked() -> Outcome<String> {
    static PASSWORD: OnceLock<String> = OnceLock::new();
    if let Some(password) = PASSWORD.get() {
        return Ok(password.clone());
    }
    let password = crate::flags::password("Password: ")?;
    Ok(PASSWORD.get_or_init(|| password).clone())
}

/// A client of `endpoints`. Some commands may take longer than `--command-timeout`.
pub(crate) fn client(parsed: &Parsed, endpoints: Vec<Endpoint>, call_timeout: Option<Duration>) -> Outcome<Client> {
    make(parsed, own(parsed, endpoints, call_timeout)?)
}

/// A client whose streams end when members know of no leader.
pub(crate) fn client_that_needs_a_leader(
    parsed: &Parsed,
    endpoints: Vec<Endpoint>,
    call_timeout: Duration,
) -> Outcome<Client> {
    make(parsed, Options { needs_leader: true, ..own(parsed, endpoints, Some(call_timeout))? })
}

fn own(parsed: &Parsed, endpoints: Vec<Endpoint>, call_timeout: Option<Duration>) -> Outcome<Options> {
    let token = Some(parsed.text("auth-jwt-token")).filter(|token| !token.is_empty());
    let user = if token.is_some() { None } else { user(parsed, "")? };
    let security = security(parsed, "")?;
    let zone = Some(parsed.text("zone").to_string()).filter(|zone| !zone.is_empty());
    let zone = zone.or_else(|| std::env::var("CAIRN_ZONE").ok().filter(|zone| !zone.is_empty()));
    let token = token.map(String::from);
    Ok(Options { endpoints, security, user, token, zone, ..options(parsed, call_timeout) })
}

/// A client of another cluster, which has flags of its own that begin with `prefix`.
pub(crate) fn client_at(
    parsed: &Parsed,
    endpoint: Endpoint,
    prefix: &str,
    call_timeout: Option<Duration>,
) -> Outcome<Client> {
    let (user, security) = (user(parsed, prefix)?, security(parsed, prefix)?);
    make(parsed, Options { endpoints: vec![endpoint], security, user, ..options(parsed, call_timeout) })
}

fn make(parsed: &Parsed, options: Options) -> Outcome<Client> {
    announce(parsed);
    Client::new(options).map_err(|error| match error {
        OptionsError::Endpoint(error) => invalid(&error),
        OptionsError::Security(why) => Failure::args(why),
    })
}

fn options(parsed: &Parsed, call_timeout: Option<Duration>) -> Options {
    let limit = |name: &str| usize::try_from(parsed.int(name)).ok().filter(|bytes| *bytes > 0);
    let default = Options::default();
    Options {
        // None is what gRPC has then.
        connect_timeout: match parsed.duration("dial-timeout") {
            Duration::ZERO => DIAL_TIMEOUT,
            timeout => timeout,
        },
        call_timeout,
        keepalive_interval: parsed.duration("keepalive-time").max(Duration::from_secs(10)),
        keepalive_timeout: match parsed.duration("keepalive-timeout") {
            Duration::ZERO => KEEPALIVE_TIMEOUT,
            timeout => timeout,
        },
        request_bytes_max: limit("max-request-bytes").unwrap_or(default.request_bytes_max),
        answer_bytes_max: limit("max-recv-bytes").unwrap_or(default.answer_bytes_max),
        ..default
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_are_taken_named_or_passed_over() {
        let mut parsed = crate::flags::parse(&[], FLAGS).expect("a command line");
        let read = |name: &str| match name {
            "ETCDCTL_HEX" => Some("bogus".into()),
            "ETCDCTL_USER" => Some("ann:word".into()),
            "ETCDCTL_DIAL_TIMEOUT" => Some("90s".into()),
            _ => None,
        };
        assert_eq!(environment(&mut parsed, read), Ok(()));
        let told = settings(&parsed);
        assert!(told.contains("ETCDCTL_HEX=false\n") && told.contains("ETCDCTL_DIAL_TIMEOUT=1m30s\n"), "{told}");
        assert!(
            told.contains("ETCDCTL_USER=ann:***\n") && told.contains("ETCDCTL_ENDPOINTS=[127.0.0.1:2379]\n"),
            "{told}"
        );
        assert!(!told.contains("HELP"), "{told}");
        let pair = |name: &str, value: &str| (name.to_string(), value.to_string());
        let variables =
            [pair("ETCDCTL_HEX", ""), pair("ETCDCTL_KEY", "k"), pair("ETCDCTL_API", "3"), pair("ETCDCTLX", "1")];
        let named: Vec<&str> = unrecognized(&variables).map(|(name, _)| &name[..]).collect();
        assert_eq!(named, ["ETCDCTL_HEX", "ETCDCTL_API"]);
    }
}
