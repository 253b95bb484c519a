//! A cluster on this machine, for trying out: one process per member, on loopback.

use crate::system::{self, Signals};
use crate::terminal;
use std::fs::{self, File};
use std::io;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

mod founded;
mod reason;

/// Ports between one member and the next.
const PORT_STEP: u16 = 10;
const SIZE_MAX: u16 = 9;
const READY: &str = "ready to serve client requests";
/// How long the members have to become ready, and to end.
const READY_MAX: Duration = Duration::from_secs(60);
const END_MAX: Duration = Duration::from_secs(10);
const LOOK: Duration = Duration::from_millis(50);

const USAGE: &str = "Usage:\n\n  cairn cluster [--size 3] [--data-dir cairn-cluster] [--client-port 2379] [-- flags for every member]\n\n\
    Starts a cluster on 127.0.0.1 and ends it on Ctrl-C. Member 1 listens on the client port and the one behind it, each\n\
    further member ten ports higher. Started again on the same directory it goes on with its data.\n";

struct Plan {
    size: u16,
    data_dir: PathBuf,
    client_port: u16,
    flags: Vec<String>,
}

/// Messages of the threads to the waiting one.
enum Event {
    Signal,
    Ended(usize, io::Result<ExitStatus>),
}

struct Running {
    name: String,
    client: String,
    log: PathBuf,
    pid: u32,
    /// How the process ended, if it has.
    ended: Option<String>,
}

/// The page of `cairn cluster`.
pub fn page() -> flags::Page {
    let flag = |name: &str, default: &str, help: &str| flags::Entry {
        name: name.into(),
        short: None,
        takes_value: name != "help",
        default: default.into(),
        help: help.into(),
    };
    flags::Page {
        name: "cluster".into(),
        arguments: "[flags] [-- flags of every member]".into(),
        help: "Starts a cluster on this machine".into(),
        notes: USAGE.into(),
        flags: vec![
            flag("size", "3", "members"),
            flag("data-dir", "cairn-cluster", "directory of data and logs"),
            flag("client-port", "2379", "port of the first member's clients"),
            flag("help", "", "print the usage and exit"),
        ],
        commands: Vec::new(),
    }
}

/// Runs `cairn cluster` with its arguments; returns the exit code.
pub fn run_local(args: impl IntoIterator<Item = String>) -> i32 {
    let plan = match parse(args) {
        Ok(Some(plan)) => plan,
        Ok(None) => {
            terminal::out(format_args!("{USAGE}"));
            return 0;
        }
        Err(why) => {
            terminal::err(format_args!(
                "Usage: cairn cluster [flags]; `cairn cluster --help` shows all flags.\n{why}\n"
            ));
            return 2;
        }
    };
    match run(&plan) {
        Ok(code) => code,
        Err(error) => {
            terminal::err(format_args!("cannot run the cluster: {error}\n"));
            1
        }
    }
}

fn parse(args: impl IntoIterator<Item = String>) -> Result<Option<Plan>, String> {
    let mut plan = Plan { size: 3, data_dir: PathBuf::from("cairn-cluster"), client_port: 2379, flags: Vec::new() };
    let mut args = args.into_iter();
    while let Some(arg) = args.next() {
        let (name, inline) = match arg.split_once('=') {
            Some((name, value)) => (name.to_string(), Some(value.to_string())),
            None => (arg, None),
        };
        let mut value = || inline.clone().or_else(|| args.next()).ok_or(format!("flag needs an argument: {name}"));
        let number = |text: String| text.parse::<u16>().map_err(|_| format!("invalid value {text:?} for {name}"));
        match name.as_str() {
            "--size" => plan.size = number(value()?)?,
            "--client-port" => plan.client_port = number(value()?)?,
            "--data-dir" => plan.data_dir = value()?.into(),
            "--help" | "-h" => return Ok(None),
            "--" => {
                plan.flags = args.collect();
                break;
            }
            _ => return Err(format!("flag provided but not defined: {name}")),
        }
    }
    if !(1..=SIZE_MAX).contains(&plan.size) {
        return Err(format!("--size must be in 1..={SIZE_MAX}"));
    }
    if plan.client_port.checked_add(plan.size * PORT_STEP).is_none() || plan.client_port == 0 {
        return Err(format!("no room for the members' ports behind --client-port={}", plan.client_port));
    }
    Ok(Some(plan))
}

impl Plan {
    fn name(&self, number: u16) -> String {
        format!("m{}", number + 1)
    }

    fn client(&self, number: u16) -> String {
        format!("http://127.0.0.1:{}", self.client_port + number * PORT_STEP)
    }

    fn peer(&self, number: u16) -> String {
        format!("http://127.0.0.1:{}", self.client_port + number * PORT_STEP + 1)
    }

    fn flags(&self, number: u16) -> Vec<String> {
        let all = (0..self.size).map(|number| format!("{}={}", self.name(number), self.peer(number)));
        let (name, client, peer) = (self.name(number), self.client(number), self.peer(number));
        let mut flags = vec![
            format!("--name={name}"),
            format!("--data-dir={}", self.data_dir.join(&name).display()),
            format!("--listen-client-urls={client}"),
            format!("--advertise-client-urls={client}"),
            format!("--listen-peer-urls={peer}"),
            format!("--initial-advertise-peer-urls={peer}"),
            format!("--initial-cluster={}", all.collect::<Vec<_>>().join(",")),
            "--log-format=console".into(),
        ];
        flags.extend(self.flags.iter().cloned());
        flags
    }
}

fn run(plan: &Plan) -> io::Result<i32> {
    if let Some(refusal) = founded::refusal(&plan.data_dir, plan.size) {
        terminal::err(format_args!("{refusal}\n"));
        return Ok(1);
    }
    let signals = Signals::block(&[])?;
    fs::create_dir_all(&plan.data_dir)?;
    founded::note(&plan.data_dir, plan.size)?;
    let (tell, told) = channel();
    let mut members = Vec::new();
    for number in 0..plan.size {
        match start(plan, number, &tell) {
            Ok(member) => members.push(member),
            Err(error) => {
                end(&mut members, &told);
                return Err(error);
            }
        }
    }
    std::thread::Builder::new().name("signals".into()).spawn(move || {
        // The one that waits ends with the process.
        while signals.wait() != 0 && tell.send(Event::Signal).is_ok() {}
    })?;
    if !await_ready(&mut members, &told) {
        end(&mut members, &told);
        return Ok(1);
    }
    tell_how(plan, &members);
    let code = watch(plan, &mut members, &told);
    end(&mut members, &told);
    Ok(code)
}

fn start(plan: &Plan, number: u16, tell: &Sender<Event>) -> io::Result<Running> {
    let log = plan.data_dir.join(format!("{}.log", plan.name(number)));
    // The log of this run: an old one would say that the member is ready.
    let output = File::create(&log)?;
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("serve").args(plan.flags(number)).stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output);
    let mut child: Child = system::spawn_dependent(&mut command)?;
    let (pid, tell, place) = (child.id(), tell.clone(), usize::from(number));
    std::thread::Builder::new().name("wait".into()).spawn(move || {
        // The receiver is gone once the cluster has ended.
        let _ = tell.send(Event::Ended(place, child.wait()));
    })?;
    Ok(Running { name: plan.name(number), client: plan.client(number), log, pid, ended: None })
}

fn note(members: &mut [Running], event: Event) {
    if let Event::Ended(place, status) = event {
        members[place].ended = Some(match status {
            Ok(status) => status.to_string(),
            Err(error) => error.to_string(),
        });
    }
}

fn await_ready(members: &mut [Running], told: &Receiver<Event>) -> bool {
    let deadline = Instant::now() + READY_MAX;
    while Instant::now() < deadline {
        match told.recv_timeout(LOOK) {
            Ok(Event::Signal) => return false,
            Ok(event) => note(members, event),
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {}
        }
        if let Some((member, why)) = members.iter().find_map(|member| Some((member, member.ended.as_ref()?))) {
            terminal::err(format_args!(
                "member {} did not start ({why}); its log is {}. The reason:\n{}\n",
                member.name,
                member.log.display(),
                reason::of(&member.log)
            ));
            return false;
        }
        let ready = |member: &Running| fs::read_to_string(&member.log).is_ok_and(|log| log.contains(READY));
        if members.iter().all(ready) {
            return true;
        }
    }
    terminal::err(format_args!("the members are not ready after {READY_MAX:?}; see their logs\n"));
    false
}

fn tell_how(plan: &Plan, members: &[Running]) {
    let line = |member: &Running| format!("  {}  {}  pid {}\n", member.name, member.client, member.pid);
    let endpoints: Vec<&str> = members.iter().map(|member| member.client.trim_start_matches("http://")).collect();
    terminal::out(format_args!(
        "A cluster of {size} is running; data and logs in {dir}/.\n\n{lines}\nIn another terminal:\n\n  \
         export ETCDCTL_ENDPOINTS={endpoints}\n  \
         etcdctl put greeting hello && etcdctl get greeting\n  \
         etcdctl endpoint status -w table\n  \
         kill -9 {pid}     # a member fails: the others go on\n\nCtrl-C ends it.\n",
        size = members.len(),
        dir = plan.data_dir.display(),
        lines = members.iter().map(line).collect::<String>(),
        endpoints = endpoints.join(","),
        pid = members[0].pid,
    ));
}

/// Waits for a signal. A member that ends by itself is reported and not started again.
fn watch(plan: &Plan, members: &mut [Running], told: &Receiver<Event>) -> i32 {
    while let Ok(event) = told.recv() {
        let Event::Ended(place, _) = &event else { return 0 };
        let place = *place;
        note(members, event);
        let member = &members[place];
        terminal::out(format_args!(
            "\nmember {} has ended ({}). To start it again:\n\n  {} serve {}\n\n",
            member.name,
            member.ended.as_deref().unwrap_or_default(),
            program(),
            plan.flags(place as u16).join(" ")
        ));
        if members.iter().all(|member| member.ended.is_some()) {
            terminal::err(format_args!("no member is left\n"));
            return 1;
        }
    }
    1
}

fn program() -> String {
    std::env::args().next().unwrap_or_else(|| "cairn".into())
}

/// Asks all to end, and makes them when they do not.
fn end(members: &mut [Running], told: &Receiver<Event>) {
    for (signal, patience) in [(libc::SIGTERM, END_MAX), (libc::SIGKILL, END_MAX)] {
        for member in members.iter().filter(|member| member.ended.is_none()) {
            system::signal(member.pid, signal);
        }
        let deadline = Instant::now() + patience;
        while members.iter().any(|member| member.ended.is_none()) && Instant::now() < deadline {
            if let Ok(event) = told.recv_timeout(LOOK) {
                note(members, event);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(args: &[&str]) -> Result<Plan, String> {
        parse(args.iter().map(|arg| arg.to_string())).map(|plan| match plan {
            Some(plan) => plan,
            None => panic!("asked for help"),
        })
    }

    #[test]
    fn members_know_each_other() {
        let Ok(plan) = plan(&["--size", "3", "--client-port=4000", "--data-dir=d", "--", "--snapshot-count=5"]) else {
            panic!("valid");
        };
        let flags = plan.flags(2);
        for flag in [
            "--name=m3",
            "--data-dir=d/m3",
            "--listen-client-urls=http://127.0.0.1:4020",
            "--initial-cluster=m1=http://127.0.0.1:4001,m2=http://127.0.0.1:4011,m3=http://127.0.0.1:4021",
            "--snapshot-count=5",
        ] {
            assert!(flags.iter().any(|given| given == flag), "{flag} in {flags:?}");
        }
    }

    #[test]
    fn nonsense_is_refused() {
        for args in
            [&["--size=0"][..], &["--size=x"], &["--size"], &["--client-port=65530"], &["extra"], &["--size=10"]]
        {
            assert!(plan(args).is_err(), "{args:?}");
        }
    }
}
