//! A command and its context.

use crate::failure::{Failure, Outcome, code};
use crate::flags::{Flag, Parsed};
use crate::globals;
use crate::print::{Format, Printer};
use client::{Client, Endpoint};
use std::sync::Arc;
use std::time::Duration;

/// A command, or a group of them.
pub(crate) struct Command {
    pub(crate) name: &'static str,
    /// Name and arguments, for the usage.
    pub(crate) usage: &'static str,
    pub(crate) help: &'static str,
    pub(crate) flags: &'static [Flag],
    /// What the usage tells beside its flags; mostly nothing.
    pub(crate) notes: &'static str,
    pub(crate) action: Action,
}

/// What a command does.
pub(crate) enum Action {
    Run(fn(&Context) -> Outcome),
    Group(&'static [Command]),
}

/// A command without flags of its own.
pub(crate) const fn command(
    name: &'static str,
    usage: &'static str,
    help: &'static str,
    run: fn(&Context) -> Outcome,
) -> Command {
    Command { name, usage, help, flags: &[], notes: "", action: Action::Run(run) }
}

/// Commands under one name.
pub(crate) const fn group(name: &'static str, help: &'static str, commands: &'static [Command]) -> Command {
    Command { name, usage: "", help, flags: &[], notes: "", action: Action::Group(commands) }
}

impl Command {
    /// The same command, with these flags.
    pub(crate) const fn with(mut self, flags: &'static [Flag]) -> Command {
        self.flags = flags;
        self
    }

    /// The same command, with more to say in its usage.
    pub(crate) const fn explained(mut self, notes: &'static str) -> Command {
        self.notes = notes;
        self
    }
}

/// What a command is given.
pub(crate) struct Context {
    pub(crate) parsed: Parsed,
    runtime: Arc<tokio::runtime::Runtime>,
}

impl Drop for Context {
    /// The process ends: that is not held up by connections that are still being made, or names that are still being looked up.
    fn drop(&mut self) {
        std::mem::forget(self.runtime.clone());
    }
}

impl Context {
    pub(crate) fn new(parsed: Parsed) -> Outcome<Context> {
        let runtime = Arc::new(tokio::runtime::Builder::new_current_thread().enable_all().build()?);
        Ok(Context { parsed, runtime })
    }

    pub(crate) fn args(&self) -> &[String] {
        &self.parsed.args
    }

    pub(crate) fn printer(&self) -> Outcome<Printer> {
        let format = Format::parse(self.parsed.text("write-out"))?;
        Ok(Printer { format, hex: self.parsed.switch("hex"), values_only: false })
    }

    /// A client of all endpoints; its calls take `--command-timeout` at most.
    pub(crate) fn client(&self) -> Outcome<Client> {
        self.logged_in(globals::client(&self.parsed, globals::endpoints(&self.parsed)?, Some(self.patience()))?)
    }

    /// A client of `endpoints` whose calls have no time limit: for commands that wait.
    pub(crate) fn patient_client(&self, endpoints: Vec<Endpoint>) -> Outcome<Client> {
        self.logged_in(globals::client(&self.parsed, endpoints, None)?)
    }

    /// The same of all endpoints.
    pub(crate) fn patient_client_of_all(&self) -> Outcome<Client> {
        self.patient_client(globals::endpoints(&self.parsed)?)
    }

    /// A client whose streams end when members know of no leader.
    pub(crate) fn client_that_needs_a_leader(&self) -> Outcome<Client> {
        let endpoints = globals::endpoints(&self.parsed)?;
        self.logged_in(globals::client_that_needs_a_leader(&self.parsed, endpoints, self.patience())?)
    }

    /// Wrong names and passwords have an exit code of their own.
    fn logged_in(&self, client: Client) -> Outcome<Client> {
        self.call(client.login(Some(self.patience())))
            .map_err(|failure| Failure { code: code::BAD_CONNECTION, ..failure })?;
        Ok(client)
    }

    /// A client of one endpoint.
    pub(crate) fn client_of(&self, endpoint: &Endpoint) -> Outcome<Client> {
        globals::client(&self.parsed, vec![endpoint.clone()], Some(self.patience()))
    }

    /// How long a call may take.
    pub(crate) fn patience(&self) -> Duration {
        self.parsed.duration("command-timeout")
    }

    /// What a call of a patient client brings that is not worth waiting for longer than others.
    pub(crate) async fn briefly<T>(&self, call: impl Future<Output = Result<T, client::Error>>) -> Outcome<T> {
        match tokio::time::timeout(self.patience(), call).await {
            Ok(ended) => ended.map_err(Failure::from),
            Err(_) => Err(Failure::new(code::ERROR, "context deadline exceeded")),
        }
    }

    pub(crate) fn wait<T>(&self, work: impl Future<Output = T>) -> T {
        // The client's tasks live on the runtime.
        self.runtime.block_on(work)
    }

    /// What a call brings, with what it failed with last on a line of its own if its time was over.
    pub(crate) fn call<T>(&self, work: impl Future<Output = Result<T, client::Error>>) -> Outcome<T> {
        self.wait(work).map_err(|error| {
            if error.code() == Some(api::Code::DeadlineExceeded) {
                flags::say!("{error}");
            }
            Failure::from(error)
        })
    }

    /// Gives connections, and what keeps leases alive, a thread of their own until the process ends: they go on although whoever reads
    /// the output does not.
    pub(crate) fn goes_on_beside(&self) -> Outcome {
        let runtime = self.runtime.clone();
        let go_on = move || runtime.block_on(std::future::pending::<()>());
        std::thread::Builder::new().name("client".into()).spawn(go_on)?;
        Ok(())
    }

    /// Within the runtime, for what starts tasks before it is waited for.
    pub(crate) fn enter(&self) -> tokio::runtime::EnterGuard<'_> {
        self.runtime.enter()
    }
}
