//! Pages: health and metrics.

use api::Code;
use api::Message as _;
use api::etcdserverpb::RangeRequest;
use bytes::Bytes;
use client::Client;
use http::header::LOCATION;
use http::{HeaderValue, Method, Request, Response, StatusCode};
use rpc::{HttpResponder, Metadata};
use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use telemetry::metrics::Page;

use crate::question::Question;
use crate::service::Common;

/// How long a member may take to show that it serves, or its metrics.
const PATIENCE: Duration = Duration::from_secs(5);
/// The key that is read for that. It need not be there.
const HEALTH_KEY: &[u8] = b"health";

const METRICS_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// What there is beside gRPC.
pub(crate) struct Pages {
    common: Common,
    health: Arc<Question<HttpResponder>>,
    metrics: Arc<Question<HttpResponder>>,
}

/// An answer for all who wait for it.
type Answer = (StatusCode, &'static str, Bytes);

impl Pages {
    pub(crate) fn new(common: Common) -> Pages {
        Pages { common, health: Arc::default(), metrics: Arc::default() }
    }

    /// Answers a request.
    pub(crate) fn answer(&self, upstream: Client, request: &Request<Bytes>, responder: HttpResponder) {
        if request.method() != Method::GET {
            return send(responder, StatusCode::METHOD_NOT_ALLOWED, "text/plain", "Method Not Allowed\n".into());
        }
        match request.uri().path() {
            "/health" | "/proxy/health" => ask(&self.health, responder, || health(upstream)),
            "/metrics" => ask(&self.metrics, responder, || metrics(upstream)),
            "/proxy/metrics" => send(responder, StatusCode::OK, METRICS_TYPE, self.own().into()),
            "/debug/pprof" if self.common.has_profiles => {
                let mut response = Response::new(Bytes::new());
                *response.status_mut() = StatusCode::MOVED_PERMANENTLY;
                response.headers_mut().insert(LOCATION, HeaderValue::from_static("/debug/pprof/"));
                responder.send(response);
            }
            path if path.starts_with("/debug/pprof/") && self.common.has_profiles => {
                // No flag of the proxy has a password.
                let words = || std::env::args_os().map(|word| word.to_string_lossy().into_owned()).collect();
                pprof::answer(request.uri(), words, responder);
            }
            _ => send(responder, StatusCode::NOT_FOUND, "text/plain", "404 page not found\n".into()),
        }
    }

    fn own(&self) -> String {
        let mut page = Page::with_capacity(4096);
        telemetry::metrics::process::write(&mut page, host::open_files_limit());
        let watches = self.common.gauges.watches.load(Ordering::Relaxed);
        let feeds = self.common.gauges.feeds.load(Ordering::Relaxed);
        page.gauge("cairn_proxy_client_watches", "Watches of clients.", watches);
        page.gauge("cairn_proxy_member_watches", "Watches at members, which those of clients share.", feeds);
        let reads = &self.common.reads;
        let (hits, misses) = (reads.hits.load(Ordering::Relaxed), reads.misses.load(Ordering::Relaxed));
        page.gauge("etcd_grpc_proxy_cache_keys_total", "Answers to serializable reads that are kept.", reads.kept());
        page.gauge("etcd_grpc_proxy_cache_hits_total", "Serializable reads answered without asking a member.", hits);
        page.gauge("etcd_grpc_proxy_cache_misses_total", "Serializable reads for which a member was asked.", misses);
        if let Some(leasing) = &self.common.leasing {
            let (keys, bytes) = leasing.size();
            let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
            page.gauge(
                "cairn_proxy_leased_keys",
                "Keys that are read from memory while this proxy has their lease.",
                keys,
            );
            page.gauge("cairn_proxy_leased_bytes", "Bytes of memory that these keys take.", bytes);
            let help = "Reads that such a key answered.";
            page.counter("cairn_proxy_leased_reads_total", help, load(&leasing.hits));
            let help = "Leases of keys that this proxy has acquired.";
            page.counter("cairn_proxy_leases_acquired_total", help, load(&leasing.acquired));
        }
        let usage: Vec<budget::PoolUsage> = self.common.held.usage().collect();
        let mut family = |name: &str, kind: &str, help: &str, value: fn(&budget::PoolUsage) -> u64| {
            page.family(name, kind, help);
            for pool in &usage {
                page.labelled(name, &[("pool", pool.pool.name())], value(pool));
            }
        };
        let help = "Bytes that clients have this proxy hold, by what for.";
        family("cairn_budget_held_bytes", "gauge", help, |pool| pool.held_bytes);
        let help = "Bytes that they may have it hold, by what for.";
        family("cairn_budget_limit_bytes", "gauge", help, |pool| pool.limit_bytes);
        let help = "Requests and answers that were refused because too much was held, by what they needed.";
        family("cairn_budget_refused_total", "counter", help, |pool| pool.refusals);
        page.into_text()
    }
}

/// Answers with what members say, who are asked once for all who ask at the same time.
fn ask<F: Future<Output = Answer> + Send + 'static>(
    question: &Arc<Question<HttpResponder>>,
    responder: HttpResponder,
    ask: impl FnOnce() -> F,
) {
    let tell = |responder, (status, content_type, text): &Answer| send(responder, *status, content_type, text.clone());
    if let Err(responder) = question.wait(responder, ask, tell) {
        let text = Bytes::from_static(b"too many requests\n");
        send(responder, StatusCode::SERVICE_UNAVAILABLE, "text/plain", text);
    }
}

/// Whether a member answers a linearizable read. One that refuses it, because users are enabled, does.
async fn health(upstream: Client) -> Answer {
    let request = RangeRequest { key: Bytes::from_static(HEALTH_KEY), keys_only: true, ..RangeRequest::default() };
    let message = request.encode_to_vec().into();
    let (path, metadata) = ("/etcdserverpb.KV/Range", Metadata::default());
    let why = match upstream.forward(path, &metadata, message, Some(PATIENCE), true, None).await {
        Ok(_) => None,
        Err(status) if matches!(status.code, Code::PermissionDenied | Code::InvalidArgument) => None,
        Err(status) => Some(status.message),
    };
    let mut reason = String::new();
    if let Some(why) = &why {
        let _ = write!(reason, "GET ERROR:{}", why.replace(['"', '\\'], "'").replace(char::is_control, " "));
    }
    let status = if why.is_none() { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    let text = format!("{{\"health\":\"{}\",\"reason\":\"{reason}\"}}", why.is_none());
    (status, "application/json", text.into())
}

/// The metrics of the first member that shows them, as etcd's proxy has it.
async fn metrics(upstream: Client) -> Answer {
    let endpoints: Vec<client::Endpoint> = upstream.endpoints().cloned().collect();
    for endpoint in &endpoints {
        if let Ok(Ok(page)) = tokio::time::timeout(PATIENCE, upstream.page(endpoint, "/metrics")).await {
            return (StatusCode::OK, METRICS_TYPE, page.into());
        }
    }
    (StatusCode::BAD_GATEWAY, "text/plain", "no member shows its metrics\n".into())
}

fn send(responder: HttpResponder, status: StatusCode, content_type: &'static str, text: Bytes) {
    let mut response = Response::new(text);
    *response.status_mut() = status;
    response.headers_mut().insert(http::header::CONTENT_TYPE, http::HeaderValue::from_static(content_type));
    responder.send(response);
}
