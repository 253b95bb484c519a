//! Calls by method, under the names of gRPC's own metrics.

use crate::services::METHODS;
use api::Code;
use rpc::frame::Reason;
use telemetry::metrics::Page;

/// Appends the families.
pub(super) fn write(page: &mut Page, stats: &rpc::Stats) {
    page.counter("etcd_network_client_grpc_received_bytes_total", "Bytes from clients.", stats.bytes_received());
    page.counter("etcd_network_client_grpc_sent_bytes_total", "Bytes to clients.", stats.bytes_sent());
    page.gauge("cairn_rpc_connections", "Open client connections.", stats.connections_open());
    let most = stats.connections_max();
    page.gauge("cairn_rpc_connections_max", "Client connections that may be open.", most);
    page.family("cairn_rpc_limit_hits_total", "counter", "How often clients ran into a limit of the transport.");
    for limit in rpc::Limit::ALL {
        page.labelled("cairn_rpc_limit_hits_total", &[("limit", limit.name())], stats.limit_hits(*limit));
    }
    let mut errors = |name: &str, help: &str, count: &dyn Fn(Reason) -> u64| {
        page.family(name, "counter", help);
        for (code, text) in Reason::ERRORS.iter().filter_map(|code| Some((code, code.error_name()?))) {
            page.labelled(name, &[("code", text)], count(*code));
        }
    };
    let of_connections = |code| stats.connection_errors(code);
    errors("cairn_rpc_connection_errors_total", "Connections ended for what a client sent, by code.", &of_connections);
    let of_streams = |code| stats.stream_errors(code);
    errors("cairn_rpc_stream_errors_total", "Streams reset for what a client sent, by code.", &of_streams);
    let methods: Vec<(&rpc::Method, rpc::MethodCounts)> =
        METHODS.iter().enumerate().map(|(index, method)| (method, stats.method(index))).collect();
    let mut family = |name: &str, help: &str, value: fn(&rpc::MethodCounts) -> u64| {
        page.family(name, "counter", help);
        for (method, counts) in &methods {
            page.labelled(name, &labels(method), value(counts));
        }
    };
    family("grpc_server_started_total", "Calls begun.", |counts| counts.started);
    family("grpc_server_msg_received_total", "Messages received.", |counts| counts.messages_received);
    family("grpc_server_msg_sent_total", "Messages sent.", |counts| counts.messages_sent);
    page.family("grpc_server_handled_total", "counter", "Calls ended, by code.");
    for (method, counts) in &methods {
        let [kind, service, name] = labels(method);
        for (code, count) in Code::ALL.iter().zip(counts.handled) {
            let all = [("grpc_code", code.name()), name, service, kind];
            page.labelled("grpc_server_handled_total", &all, count);
        }
    }
    times(page, stats);
}

/// How long calls took, if that is counted.
fn times(page: &mut Page, stats: &rpc::Stats) {
    let name = "grpc_server_handling_seconds";
    page.family(name, "histogram", "From the headers of a call to its end.");
    for (index, method) in METHODS.iter().enumerate() {
        let Some(times) = stats.times(index) else { return };
        let labels = labels(method);
        let mut total = 0;
        let bounds = rpc::TIME_BOUNDS_MS.iter().map(|ms| (*ms as f64 / 1e3).to_string());
        for (bound, count) in bounds.chain(["+Inf".to_string()]).zip(times.buckets) {
            total += count;
            let [kind, service, method] = labels;
            page.labelled("grpc_server_handling_seconds_bucket", &[kind, service, method, ("le", &bound)], total);
        }
        page.labelled("grpc_server_handling_seconds_sum", &labels, times.total.as_secs_f64());
        page.labelled("grpc_server_handling_seconds_count", &labels, total);
    }
}

fn labels(method: &rpc::Method) -> [(&'static str, &'static str); 3] {
    let kind = match method.kind {
        rpc::Kind::Unary => "unary",
        rpc::Kind::ClientStream => "client_stream",
        rpc::Kind::ServerStream => "server_stream",
        rpc::Kind::Bidi => "bidi_stream",
    };
    let (service, name) = method.path.trim_start_matches('/').split_once('/').unwrap_or_default();
    [("grpc_type", kind), ("grpc_service", service), ("grpc_method", name)]
}
