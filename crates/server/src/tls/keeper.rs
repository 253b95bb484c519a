//! Keeps what was read from files, and reads it anew when they have changed.

use super::Role;
use super::material::{Material, files};
use crate::config::Tls;
use crate::logging::{self, Value};
use crate::metrics::Page;
use crate::node::lock;
use crate::system::file_stamp::{Stamp, stamps};
use rustls::{ClientConfig, ServerConfig};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::UNIX_EPOCH;

/// What connections of one kind are secured with. A file that cannot be used does not end what works: the one before stays.
#[derive(Debug)]
pub(crate) struct Keeper {
    role: Role,
    options: Tls,
    state: Mutex<State>,
    reloads: [AtomicU64; 2],
}

#[derive(Debug)]
struct State {
    material: Arc<Material>,
    /// How the files looked when they were read last, with success or without.
    stamps: Vec<Option<Stamp>>,
}

impl Keeper {
    /// Reads the files for the first time.
    pub(super) fn start(role: Role, options: Tls) -> Result<Keeper, String> {
        // Taken before: a file that changes while it is read is read again.
        let stamps = stamps(&files(&options));
        let material = Arc::new(Material::load(role, &options)?);
        let state = Mutex::new(State { material, stamps });
        Ok(Keeper { role, options, state, reloads: Default::default() })
    }

    /// What the flags say.
    pub(crate) fn options(&self) -> &Tls {
        &self.options
    }

    /// For a connection that somebody begins now. The error is for a member that was not given a certificate.
    pub(crate) fn server(&self) -> Option<Arc<ServerConfig>> {
        self.current().server.clone()
    }

    /// For a connection that this member begins now.
    pub(crate) fn client(&self) -> Result<Arc<ClientConfig>, String> {
        self.current().client()
    }

    /// The material, as the files have it now.
    fn current(&self) -> Arc<Material> {
        let files = files(&self.options);
        if files.is_empty() {
            return lock(&self.state).material.clone();
        }
        let now = stamps(&files);
        let mut state = lock(&self.state);
        if state.stamps == now {
            return state.material.clone();
        }
        state.stamps = now;
        match Material::load(self.role, &self.options) {
            Ok(material) => {
                state.material = Arc::new(material);
                self.reloads[0].fetch_add(1, Ordering::Relaxed);
                logging::info("read certificates, keys and authorities anew", &[("for", self.role.name().into())]);
            }
            Err(why) => {
                self.reloads[1].fetch_add(1, Ordering::Relaxed);
                logging::warn(
                    "cannot use a file that has changed: what was read before is used on",
                    &[("for", self.role.name().into()), ("error", Value::Shown(&why))],
                );
            }
        }
        state.material.clone()
    }
}

/// Appends the metrics of keepers to a page.
pub(super) fn render(keepers: &[&Keeper], page: &mut Page) {
    let current: Vec<_> = keepers.iter().map(|keeper| (keeper, keeper.current())).collect();
    page.family(
        "cairn_tls_certificate_expiry_timestamp_seconds",
        "gauge",
        "When the certificate of a file, or the first of an authorities' file, ceases to be valid.",
    );
    for (keeper, material) in &current {
        for (path, until) in &material.expiries {
            let seconds = until.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
            let labels = [("for", keeper.role.name()), ("file", &path.display().to_string())];
            page.labelled("cairn_tls_certificate_expiry_timestamp_seconds", &labels, seconds);
        }
    }
    page.family(
        "cairn_tls_reloads_total",
        "counter",
        "Reading certificates, keys, authorities and CRLs anew after a change.",
    );
    for keeper in keepers {
        for (outcome, count) in ["ok", "failed"].into_iter().zip(&keeper.reloads) {
            let labels = [("for", keeper.role.name()), ("outcome", outcome)];
            page.labelled("cairn_tls_reloads_total", &labels, count.load(Ordering::Relaxed));
        }
    }
}
