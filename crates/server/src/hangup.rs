//! SIGHUP: log files are opened anew, and certificates are read anew.

use crate::audit::Audit;
use crate::tls::Tls;
use std::sync::{Arc, OnceLock};
use telemetry::logging::{self, Value};

/// What the signal is about, as far as the member has it by now.
#[derive(Default)]
pub(crate) struct Hangup {
    tls: OnceLock<Tls>,
    audit: OnceLock<Arc<Audit>>,
}

impl Hangup {
    /// The certificates to read.
    pub(crate) fn set_tls(&self, tls: &Tls) {
        // Set once, when the member starts.
        let _ = self.tls.set(tls.clone());
    }

    /// The audit log to open.
    pub(crate) fn set_audit(&self, audit: &Arc<Audit>) {
        // As above.
        let _ = self.audit.set(audit.clone());
    }

    /// Waits a moment for the last lines of the audit log.
    pub(crate) fn flush(&self) {
        if let Some(audit) = self.audit.get() {
            audit.flush();
        }
    }

    /// Does what the signal asks for. A file that cannot be opened goes on as it was.
    pub(crate) fn received(&self) {
        let mut failed = logging::reopen();
        failed.extend(self.audit.get().and_then(|audit| audit.reopen().err()));
        for error in &failed {
            logging::error("cannot open a log file anew: it goes on as it was", &[("error", error.into())]);
        }
        if let Some(tls) = self.tls.get() {
            tls.reread();
        }
        logging::info(
            "received SIGHUP: opened log files anew, read certificates anew",
            &[("failed", Value::from(failed.len()))],
        );
    }
}
