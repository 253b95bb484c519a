//! Requests by kind and the API version that clients name.

use contain::lock;
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use telemetry::metrics::Page;

/// Distinct client versions counted; more would let a client grow the page without end.
const VERSIONS_MAX: usize = 64;
const NAME: &str = "etcd_server_client_requests_total";

/// The counters.
#[derive(Default)]
pub(super) struct Clients {
    by_version: Mutex<BTreeMap<(&'static str, String), u64>>,
    unknown: [AtomicU64; 2],
}

impl Clients {
    pub(super) fn count(&self, metadata: &rpc::Metadata, kind: &'static str) {
        let unknown = &self.unknown[usize::from(kind == "stream")];
        let version = metadata.get("client-api-version").and_then(|version| std::str::from_utf8(version).ok());
        let Some(version) = version else {
            unknown.fetch_add(1, Ordering::Relaxed);
            return;
        };
        let mut clients = lock(&self.by_version);
        // The common case finds its place without an allocation.
        if let Some((_, count)) = clients.iter_mut().find(|((known, name), _)| *known == kind && name == version) {
            *count += 1;
        } else if clients.len() < VERSIONS_MAX {
            clients.insert((kind, version.into()), 1);
        } else {
            unknown.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(super) fn write(&self, page: &mut Page) {
        page.family(NAME, "counter", "Requests by kind and the client's API version.");
        for (kind, count) in ["unary", "stream"].into_iter().zip(&self.unknown) {
            let count = count.load(Ordering::Relaxed);
            if count > 0 {
                page.labelled(NAME, &[("type", kind), ("client_api_version", "unknown")], count);
            }
        }
        for ((kind, client), count) in lock(&self.by_version).iter() {
            page.labelled(NAME, &[("type", kind), ("client_api_version", client)], count);
        }
    }
}
