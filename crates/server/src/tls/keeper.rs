//! Keeps the TLS material that was read from files, and reads it again when they have changed.

use super::Role;
use super::material::{Material, files, revoked};
use crate::config::Tls;
use crate::system::file_stamp::{Stamp, stamps};
use contain::contain;
use contain::lock;
use rustls::pki_types::CertificateDer;
use rustls::{ClientConfig, ServerConfig};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::UNIX_EPOCH;
use telemetry::logging::{self, Value};
use telemetry::metrics::Page;
use trust::{Certificate, Revocations};

/// What connections of one kind are secured with. A file that cannot be used does not end what works: the one before stays. Only a
/// CRL that cannot be read any more lets nobody in who shows a certificate, as with etcd: it might be on the list.
#[derive(Debug)]
pub(crate) struct Keeper {
    role: Role,
    options: Tls,
    state: Mutex<State>,
    reloads: Reloads,
}

/// How often the files were read again, with success and without.
#[derive(Debug, Default)]
struct Reloads {
    ok: AtomicU64,
    failed: AtomicU64,
}

#[derive(Debug)]
struct State {
    material: Arc<Material>,
    /// What the CRL says, on its own: also when another file keeps the rest from being read again.
    revoked: Arc<Result<Revocations, String>>,
    /// How the files looked when they were read last, with success or without.
    stamps: Vec<Option<Stamp>>,
}

impl Keeper {
    /// Reads the files for the first time.
    pub(super) fn start(role: Role, options: Tls) -> Result<Keeper, String> {
        // Taken before: a file that changes while it is read is read again.
        let stamps = stamps(&files(&options));
        let material = Arc::new(Material::load(role, &options)?);
        let revoked = Arc::new(revoked(role, &options));
        let state = Mutex::new(State { material, revoked, stamps });
        Ok(Keeper { role, options, state, reloads: Reloads::default() })
    }

    /// What the flags say.
    pub(crate) fn options(&self) -> &Tls {
        &self.options
    }

    /// For a connection that begins now. An error if the member was given no certificate.
    pub(crate) fn server(&self) -> Option<Arc<ServerConfig>> {
        self.current().server.clone()
    }

    /// For a connection that this member begins now.
    pub(crate) fn client(&self) -> Result<Arc<ClientConfig>, String> {
        self.current().client()
    }

    /// Refuses a client certificate that was revoked, or may be, because the CRL cannot be used.
    pub(crate) fn check_revoked(&self, chain: &[CertificateDer<'_>]) -> Result<(), String> {
        if self.options.crl_file.is_none() {
            return Ok(());
        }
        let revoked = self.refreshed().revoked.clone();
        let revoked = revoked.as_ref().as_ref().map_err(Clone::clone)?;
        chain.iter().try_for_each(|certificate| revoked.check(&Certificate::parse(certificate)?))
    }

    /// The material, as the files have it now.
    fn current(&self) -> Arc<Material> {
        self.refreshed().material.clone()
    }

    /// Reads the files again, whether or not they look changed.
    pub(super) fn reread(&self) {
        lock(&self.state).stamps.clear();
        drop(self.refreshed());
    }

    fn refreshed(&self) -> MutexGuard<'_, State> {
        let files = files(&self.options);
        if files.is_empty() {
            return lock(&self.state);
        }
        let now = stamps(&files);
        let mut state = lock(&self.state);
        if state.stamps == now {
            return state;
        }
        state.stamps = now;
        let read = contain(|| revoked(self.role, &self.options));
        state.revoked = Arc::new(read.unwrap_or_else(|panicked| Err(panicked.to_string())));
        if let Err(why) = &*state.revoked {
            logging::error(
                "cannot use the CRL file: who shows a certificate is refused until it can be read again",
                &[("for", self.role.name().into()), ("error", Value::Shown(why))],
            );
        }
        let loaded = contain(|| Material::load(self.role, &self.options));
        match loaded.unwrap_or_else(|panicked| Err(panicked.to_string())) {
            Ok(material) => {
                state.material = Arc::new(material);
                self.reloads.ok.fetch_add(1, Ordering::Relaxed);
                logging::info("read certificates, keys and authorities anew", &[("for", self.role.name().into())]);
            }
            Err(why) => {
                self.reloads.failed.fetch_add(1, Ordering::Relaxed);
                logging::warn(
                    "cannot use a file that has changed: what was read before is used on",
                    &[("for", self.role.name().into()), ("error", Value::Shown(&why))],
                );
            }
        }
        state
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
        for (outcome, count) in [("ok", &keeper.reloads.ok), ("failed", &keeper.reloads.failed)] {
            let labels = [("for", keeper.role.name()), ("outcome", outcome)];
            page.labelled("cairn_tls_reloads_total", &labels, count.load(Ordering::Relaxed));
        }
    }
}
