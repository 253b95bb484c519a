//! The member that is attacked, and the good client that must find it healthy.

use crate::good::Good;
use crate::link;
use crate::script::{self, Stage, Tls};
use crate::world::{GOOD_KEY, GOOD_LEASE, GOOD_LEASED, WEAK_PASSWORD, World};
use api::authpb::Permission;
use api::etcdserverpb::alarm_request::AlarmAction;
use api::etcdserverpb::{
    AlarmRequest, AlarmResponse, AuthEnableRequest, AuthEnableResponse, AuthRoleAddRequest, AuthRoleAddResponse,
    AuthRoleGrantPermissionRequest, AuthRoleGrantPermissionResponse, AuthUserAddRequest, AuthUserAddResponse,
    AuthUserGrantRoleRequest, AuthUserGrantRoleResponse, AuthenticateRequest, AuthenticateResponse, LeaseGrantRequest,
    LeaseGrantResponse, MemberAddRequest, MemberAddResponse, PutRequest, PutResponse, RangeRequest, RangeResponse,
};
use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use disk::sim::SimDisk;
use rpc::Status;
use server::harness::{Member, Method};
use std::fmt;
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::JoinHandle;

/// Inputs after which a member ends with a power cut, and another begins.
const INPUTS_MAX: u64 = 2_000;
/// Connections of the member to the learner that are kept until a script answers them.
const DIALLED_MAX: usize = 8;
/// Size of the simulated disk, and what the store may have of it.
const DISK_BYTES: u64 = 512 << 20;
const QUOTA_BYTES: u64 = 48 << 20;
/// Memory that the process may have beyond what it had with its first member: its own bound on what may wait, with the
/// simulated disk and what the allocator keeps.
const MEMORY_BYTES_MAX: u64 = 1 << 30;
/// Inputs between looks at the memory.
const MEMORY_LOOK: u64 = 64;

const PASSWORD: &str = "the-good-password";

/// What is attacked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// Everything, without users.
    FrontDoor,
    /// The client ports, with users.
    Logins,
}

/// What a member did not stand.
#[derive(Debug)]
pub struct Finding(String);

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What the good client was last told of.
#[derive(Clone, Default)]
struct Acknowledged {
    revision: i64,
    value: Vec<u8>,
}

/// A member on a simulated disk.
struct Running {
    member: Member,
    disk: SimDisk,
    good: Good,
    learner: Option<TcpListener>,
    dialled: Vec<TcpStream>,
    world: World,
    acknowledged: Acknowledged,
    /// The auth revision that only the good client may change.
    auth_revision: u64,
    inputs: u64,
}

/// A member under attack; replaced when scripts have taken it apart by lawful means, and now and then anyway.
pub struct Site {
    target: Target,
    methods: Vec<Method>,
    tls: Tls,
    certificates: PathBuf,
    /// Part of every value that the good client writes.
    secret: String,
    secrets: Vec<Vec<u8>>,
    running: Option<Running>,
    /// The end of an earlier member, which takes a moment.
    stopping: Option<JoinHandle<()>>,
    /// Inputs, members, and restarts on what a power cut left.
    counts: [u64; 3],
    memory_at_first: u64,
    memory_most: u64,
}

fn must<T, E: fmt::Display>(what: &str, result: Result<T, E>) -> T {
    result.unwrap_or_else(|error| panic!("{what}: {error}"))
}

impl Site {
    /// A member that nobody has touched.
    ///
    /// # Panics
    /// If none can be started: nothing can be said then.
    pub fn new(target: Target) -> Site {
        let certificates = std::env::temp_dir().join(format!("cairn-hostile-{}", std::process::id()));
        must("a directory", std::fs::create_dir_all(&certificates));
        let key = must("a key", rcgen::KeyPair::generate());
        let params = must("a certificate", rcgen::CertificateParams::new(vec!["127.0.0.1".into(), "localhost".into()]));
        let certificate = must("a certificate", params.self_signed(&key));
        must("a file", std::fs::write(certificates.join("cert.pem"), certificate.pem()));
        must("a file", std::fs::write(certificates.join("key.pem"), key.serialize_pem()));
        let nonce = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default().as_nanos();
        let secret = format!("only-the-good-may-know-{nonce:032x}");
        let encoded = STANDARD_NO_PAD.encode(&secret).into_bytes();
        let mut site = Site {
            target,
            methods: server::harness::methods(),
            tls: Tls {
                http2: must("TLS", link::client_config(&[b"h2"])),
                plain: must("TLS", link::client_config(&[])),
            },
            certificates,
            // Without the last digits of base64, which depend on what follows.
            secrets: match target {
                Target::FrontDoor => Vec::new(),
                Target::Logins => vec![secret.clone().into_bytes(), encoded[..encoded.len() - 2].to_vec()],
            },
            secret,
            running: None,
            stopping: None,
            counts: [0; 3],
            memory_at_first: 0,
            memory_most: 0,
        };
        site.running = Some(site.begin());
        site.memory_at_first = resident_bytes();
        site
    }

    /// Inputs so far, members that were started for them, members that were started on what a power cut left, and by how many bytes
    /// the process had grown at most.
    pub fn summary(&self) -> String {
        let [inputs, members, cuts] = self.counts;
        let grown = self.memory_most.saturating_sub(self.memory_at_first) >> 20;
        format!("{inputs} inputs, {members} members, {cuts} power cuts, memory grown by at most {grown} MiB")
    }

    fn start(&self, disk: &SimDisk, is_attacked: bool) -> Member {
        let certificates = |name: &str| self.certificates.join(name).display().to_string();
        let (cert, key) = (certificates("cert.pem"), certificates("key.pem"));
        let mut args = vec![
            "--name=m".into(),
            "--data-dir=/simulated".into(),
            "--listen-client-urls=http://127.0.0.1:0,https://127.0.0.1:0".into(),
            "--advertise-client-urls=http://127.0.0.1:1".into(),
            "--listen-peer-urls=http://127.0.0.1:0,https://127.0.0.1:0".into(),
            "--initial-advertise-peer-urls=http://127.0.0.1:1".into(),
            "--initial-cluster=m=http://127.0.0.1:1".into(),
            format!("--cert-file={cert}"),
            format!("--key-file={key}"),
            format!("--peer-cert-file={cert}"),
            format!("--peer-key-file={key}"),
            "--heartbeat-interval=20".into(),
            "--election-timeout=100".into(),
            "--threads=1".into(),
            "--bcrypt-cost=4".into(),
            format!("--quota-backend-bytes={QUOTA_BYTES}"),
            "--log-level=fatal".into(),
        ];
        if is_attacked && self.target == Target::FrontDoor {
            // Scripts may speak as a peer that leads, whose proof of a lost log would rightly end the member.
            args.push("--unsafe-ignore-lost-log".into());
        }
        must("cannot start a member", Member::start(args, Arc::new(disk.clone())))
    }

    fn begin(&mut self) -> Running {
        self.counts[1] += 1;
        let disk = SimDisk::new();
        disk.set_capacity(Some(DISK_BYTES));
        let member = self.start(&disk, true);
        let good = must("a client", Good::new(member.clients()[0]));
        let (id, cluster) = member.ids();
        let world = World { member: id, cluster, ..World::default() };
        let mut running = Running {
            member,
            disk,
            good,
            learner: None,
            dialled: Vec::new(),
            world,
            acknowledged: Acknowledged::default(),
            auth_revision: 0,
            inputs: 0,
        };
        match self.target {
            Target::FrontDoor => running.add_learner(),
            Target::Logins => running.add_users(&self.secret),
        }
        running
    }

    /// Plays one input, and looks whether the member is as it should be.
    pub fn run(&mut self, input: &[u8]) -> Result<(), Finding> {
        self.counts[0] += 1;
        let mut running = match self.running.take() {
            Some(running) => running,
            None => self.begin(),
        };
        running.inputs += 1;
        let (term, committed) = running.member.position();
        running.world = World { term, committed, revision: running.member.revision(), ..running.world.clone() };
        let stage = Stage {
            target: self.target,
            member: &running.member,
            methods: &self.methods,
            tls: &self.tls,
            world: running.world.clone(),
            learner: running.learner.as_ref(),
            dialled: &mut running.dialled,
            secrets: &self.secrets,
        };
        script::play(stage, input).map_err(Finding)?;
        running.dialled.truncate(DIALLED_MAX);
        let value = format!("{}-{}", self.secret, running.inputs).into_bytes();
        let goes_on = match self.target {
            Target::FrontDoor => running.check(value),
            Target::Logins => running.check_with_users(value),
        };
        let goes_on = goes_on.map_err(Finding)?;
        if self.counts[0].is_multiple_of(MEMORY_LOOK) {
            self.look_at_memory()?;
        }
        if goes_on && running.inputs < INPUTS_MAX {
            self.running = Some(running);
            return Ok(());
        }
        self.end(running, goes_on)
    }

    /// Cuts the power, starts a member on what is left, and looks for what was acknowledged.
    pub fn cut(&mut self) -> Result<(), Finding> {
        match self.running.take() {
            Some(running) => self.end(running, true),
            None => Ok(()),
        }
    }

    fn end(&mut self, running: Running, is_whole: bool) -> Result<(), Finding> {
        let disk = running.disk.after_cut(self.counts[0]);
        let (acknowledged, good) = (running.acknowledged.clone(), running.good);
        if let Some(earlier) = self.stopping.take() {
            // A panic there has been reported.
            let _ = earlier.join();
        }
        let member = running.member;
        self.stopping = Some(std::thread::spawn(move || member.stop()));
        drop(good);
        if !is_whole {
            return Ok(());
        }
        self.counts[2] += 1;
        let member = self.start(&disk, false);
        let mut good = must("a client", Good::new(member.clients()[0]));
        if self.target == Target::Logins {
            log_in(&mut good, "good", PASSWORD).map_err(|status| Finding(format!("after a power cut: {status:?}")))?;
        }
        let revision = if self.target == Target::Logins { 0 } else { acknowledged.revision };
        let found = read_at(&good, GOOD_KEY, revision);
        let kept = match (&found, self.target) {
            (Ok(Some(value)), _) => *value == acknowledged.value,
            // Hostile clients may compact where there are no users.
            (Err(status), Target::FrontDoor) => status.message.contains("compacted"),
            _ => false,
        };
        member.stop();
        match kept {
            true => Ok(()),
            false => Err(Finding(format!("a power cut lost revision {}: {found:?}", acknowledged.revision))),
        }
    }

    fn look_at_memory(&mut self) -> Result<(), Finding> {
        let bytes = resident_bytes();
        self.memory_most = self.memory_most.max(bytes);
        match bytes.saturating_sub(self.memory_at_first) {
            0..MEMORY_BYTES_MAX => Ok(()),
            grown => Err(Finding(format!("memory has grown by {} MiB", grown >> 20))),
        }
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        if let Some(running) = self.running.take() {
            running.member.stop();
        }
        if let Some(earlier) = self.stopping.take() {
            let _ = earlier.join();
        }
        // Another site of this process may have removed it.
        let _ = std::fs::remove_dir_all(&self.certificates);
    }
}

impl Running {
    /// A learner that does not count for anything, whom scripts speak for.
    fn add_learner(&mut self) {
        let listener = must("a port", TcpListener::bind("127.0.0.1:0"));
        must("a port", listener.set_nonblocking(true));
        let url = format!("http://{}", must("a port", listener.local_addr()));
        let request = MemberAddRequest { peer_ur_ls: vec![url], is_learner: true };
        let added: MemberAddResponse =
            must("a learner", self.good.insist("/etcdserverpb.Cluster/MemberAdd", &request).map_err(shown));
        self.world.learner = added.member.map_or(0, |member| member.id);
        self.learner = Some(listener);
    }

    fn add_users(&mut self, secret: &str) {
        let good = &mut self.good;
        for (name, password) in [("root", PASSWORD), ("good", PASSWORD), ("weak", WEAK_PASSWORD)] {
            let request = AuthUserAddRequest { name: name.into(), password: password.into(), ..Default::default() };
            let _: AuthUserAddResponse =
                must("a user", good.insist("/etcdserverpb.Auth/UserAdd", &request).map_err(shown));
        }
        for (role, prefix, user) in [("root", "", "root"), ("r-good", "good/", "good"), ("r-weak", "weak/", "weak")] {
            let request = AuthRoleAddRequest { name: role.into() };
            let _: AuthRoleAddResponse =
                must("a role", good.insist("/etcdserverpb.Auth/RoleAdd", &request).map_err(shown));
            if !prefix.is_empty() {
                let end = prefix.replace('/', "0");
                let perm = Permission { perm_type: 2, key: prefix.into(), range_end: end.into() };
                let request = AuthRoleGrantPermissionRequest { name: role.into(), perm: Some(perm) };
                let _: AuthRoleGrantPermissionResponse = must(
                    "a permission",
                    good.insist("/etcdserverpb.Auth/RoleGrantPermission", &request).map_err(shown),
                );
            }
            let request = AuthUserGrantRoleRequest { user: user.into(), role: role.into() };
            let _: AuthUserGrantRoleResponse =
                must("a role", good.insist("/etcdserverpb.Auth/UserGrantRole", &request).map_err(shown));
        }
        let _: AuthEnableResponse =
            must("auth", good.insist("/etcdserverpb.Auth/AuthEnable", &AuthEnableRequest {}).map_err(shown));
        must(
            "a login",
            log_in(good, "weak", WEAK_PASSWORD).map_err(shown).map(|token| self.world.token = token.into()),
        );
        must("a login", log_in(good, "good", PASSWORD).map_err(shown));
        let request = LeaseGrantRequest { ttl: 9_000_000_000, id: GOOD_LEASE };
        let _: LeaseGrantResponse =
            must("a lease", good.insist("/etcdserverpb.Lease/LeaseGrant", &request).map_err(shown));
        let request = PutRequest {
            key: GOOD_LEASED.into(),
            value: secret.to_string().into(),
            lease: GOOD_LEASE,
            ..Default::default()
        };
        let _: PutResponse = must("a put", good.insist("/etcdserverpb.KV/Put", &request).map_err(shown));
        self.auth_revision = self.member.auth().0;
    }

    /// Whether the member answers as it should. False if hostile clients have changed it in ways that are theirs where there are no users:
    /// then it is the end of this member, but no finding.
    fn check(&mut self, value: Vec<u8>) -> Result<bool, String> {
        if !self.is_ours() || (self.member.alarms() > 0 && !self.disarm()) {
            return Ok(false);
        }
        let request = PutRequest { key: GOOD_KEY.into(), value: value.clone().into(), ..Default::default() };
        let put: Result<PutResponse, Status> = self.good.insist("/etcdserverpb.KV/Put", &request);
        let revision = match put {
            Ok(response) => response.header.map_or(0, |header| header.revision),
            Err(_) if !self.is_ours() || self.member.alarms() > 0 => return Ok(false),
            Err(status) => return Err(format!("a good put fails: {status:?}")),
        };
        let found = read_at(&self.good, GOOD_KEY, revision);
        match found {
            Ok(Some(found)) if found == value => {}
            Err(status) if status.message.contains("compacted") => {}
            Err(_) if !self.is_ours() || self.member.alarms() > 0 => return Ok(false),
            found => return Err(format!("what was put at revision {revision} is not there: {found:?}")),
        }
        if revision < self.acknowledged.revision {
            return Err(format!("revision {revision} after {}", self.acknowledged.revision));
        }
        self.acknowledged = Acknowledged { revision, value };
        Ok(true)
    }

    /// Whether the members are still the one that answers and its learner, and nobody needs a password.
    fn is_ours(&self) -> bool {
        let voters = self.member.members().iter().filter(|(_, is_learner)| !is_learner).count();
        voters == 1 && !self.member.auth().1 && !self.member.has_ended()
    }

    /// Lowers the alarms that hostile clients have raised.
    fn disarm(&self) -> bool {
        let alarm = "/etcdserverpb.Maintenance/Alarm";
        let Ok(list) = self.good.insist::<AlarmResponse>(alarm, &AlarmRequest::default()) else { return false };
        for raised in list.alarms {
            let action = AlarmAction::Deactivate as i32;
            let request = AlarmRequest { action, member_id: raised.member_id, alarm: raised.alarm };
            if self.good.insist::<AlarmResponse>(alarm, &request).is_err() {
                return false;
            }
        }
        self.member.alarms() == 0
    }

    /// The same where hostile clients may do nothing to it at all, except fill the store.
    fn check_with_users(&mut self, value: Vec<u8>) -> Result<bool, String> {
        let (revision, is_enabled) = self.member.auth();
        if revision != self.auth_revision || !is_enabled {
            return Err(format!("a hostile client changed users: revision {revision}, enabled {is_enabled}"));
        }
        if self.member.members().len() != 1 || self.member.has_ended() {
            return Err("a hostile client changed the members".into());
        }
        if self.member.alarms() > 0 {
            return Ok(false);
        }
        if self.acknowledged.revision > 0 {
            let found = self.with_token(|good| read_at(good, GOOD_KEY, 0));
            match found {
                Ok(Some(found)) if found == self.acknowledged.value => {}
                found => return Err(format!("a hostile client changed the good client's key: {found:?}")),
            }
        }
        match self.with_token(|good| read_at(good, GOOD_LEASED, 0)) {
            Ok(Some(_)) => {}
            found => return Err(format!("a hostile client ended the good client's lease: {found:?}")),
        }
        let request = PutRequest { key: GOOD_KEY.into(), value: value.clone().into(), ..Default::default() };
        let put: Result<PutResponse, Status> = self.with_token(|good| good.insist("/etcdserverpb.KV/Put", &request));
        match put {
            Ok(response) => {
                let revision = response.header.map_or(0, |header| header.revision);
                self.acknowledged = Acknowledged { revision, value };
                if self.inputs.is_multiple_of(16) {
                    // Hostile clients' tokens end with the time that their scripts let pass.
                    let token = log_in(&mut self.good, "weak", WEAK_PASSWORD).map_err(shown)?;
                    self.world.token = token.into();
                    log_in(&mut self.good, "good", PASSWORD).map_err(shown)?;
                }
                Ok(true)
            }
            Err(_) if self.member.alarms() > 0 => Ok(false),
            Err(status) => Err(format!("a good put fails: {status:?}")),
        }
    }

    /// Calls with a token that is renewed once if time has run away with it.
    fn with_token<T>(&mut self, call: impl Fn(&Good) -> Result<T, Status>) -> Result<T, Status> {
        match call(&self.good) {
            Err(status) if status.message.contains("token") => {
                log_in(&mut self.good, "good", PASSWORD)?;
                call(&self.good)
            }
            answer => answer,
        }
    }
}

fn shown(status: Status) -> String {
    format!("{status:?}")
}

/// The value of a key at a revision; 0 is now.
fn read_at(good: &Good, key: &str, revision: i64) -> Result<Option<Vec<u8>>, Status> {
    let request = RangeRequest { key: key.to_string().into(), revision, ..Default::default() };
    let response: RangeResponse = good.insist("/etcdserverpb.KV/Range", &request)?;
    Ok(response.kvs.into_iter().next().map(|kv| kv.value.to_vec()))
}

fn log_in(good: &mut Good, name: &str, password: &str) -> Result<String, Status> {
    let request = AuthenticateRequest { name: name.into(), password: password.into() };
    let response: AuthenticateResponse = good.insist("/etcdserverpb.Auth/Authenticate", &request)?;
    good.take_token(&response.token);
    Ok(response.token)
}

/// Memory of this process that no file backs.
fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap_or_default();
    line.trim().trim_end_matches(" kB").trim().parse::<u64>().unwrap_or(0) << 10
}
