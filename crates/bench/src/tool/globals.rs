//! The flags of all sub-commands.

use flags::{Flag, Kind, duration, switch, text, uint};

/// The global flags, in alphabetical order.
pub(crate) const FLAGS: &[Flag] = &[
    duration("auto-sync-interval", "0s", "take the endpoints from the member list (asked for at the start)"),
    text("cacert", "", "file of the authority that the servers' certificates come from"),
    text("cert", "", "file of the client certificate"),
    uint("clients", "1", "clients, each with one request at a time, spread over the connections"),
    uint("conns", "1", "connections, spread over the endpoints"),
    duration("dial-timeout", "0s", "time for one attempt to connect (0: 5s); attempts go on until one succeeds"),
    duration("duration", "0s", "end after this long; without --total, however many requests that are"),
    Flag { kind: Kind::List, ..text("endpoints", "127.0.0.1:2379", "members to talk to, separated by commas") },
    switch("insecure-skip-tls-verify", "do not check the servers' certificates"),
    text("json", "", "write the run to this file too, one JSON object per line and report"),
    text("key", "", "file of the client certificate's key"),
    switch("precise", "print all digits of numbers"),
    switch("report-perfdash", "write percentiles for perfdash to the folder $ARTIFACTS (./_artifacts)"),
    switch("sample", "tell latency and throughput of every second"),
    switch("target-leader", "connect only to the leader"),
    text("user", "", "user, as name:password or name: then the password is asked for"),
];

pub(crate) const HELP: Flag = switch("help", "help for the command").or('h');
