//! The flags that every command has.

use crate::failure::{Failure, Outcome, code};
use crate::flags::{Flag, Parsed, duration, int, switch, text};
use client::{Client, Endpoint, Options};
use std::time::Duration;

pub(crate) const FLAGS: &[Flag] = &[
    text("endpoints", "127.0.0.1:2379", "members to talk to, separated by commas"),
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
    text("discovery-srv", "", "domain whose SRV records name the members").or('d'),
    text("discovery-srv-name", "", "suffix of the service name in those records"),
    switch("help", "help for the command").or('h'),
];

/// Puts `ETCDCTL_*` where no flag was given.
pub(crate) fn environment(parsed: &mut Parsed, read: impl Fn(&str) -> Option<String>) -> Outcome {
    for flag in FLAGS.iter().filter(|flag| flag.name != "help") {
        let variable = format!("ETCDCTL_{}", flag.name.to_ascii_uppercase().replace('-', "_"));
        if let Some(value) = read(&variable).filter(|value| !value.is_empty()) {
            parsed.suggest(flag, value)?;
        }
    }
    Ok(())
}

/// The endpoints that are meant.
pub(crate) fn endpoints(parsed: &Parsed) -> Outcome<Vec<Endpoint>> {
    let named = parsed.text("endpoints").split(',').map(str::trim).filter(|text| !text.is_empty());
    let endpoints = named.map(|text| text.parse().map_err(|error| invalid(&error))).collect::<Outcome<Vec<_>>>()?;
    if endpoints.is_empty() { Err(invalid(&client::EndpointError::None)) } else { Ok(endpoints) }
}

fn invalid(error: &client::EndpointError) -> Failure {
    Failure::new(code::INVALID_INPUT, error.to_string())
}

/// User and password, which may be asked for on the terminal.
fn user(parsed: &Parsed) -> Outcome<Option<(String, String)>> {
    let (user, password) = (parsed.text("user"), parsed.text("password"));
    if user.is_empty() {
        return Ok(None);
    }
    if !password.is_empty() {
        return Ok(Some((user.into(), password.into())));
    }
    match user.split_once(':') {
        Some((name, password)) => Ok(Some((name.into(), password.into()))),
        None => Ok(Some((user.into(), crate::terminal::password(&format!("Password for {user}: "))?))),
    }
}

/// A client of `endpoints`. Some commands may take longer than `--command-timeout`.
pub(crate) fn client(parsed: &Parsed, endpoints: Vec<Endpoint>, call_timeout: Option<Duration>) -> Outcome<Client> {
    let token = Some(parsed.text("auth-jwt-token")).filter(|token| !token.is_empty());
    let options = Options {
        endpoints,
        user: if token.is_some() { None } else { user(parsed)? },
        token: token.map(String::from),
        connect_timeout: parsed.duration("dial-timeout"),
        call_timeout,
        keepalive_interval: parsed.duration("keepalive-time").max(Duration::from_secs(10)),
        keepalive_timeout: parsed.duration("keepalive-timeout"),
        needs_leader: false,
    };
    Client::new(options).map_err(|error| invalid(&error))
}
