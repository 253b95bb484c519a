//! Asking the cluster.

use super::view::{Kind, Seen, Told, View, plain};
use crate::command::Context;
use crate::failure::{Failure, Outcome, code};
use crate::globals;
use api::etcdserverpb::*;
use client::{Client, Endpoint};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::time::Duration;

/// How long one member may take for an answer.
const ANSWER_MAX: Duration = Duration::from_secs(3);
/// How often the list of members is asked for before nobody is there.
const ATTEMPTS: u32 = 4;
/// Every member of Cairn shows it on its page of metrics, and no other program does.
const MARK: &str = "cairn_build_info{";
/// What all show there: the version that the members share.
const SHARED: &str = "etcd_cluster_version{cluster_version=\"";

/// The cluster as it is reached from here.
pub(super) struct Cluster<'a> {
    context: &'a Context,
    /// Those of `--endpoints`.
    given: Vec<Endpoint>,
    /// By endpoint and the time of a call: each logs in once.
    clients: RefCell<BTreeMap<(String, Option<Duration>), Client>>,
    /// Of all endpoints that are known.
    whole: RefCell<(Vec<Endpoint>, Client)>,
}

impl<'a> Cluster<'a> {
    /// # Errors
    /// If nobody can be reached, or name or password is wrong.
    pub(super) fn new(context: &'a Context) -> Outcome<Cluster<'a>> {
        let given = globals::endpoints(&context.parsed)?;
        let client = context.client()?;
        Ok(Cluster { context, whole: RefCell::new((given.clone(), client)), given, clients: RefCell::default() })
    }

    /// A client of whichever member is there.
    pub(super) fn client(&self) -> Client {
        self.whole.borrow().1.clone()
    }

    /// A client of one member, for calls that are answered at once.
    pub(super) fn client_of(&self, endpoint: &Endpoint) -> Outcome<Client> {
        self.one(endpoint, Some(ANSWER_MAX))
    }

    /// A client of one member, for calls that take as long as its data is large: whoever waits sees to their end.
    pub(super) fn patient_client_of(&self, endpoint: &Endpoint) -> Outcome<Client> {
        self.one(endpoint, None)
    }

    fn one(&self, endpoint: &Endpoint, patience: Option<Duration>) -> Outcome<Client> {
        let key = (endpoint.as_str().to_string(), patience);
        if let Some(client) = self.clients.borrow().get(&key) {
            return Ok(client.clone());
        }
        let client = globals::client(&self.context.parsed, vec![endpoint.clone()], patience)?;
        self.clients.borrow_mut().insert(key, client.clone());
        Ok(client)
    }

    /// The members, as a quorum knows them.
    pub(super) async fn list(&self) -> Outcome<MemberListResponse> {
        let mut last = Failure::new(code::BAD_CONNECTION, "");
        for _ in 0..ATTEMPTS {
            match self.client().member_list(MemberListRequest { linearizable: true }).await {
                Ok(listed) if listed.members.is_empty() => {
                    return Err(Failure::new(code::INVALID_INPUT, "the list of members is empty"));
                }
                Ok(listed) => return Ok(listed),
                Err(error) => {
                    let code = if is_away(&error) { code::BAD_CONNECTION } else { code::ERROR };
                    last = Failure::new(code, format!("the list of members: {}", said(error)));
                }
            }
            if last.code == code::ERROR {
                break;
            }
        }
        Err(last)
    }

    /// All members, and what each says of itself.
    pub(super) async fn view(&self) -> Outcome<View> {
        let listed = self.list().await?;
        let cluster = listed.header.as_ref().map_or(0, |header| header.cluster_id);
        let own: Vec<Vec<Endpoint>> = listed.members.iter().map(endpoints).collect();
        let mut all: Vec<Endpoint> = own.iter().flatten().cloned().collect();
        all.extend(self.given.iter().filter(|given| !own.iter().flatten().any(|own| own == *given)).cloned());
        self.widen(&own, &all)?;
        let mut asked = Vec::with_capacity(all.len());
        for endpoint in all {
            let client = self.client_of(&endpoint)?;
            asked.push(tokio::spawn(async move { (endpoint.clone(), ask(&client, &endpoint).await) }));
        }
        let mut answers = Vec::with_capacity(asked.len());
        for asked in asked {
            answers.push(asked.await.map_err(std::io::Error::from)?);
        }
        if let Some((endpoint, told)) = answers.iter().find_map(|(endpoint, answer)| {
            Some((endpoint, answer.as_ref().ok().filter(|told| told.cluster() != cluster)?))
        }) {
            let text = format!("{endpoint} is a member of cluster {:x}, not of {cluster:x}", told.cluster());
            return Err(Failure::new(code::INVALID_INPUT, text));
        }
        let members = listed.members.into_iter().zip(own).map(|(member, own)| seen(member, &own, &answers)).collect();
        Ok(View { members })
    }

    /// Talks to all members from now on: those that were named may go.
    fn widen(&self, own: &[Vec<Endpoint>], all: &[Endpoint]) -> Outcome {
        let wanted: Vec<Endpoint> = if own.iter().all(Vec::is_empty) { all.to_vec() } else { own.concat() };
        let wanted: Vec<Endpoint> =
            wanted.into_iter().chain(self.given.iter().filter(|given| !all.contains(given)).cloned()).collect();
        if self.whole.borrow().0 == wanted {
            return Ok(());
        }
        let client = globals::client(&self.context.parsed, wanted.clone(), Some(self.context.patience()))?;
        *self.whole.borrow_mut() = (wanted, client);
        Ok(())
    }

    /// What a member says now: where it answered before, where it advertises, or where another endpoint leads to it.
    pub(super) async fn ask(&self, member: &Seen) -> Outcome<Result<Told, String>> {
        let known = member.told.as_ref().ok().map(|told| told.endpoint.clone());
        let advertised: Vec<Endpoint> = member.client_urls.iter().filter_map(|url| url.parse().ok()).collect();
        let is_own = |endpoint: &Endpoint| Some(endpoint) == known.as_ref() || advertised.contains(endpoint);
        let mut why = "it has no client URL yet".to_string();
        for endpoint in known.iter().chain(&advertised).chain(self.given.iter().filter(|given| !is_own(given))) {
            match ask(&self.client_of(endpoint)?, endpoint).await {
                Ok(told) if told.id() == member.id => return Ok(Ok(told)),
                Ok(told) if is_own(endpoint) => why = format!("{endpoint} answers as member {:x}", told.id()),
                Err(error) if is_own(endpoint) => why = error,
                _ => {}
            }
        }
        Ok(Err(why))
    }

    /// The alarms that are raised, in words.
    pub(super) async fn alarms(&self, view: &View) -> Outcome<Vec<String>> {
        let request = AlarmRequest { action: alarm_request::AlarmAction::Get as i32, ..Default::default() };
        let answer = self.client().alarm(request).await?;
        let say = |alarm: &AlarmMember| {
            let member = view.member(alarm.member_id).map_or(format!("{:x}", alarm.member_id), Seen::to_string);
            format!("{member}: {}", alarm.alarm().as_str_name())
        };
        Ok(answer.alarms.iter().map(say).collect())
    }
}

/// Whether nobody was reached, or nobody who could answer for the cluster.
fn is_away(error: &client::Error) -> bool {
    let codes = [api::Code::Unavailable, api::Code::DeadlineExceeded, api::Code::Canceled, api::Code::Internal];
    error.code().is_some_and(|code| codes.contains(&code)) || error.is(api::Error::NotSupportedForLearner)
}

/// Why a call failed, with what it failed with last if its time was over.
fn said(error: client::Error) -> String {
    if error.code() == Some(api::Code::DeadlineExceeded) { error.to_string() } else { Failure::from(error).text }
}

fn endpoints(member: &Member) -> Vec<Endpoint> {
    member.client_ur_ls.iter().filter_map(|url| url.parse().ok()).collect()
}

/// A member of the list with its answer: at its own endpoints, or at one that was named.
fn seen(member: Member, own: &[Endpoint], answers: &[(Endpoint, Result<Told, String>)]) -> Seen {
    let told = answers.iter().filter_map(|(_, answer)| answer.as_ref().ok()).find(|told| told.id() == member.id);
    let why = || {
        let at_own = answers.iter().find(|(endpoint, _)| own.contains(endpoint));
        match at_own {
            None => "it has no client URL yet".to_string(),
            Some((endpoint, Ok(other))) => format!("{endpoint} answers as member {:x}", other.id()),
            Some((_, Err(why))) => why.clone(),
        }
    };
    Seen {
        told: told.cloned().ok_or_else(why),
        id: member.id,
        name: member.name,
        peer_urls: member.peer_ur_ls,
        client_urls: member.client_ur_ls,
        is_learner: member.is_learner,
    }
}

/// What a member says of itself, and which program it runs. One that is away is found out at once.
async fn ask(client: &Client, endpoint: &Endpoint) -> Result<Told, String> {
    let mut pages = client.pages(endpoint).await.map_err(|error| error.to_string())?;
    let status = client.status(endpoint, StatusRequest {}).await.map_err(said)?;
    let page = pages.get("/metrics").await.map_err(|error| {
        format!("{endpoint}/metrics tells which program it is, and cannot be read: {}", plain(&error.to_string()))
    })?;
    let (kind, cluster_version) = read(&page)?;
    Ok(Told { endpoint: endpoint.clone(), kind, cluster_version, status })
}

/// Which program shows this page of metrics, and the version that the cluster has.
fn read(page: &str) -> Result<(Kind, Option<String>), String> {
    let has = |start: &str| page.lines().any(|line| line.starts_with(start));
    let kind = match (has(MARK), has("etcd_server_has_leader ")) {
        (true, _) => Kind::Cairn,
        (false, true) => Kind::Etcd,
        (false, false) => return Err("its page of metrics is neither etcd's nor Cairn's".into()),
    };
    let shared = page.lines().find_map(|line| line.strip_prefix(SHARED)?.split('"').next());
    Ok((kind, shared.map(String::from)))
}

#[cfg(test)]
mod tests {
    use super::super::view::samples;
    use super::*;

    #[test]
    fn pages_tell_the_programs_apart() {
        let etcd = "# HELP x\netcd_cluster_version{cluster_version=\"3.7\"} 1\netcd_server_has_leader 1\n";
        assert_eq!(read(etcd), Ok((Kind::Etcd, Some("3.7".into()))));
        let cairn = format!("{etcd}cairn_build_info{{version=\"0.1.0\"}} 1\n");
        assert_eq!(read(&cairn), Ok((Kind::Cairn, Some("3.7".into()))));
        assert_eq!(read("etcd_server_has_leader 0\n"), Ok((Kind::Etcd, None)));
        // A label with that text is no metric.
        assert_eq!(read("x{y=\"cairn_build_info{\"} 1\netcd_server_has_leader 1\n").map(|read| read.0), Ok(Kind::Etcd));
        for page in ["", "<html>", "up 1\n"] {
            assert!(read(page).is_err(), "{page:?}");
        }
    }

    #[test]
    fn answers_belong_to_the_member_that_gives_them() {
        let told = samples::member(1, "a", Some(Kind::Etcd), 1).told.expect("an answer");
        let at = |port: u32| format!("http://h:{port}").parse::<Endpoint>().expect("an endpoint");
        let member = |id| Member { id, client_ur_ls: vec!["http://h:2".into()], ..Default::default() };
        let answers = [(at(1), Ok(told.clone())), (at(2), Err("refused".into()))];
        // Reached at an endpoint that was named, not at its own.
        assert!(seen(member(1), &[at(2)], &answers).told.is_ok());
        assert_eq!(seen(member(2), &[at(2)], &answers).told.err().as_deref(), Some("refused"));
        assert_eq!(seen(member(2), &[], &answers).told.err().as_deref(), Some("it has no client URL yet"));
        let answers = [(at(2), Ok(told))];
        let other = seen(member(2), &[at(2)], &answers).told.err();
        assert_eq!(other.as_deref(), Some("http://h:2 answers as member 1"));
    }
}
