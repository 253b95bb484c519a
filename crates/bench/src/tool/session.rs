//! What the flags of all sub-commands come to: where connections lead, who the user is, how a load is driven.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use api::etcdserverpb::{MemberListRequest, MemberListResponse, StatusRequest, StatusResponse};
use api::{Code, Message};
use client::{Client, Endpoint, Options, Security};
use flags::{Parsed, duration_text};
use rpc::client::Channel;
use rpc::{Metadata, Status};

use super::failure::{Failure, Outcome};
use super::summary;
use crate::interrupt::{Interruptions, is_interrupted};
use crate::limits::{CALLS_MAX, TIME_MAX, connections_max};
use crate::link::{Place, block_on};
use crate::meter::{Cost, Meter, told};
use crate::pass::User;
use crate::report::{Report, Shape};
use crate::series::Series;
use crate::singles::{Attended, Course, drive, drive_here};
use crate::work::Work;
use crate::{BenchError, pass, perfdash};

/// Longer requests are not sent, as in etcd's clients.
const REQUEST_BYTES_MAX: usize = 2 << 20;
/// How long one attempt to connect may take.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long a run waits for outstanding answers at its end.
pub(crate) const GRACE: Duration = Duration::from_secs(5);
/// The pause between two rounds of attempts.
const PAUSE: Duration = Duration::from_millis(500);

/// A run of a sub-command.
pub(crate) struct Session<'a> {
    parsed: &'a Parsed,
    security: Security,
    /// The endpoints to which the connections go, in rotation.
    endpoints: Vec<Endpoint>,
    places: Vec<Place>,
    user: Option<User>,
    token: Option<String>,
    /// The file of `--json`. It is opened at the beginning, so that no run is measured in vain.
    file: Option<(PathBuf, File)>,
    /// The first file that could not be written.
    unwritten: Mutex<Option<Failure>>,
}

/// How a sub-command sends requests.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    /// Number of requests; `None` if only the time is limited.
    pub(crate) total: Option<u64>,
    /// Requests per second; 0 for as fast as answers come.
    pub(crate) rate: i64,
    /// Whether a progress bar is shown.
    pub(crate) shows_bar: bool,
}

impl<'a> Session<'a> {
    /// Reads the flags, finds the leader if a flag requires it, and logs in.
    pub(crate) fn open(parsed: &'a Parsed) -> Outcome<Session<'a>> {
        check_counts(parsed)?;
        let security = security(parsed);
        let named = parsed.text("endpoints").split(',').map(str::trim).filter(|text| !text.is_empty());
        let endpoints: Vec<Endpoint> = named.map(endpoint).collect::<Outcome<_>>()?;
        if endpoints.is_empty() {
            return Err(Failure::new("expected --endpoints with at least one endpoint"));
        }
        let places = places(&security, &endpoints)?;
        let user = user(parsed)?;
        let file = match parsed.text("json") {
            "" => None,
            path => Some((PathBuf::from(path), open(Path::new(path))?)),
        };
        let mut session =
            Session { parsed, security, endpoints, places, user, token: None, file, unwritten: Mutex::default() };
        if !session.has_work() {
            return Ok(session);
        }
        session.token = session.login()?;
        let targets_leader = parsed.switch("target-leader");
        if targets_leader || parsed.duration("auto-sync-interval") > Duration::ZERO {
            session.find_members(targets_leader)?;
        }
        Ok(session)
    }

    /// Replaces the endpoints by those of the cluster's members: of all, or only of the leader.
    fn find_members(&mut self, targets_leader: bool) -> Outcome {
        let failed = |status: Status| Failure::new(format!("failed to get a member list: {}", told(&status)));
        let list: MemberListResponse =
            self.ask("/etcdserverpb.Cluster/MemberList", &MemberListRequest::default()).map_err(failed)?;
        let leader = match targets_leader {
            false => None,
            true => {
                let status = self.ask("/etcdserverpb.Maintenance/Status", &StatusRequest::default());
                Some(status.map_or(0, |status: StatusResponse| status.leader))
            }
        };
        let is_meant = |id| leader.is_none_or(|leader| leader == id);
        let urls = list.members.iter().filter(|member| is_meant(member.id)).flat_map(|member| &member.client_ur_ls);
        self.endpoints = urls.map(|url| endpoint(url)).collect::<Outcome<_>>()?;
        if self.endpoints.is_empty() {
            return Err(Failure::new("failed to find a leader endpoint"));
        }
        self.places = places(&self.security, &self.endpoints)?;
        Ok(())
    }

    /// Gets a token, if there is a user and authentication is enabled.
    fn login(&self) -> Outcome<Option<String>> {
        let Some((name, password)) = self.user.clone() else { return Ok(None) };
        let answer = self.wait(None, async { pass::login(&self.reach().await, name, password).await });
        answer.map_err(|status| Failure::new(format!("dial error: {}", told(&status))))
    }

    /// Whether there are requests to send.
    pub(crate) fn has_work(&self) -> bool {
        self.clients() > 0
    }

    pub(crate) fn clients(&self) -> usize {
        self.parsed.uint("clients") as usize
    }

    pub(crate) fn connections(&self) -> usize {
        self.parsed.uint("conns") as usize
    }

    pub(crate) fn places(&self) -> &[Place] {
        &self.places
    }

    /// The first endpoint as it was given.
    pub(crate) fn first_endpoint(&self) -> String {
        self.parsed.text("endpoints").split(',').next().unwrap_or_default().trim().to_string()
    }

    pub(crate) fn user(&self) -> Option<User> {
        self.user.clone()
    }

    pub(crate) fn metadata(&self) -> Metadata {
        self.token.iter().map(|token| ("token", token)).collect()
    }

    pub(crate) fn patience(&self) -> Duration {
        Some(self.parsed.duration("dial-timeout")).filter(|time| !time.is_zero()).unwrap_or(PATIENCE)
    }

    pub(crate) fn channel(&self, place: usize) -> Channel {
        let place = &self.places[place % self.places.len()];
        let connect_timeout = self.patience();
        Channel::new(
            &place.address,
            rpc::client::Options { tls: place.encryption.clone(), connect_timeout, ..Default::default() },
        )
    }

    /// Makes a call that is not measured. Waits for a member to connect to, however long that takes.
    pub(crate) fn ask<A: Message + Default>(&self, path: &str, request: &impl Message) -> Result<A, Status> {
        self.ask_within(None, path, request)
    }

    /// Like [`Session::ask`], for no longer than `most`.
    pub(crate) fn ask_within<A: Message + Default>(
        &self,
        most: Option<Duration>,
        path: &str,
        request: &impl Message,
    ) -> Result<A, Status> {
        let message = request.encode_to_vec();
        let answer =
            self.wait(most, async { self.reach().await.unary(path, &self.metadata(), message.into(), None).await })?;
        A::decode(answer).map_err(|error| Status::new(Code::Internal, error.to_string()))
    }

    /// Waits for work that is not measured, unless it takes longer than `most` or the user presses Ctrl-C.
    fn wait<T>(&self, most: Option<Duration>, work: impl Future<Output = Result<T, Status>>) -> Result<T, Status> {
        let failed = |error: std::io::Error| Status::new(Code::Internal, format!("cannot wait for signals: {error}"));
        let interrupted = || Status::new(Code::Canceled, "interrupted");
        let attended = async {
            let mut interruptions = Interruptions::listen().map_err(failed)?;
            if is_interrupted() {
                return Err(interrupted());
            }
            tokio::select! {
                outcome = work => outcome,
                () = interruptions.next() => Err(interrupted()),
                () = tokio::time::sleep(most.unwrap_or(TIME_MAX)) => {
                    Err(Status::new(Code::DeadlineExceeded, "context deadline exceeded"))
                }
            }
        };
        let outcome = block_on(async { Ok(attended.await) });
        outcome.unwrap_or_else(|error: BenchError| Err(Status::new(Code::Internal, error.to_string())))
    }

    /// A channel to a member that answers. Waits for one, however long that takes.
    pub(crate) async fn reach(&self) -> Channel {
        let mut number = 0;
        loop {
            let channel = self.channel(number);
            let Err(status) = channel.connect().await else { return channel };
            flags::say!("warning: {}; trying on", status.message);
            tokio::time::sleep(PAUSE).await;
            number += 1;
        }
    }

    /// Waits until a channel has a connection, however long that takes.
    pub(crate) async fn connect(&self, channel: &Channel) {
        while let Err(status) = channel.connect().await {
            flags::say!("warning: {}; trying on", status.message);
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// A client of endpoint `number`.
    pub(crate) fn client(&self, number: usize) -> Outcome<Client> {
        let options = Options {
            endpoints: vec![self.endpoints[number % self.endpoints.len()].clone()],
            user: self.user.clone().filter(|_| self.token.is_some()),
            security: self.security.clone(),
            connect_timeout: self.patience(),
            call_timeout: None,
            ..Options::default()
        };
        Client::new(options).map_err(|error| Failure::new(error.to_string()))
    }

    /// The pace that `--total`, `--rate` and `--duration` set.
    pub(crate) fn pace(&self) -> Outcome<Pace> {
        let rate = self.parsed.int("rate");
        if rate < 0 {
            return Err(Failure::new(format!("expected --rate of 0 or more, got ({rate})")));
        }
        let is_timed = self.time().is_some() && !self.parsed.is_given("total");
        let total = (!is_timed).then(|| self.parsed.int("total").max(0) as u64);
        Ok(Pace { total, rate, shows_bar: true })
    }

    /// How long the run is to take.
    pub(crate) fn time(&self) -> Option<Duration> {
        Some(self.parsed.duration("duration")).filter(|time| !time.is_zero())
    }

    /// Sends the requests of `work` and returns the measurements of each of `groups`.
    pub(crate) fn measure<W: Work>(
        &self,
        pace: Pace,
        groups: usize,
        work: impl Fn() -> W + Sync,
    ) -> Outcome<(Vec<Meter>, Cost)> {
        if pace.total == Some(0) || !self.has_work() {
            return Ok((vec![Meter::default(); groups], Cost::default()));
        }
        Ok(drive(&self.course(pace, groups), |_, _| work())?)
    }

    /// Sends the requests of `work` on this thread, within its runtime.
    pub(crate) async fn measure_here<W: Work>(&self, pace: Pace, work: W) -> Outcome<(Meter, Cost)> {
        let (mut meters, cost) = drive_here(&self.course(pace, 1), work).await?;
        Ok((meters.swap_remove(0), cost))
    }

    fn course(&self, pace: Pace, groups: usize) -> Course {
        Course {
            places: self.places.clone(),
            connections: self.connections(),
            calls: self.clients(),
            threads: 1,
            groups,
            requests: pace.total,
            time: self.time(),
            rate: Some(pace.rate as f64).filter(|rate| *rate > 0.0),
            timeout: None,
            grace: GRACE,
            pids: Vec::new(),
            metadata: self.metadata(),
            request_bytes_max: REQUEST_BYTES_MAX,
            attended: Some(Attended {
                connect_timeout: self.patience(),
                in_seconds: self.parsed.switch("sample"),
                shows_bar: pace.shows_bar,
                user: self.user.clone(),
            }),
        }
    }

    /// A meter, which records each second separately if a flag requires that.
    pub(crate) fn meter(&self) -> Meter {
        Meter { series: self.parsed.switch("sample").then(Series::default), ..Meter::default() }
    }

    /// The report of the measurements of the load `name`. It is also written to files if flags require that;
    /// [`Session::end`] returns whether that failed.
    pub(crate) fn tell(&self, name: &'static str, meter: &Meter, cost: Cost) -> String {
        if let Some((path, file)) = &self.file {
            let shape = Shape {
                load: name,
                connections: self.connections(),
                streams: self.clients().div_ceil(self.connections()),
                threads: 1,
                rate: Some(self.parsed.int("rate") as f64).filter(|rate| *rate > 0.0),
            };
            self.note(append(path, file, &Report::of(&shape, meter, cost, false).json()));
        }
        let mut text = summary::text(meter, cost.time, self.parsed.switch("precise"));
        if self.parsed.switch("report-perfdash") && meter.latency.total() > 0 {
            match perfdash::write(name, &meter.latency) {
                Ok(path) => text = format!("Successfully created a JSON perf report at {}\n{text}", path.display()),
                Err(error) => self.note(Err(error.into())),
            }
        }
        text
    }

    fn note(&self, written: Outcome) {
        if let Err(failure) = written {
            self.unwritten.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(failure);
        }
    }

    /// Fails if a report could not be written.
    pub(crate) fn end(&self) -> Outcome {
        self.unwritten.lock().unwrap_or_else(PoisonError::into_inner).take().map_or(Ok(()), Err)
    }
}

/// Opens a file for appending.
fn open(path: &Path) -> Outcome<File> {
    File::options().append(true).create(true).open(path).map_err(|error| unwritten(path, &error))
}

/// Adds a line to a file: whole, or not at all as far as the file system lets it.
fn append(path: &Path, mut file: &File, line: &str) -> Outcome {
    file.write_all(format!("{line}\n").as_bytes()).map_err(|error| unwritten(path, &error))
}

fn unwritten(path: &Path, error: &std::io::Error) -> Failure {
    Failure::new(format!("cannot write `{}`: {error}", path.display()))
}

/// Checks the numbers of clients and connections.
fn check_counts(parsed: &Parsed) -> Outcome {
    let (clients, connections) = (parsed.uint("clients"), parsed.uint("conns"));
    if connections == 0 {
        return Err(Failure::new("expected positive --conns, got (0)"));
    }
    if clients > CALLS_MAX {
        return Err(Failure::new(format!("expected --clients of {CALLS_MAX} or less, got ({clients})")));
    }
    if parsed.duration("duration") > TIME_MAX {
        let text =
            format!("expected --duration of {} or less, got ({})", duration_text(TIME_MAX), parsed.text("duration"));
        return Err(Failure::new(text));
    }
    let (most, files) = connections_max();
    if connections > most {
        let text =
            format!("expected --conns of {most} or less (the limit of open files is {files}), got ({connections})");
        return Err(Failure::new(text));
    }
    Ok(())
}

fn endpoint(text: &str) -> Outcome<Endpoint> {
    text.parse().map_err(|error: client::EndpointError| Failure::new(error.to_string()))
}

fn security(parsed: &Parsed) -> Security {
    let file = |name: &str| Some(parsed.text(name)).filter(|path| !path.is_empty()).map(PathBuf::from);
    let (cert, key, authorities) = (file("cert"), file("key"), file("cacert"));
    let skips_verification = parsed.switch("insecure-skip-tls-verify");
    Security { cert, key, authorities, skips_verification, ..Security::default() }
}

fn places(security: &Security, endpoints: &[Endpoint]) -> Outcome<Vec<Place>> {
    let has_files = security.cert.is_some() || security.key.is_some() || security.authorities.is_some();
    let bad = |why| Failure::new(format!("bad tls config: {why}"));
    let place = |endpoint: &Endpoint| {
        // The flag that skips the check of certificates does not switch TLS on.
        let skips_verification = security.skips_verification && (has_files || endpoint.is_encrypted());
        let security = Security { skips_verification, ..security.clone() };
        let encryption = security.encryption(endpoint).map_err(bad)?;
        Ok(Place { address: endpoint.address().to_string(), encryption })
    };
    endpoints.iter().map(place).collect()
}

fn user(parsed: &Parsed) -> Outcome<Option<User>> {
    let user = parsed.text("user");
    if user.is_empty() {
        return Ok(None);
    }
    Ok(Some(match user.split_once(':') {
        Some((name, password)) => (name.into(), password.into()),
        None => (
            user.into(),
            flags::password("Password: ").map_err(|error| Failure::new(format!("bad user information: {error}")))?,
        ),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_cannot_be_written_have_their_names_told() {
        let path = Path::new("Cargo.toml");
        let file = File::open(path).expect("it is ours, to be read");
        let failure = append(path, &file, "{}").expect_err("it is only read");
        assert!(failure.text.starts_with("cannot write `Cargo.toml`: "), "{}", failure.text);
        assert!(open(Path::new("/nonexistent/run.json")).is_err());
    }
}
