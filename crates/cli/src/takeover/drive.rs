//! The move itself: one step after the other, each decided anew.

use super::checks::{self, Finding};
use super::compare::{self, Same};
use super::host::Host;
use super::plan::{self, Next};
use super::screen::{Look, Screen};
use super::settings::{Joiner, Settings, Way};
use super::survey::Cluster;
use super::view::{Seen, View, plain};
use super::{advice, changes, hooks};
use crate::checks::format::Grade;
use crate::failure::{Failure, Outcome, code};
use std::cell::{Cell, RefCell};
use std::time::{Duration, Instant};

/// How long a member may take to answer, or the cluster to elect a leader, before that is how things are.
const GRACE: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(200);

pub(super) struct Drive<'a> {
    cluster: &'a Cluster<'a>,
    screen: &'a Screen,
    settings: Settings,
    /// The member that is known to be away: the move was interrupted there.
    away: Cell<Option<u64>>,
    /// The members that were moved in this run.
    moved: RefCell<Vec<u64>>,
}

impl<'a> Drive<'a> {
    pub(super) fn new(cluster: &'a Cluster<'a>, screen: &'a Screen, settings: Settings) -> Drive<'a> {
        Drive { cluster, screen, settings, away: Cell::new(None), moved: RefCell::default() }
    }
}

impl Drive<'_> {
    /// Checks, shows the plan, and does it unless only that is asked for.
    pub(super) async fn run(&mut self) -> Outcome {
        let view = self.checked().await?;
        let steps = plan::shown(&view, &self.settings.goal);
        let next = plan::next(&view, &self.settings.goal, &[]).map_err(|why| Failure::new(code::ERROR, why))?;
        let goal = &self.settings.goal;
        if next != Next::Nothing {
            self.screen.show(&format!("Plan: to {}, {}.\n", goal.to, goal.way.guarantee()))?;
            self.screen.show(&steps.iter().map(|line| format!("  {line}\n")).collect::<String>())?;
        }
        if self.settings.is_dry {
            let text =
                if next == Next::Nothing { "Nothing is to be moved.\n" } else { "Nothing was changed (--dry-run).\n" };
            return self.screen.show(text);
        }
        let mut last = None;
        loop {
            let view = self.sound().await?;
            let next = plan::next(&view, &self.settings.goal, &self.moved.borrow())
                .map_err(|why| advice::after(Failure::new(code::ERROR, why), &self.settings))?;
            if last.as_ref() == Some(&next) {
                let text = "the last step was done, and is needed again: look at the log of that member";
                return Err(advice::after(Failure::new(code::ERROR, text), &self.settings));
            }
            last = Some(next.clone());
            match self.step(&view, next).await {
                Ok(true) => {}
                Ok(false) => return self.finish(&view),
                Err(failure) => return Err(advice::after(failure, &self.settings)),
            }
        }
    }

    /// The checks before anything is changed, shown.
    async fn checked(&self) -> Outcome<View> {
        let view = self.settled().await?;
        let alarms = self.cluster.alarms(&view).await?;
        let mut findings = checks::findings(&view, &self.settings.goal, &alarms);
        let history = self.compared(&view).await;
        findings.push(match &history {
            Ok(same) => Finding { grade: Grade::Pass, name: "history", text: same.to_string() },
            Err(failure) => Finding { grade: Grade::Fail, name: "history", text: plain(&failure.text) },
        });
        for Finding { grade, name, text } in &findings {
            self.screen.show(&format!("  {}  {name:<8} {text}\n", grade.shown()))?;
        }
        if let Err(failure) = history {
            return Err(Failure { text: format!("nothing was changed: {}", failure.text), ..failure });
        }
        match refusal(&findings) {
            None => Ok(view),
            Some(why) => Err(Failure::new(code::ERROR, format!("nothing was changed: {why}"))),
        }
    }

    /// The cluster before the next step: all members answer but the one whose turn it is, and nothing is wrong.
    async fn sound(&self) -> Outcome<View> {
        let started = Instant::now();
        loop {
            let view = self.settled().await?;
            let findings = match self.cluster.alarms(&view).await {
                Ok(alarms) => checks::findings(&view, &self.settings.goal, &alarms),
                Err(failure) => vec![Finding { grade: Grade::Fail, name: "alarms", text: failure.text }],
            };
            match refusal(&findings) {
                None => return Ok(view),
                Some(why) if started.elapsed() >= GRACE => {
                    return Err(advice::after(Failure::new(code::ERROR, why), &self.settings));
                }
                Some(_) => tokio::time::sleep(PAUSE).await,
            }
        }
    }

    /// The cluster, after it had time to answer as a whole.
    async fn settled(&self) -> Outcome<View> {
        let started = Instant::now();
        let grace = GRACE.min(self.screen.timeout());
        let mut is_said = false;
        loop {
            let view = self.cluster.view().await;
            let is_over = started.elapsed() >= grace;
            match view {
                Ok(view) if view.is_whole() || is_over || self.lacks_only_who_is_away(&view) => {
                    self.away.set(view.silent().map(|member| member.id).next());
                    return Ok(view);
                }
                Err(failure) if is_over || failure.code != code::BAD_CONNECTION => return Err(failure),
                Ok(view) if !is_said => {
                    is_said = true;
                    let why: Vec<String> = view.silent().map(|member| format!("{member} does not answer")).collect();
                    let why = if why.is_empty() { "there is no leader".into() } else { why.join(", ") };
                    self.screen.say(&format!("waiting a little: {why}"))?;
                }
                _ => {}
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    fn lacks_only_who_is_away(&self, view: &View) -> bool {
        view.leader().is_some() && view.silent().all(|member| Some(member.id) == self.away.get())
    }

    async fn compared(&self, view: &View) -> Outcome<Same> {
        let voters: Vec<&Seen> = view.voters().filter(|member| member.told.is_ok()).collect();
        compare::history(self.cluster, self.screen, &voters).await
    }

    /// Does a step; false if there was none left.
    async fn step(&mut self, view: &View, next: Next) -> Outcome<bool> {
        let known = |id: u64| view.member(id).ok_or_else(|| Failure::new(code::ERROR, format!("{id:x} is no member")));
        match next {
            Next::Nothing => return Ok(false),
            Next::Restart(id) => self.restart(view, known(id)?).await?,
            Next::Remove(id) => self.remove(view, known(id)?).await?,
            Next::Add(joiner) => {
                self.begin(view, &joiner.name);
                let id = changes::add(self.cluster, self.screen, &joiner).await?;
                self.screen.say(&format!("added as learner {id:x}"))?;
            }
            Next::Promote(id) => self.promote(view, known(id)?).await?,
        }
        Ok(true)
    }

    /// Lines from here on are about this member.
    fn begin(&self, view: &View, name: &str) {
        let done = view.voters().filter(|member| member.kind() == Some(self.settings.goal.to)).count();
        let total = match self.settings.goal.way {
            Way::InPlace => view.voters().count(),
            Way::EmptyDisk => done + plan::shown(view, &self.settings.goal).len(),
            Way::NewAddresses => self.settings.goal.joining.len(),
        };
        self.screen.begin(format!("{}/{total} {}", (done + 1).min(total), plain(name)));
    }

    /// In place: the same member, run by the other program.
    async fn restart(&self, view: &View, member: &Seen) -> Outcome {
        self.begin(view, &member.to_string());
        self.spare(view, member).await?;
        let host = Host::new(view, member, None, &self.settings.goal, &self.settings.dirs);
        self.exchange(&host, Some(member)).await?;
        let to = self.settings.goal.to;
        let cluster = view.leader().and_then(|leader| leader.told.as_ref().ok()).map(|told| told.cluster());
        let look = async || match self.cluster.ask(member).await? {
            Ok(told) if cluster.is_some_and(|cluster| told.cluster() != cluster) => {
                let text = format!("{} answers as a member of another cluster, {:x}", told.endpoint, told.cluster());
                Err(Failure::new(code::INVALID_INPUT, text))
            }
            Ok(told) if told.kind == to => Ok(Look::There(())),
            Ok(told) => Ok(Look::NotYet(format!("it still runs {}", told.kind))),
            Err(why) => Ok(Look::NotYet(why)),
        };
        self.screen.until(&format!("{member} answers as {to}"), look).await?;
        self.moved.borrow_mut().push(member.id);
        self.level(member).await?;
        self.agreed(&format!("runs {to}")).await
    }

    /// With new addresses the old one goes at the end, with empty disks at the beginning.
    async fn remove(&mut self, view: &View, member: &Seen) -> Outcome {
        if self.settings.goal.way == Way::EmptyDisk {
            self.begin(view, &member.to_string());
        }
        self.spare(view, member).await?;
        if self.settings.goal.way == Way::EmptyDisk {
            let joiner = Joiner {
                name: if member.name.is_empty() { format!("{:x}", member.id) } else { member.name.clone() },
                peer_urls: member.peer_urls.clone(),
                client_urls: member.client_urls.clone(),
            };
            self.screen.say(&format!(
                "will be removed now. If this is interrupted before it is back, go on with the same flags and {}",
                joiner.flags()
            ))?;
            self.settings.goal.joining.push(joiner);
        }
        changes::remove(self.cluster, self.screen, member).await?;
        self.screen.say(&format!("{member} is removed"))?;
        if self.settings.goal.way == Way::EmptyDisk {
            return Ok(());
        }
        let host = Host::new(view, member, None, &self.settings.goal, &self.settings.dirs);
        let old = self.settings.goal.to.other();
        match &self.settings.hooks {
            Some(commands) => hooks::run(self.screen, "stop", &commands.stop, &host).await?,
            None => self.screen.say(&format!("stop {old} on the host of {member}; its data is no longer needed"))?,
        }
        self.agreed(&format!("took the place of {member}")).await
    }

    /// A learner: started, level, the same, and then a voter.
    async fn promote(&self, view: &View, member: &Seen) -> Outcome {
        let joiner = self.settings.goal.joining.iter().find(|joiner| member.is(joiner));
        let host = Host::new(view, member, joiner, &self.settings.goal, &self.settings.dirs);
        self.begin(view, &host.name);
        if member.told.is_err() {
            self.exchange(&host, None).await?;
        }
        let to = self.settings.goal.to;
        let look = async || {
            let view = match self.cluster.view().await {
                Ok(view) => view,
                Err(failure) if failure.code == code::INVALID_INPUT => return Err(failure),
                Err(failure) => return Ok(Look::NotYet(failure.text)),
            };
            let Some(found) = view.member(member.id) else {
                return Err(Failure::new(code::ERROR, format!("{} has been removed meanwhile", host.name)));
            };
            match &found.told {
                Ok(told) if told.kind == to => Ok(Look::There((found.clone(), view.leader().cloned()))),
                Ok(told) => Err(Failure::new(code::ERROR, format!("{} runs {}, not {to}", host.name, told.kind))),
                Err(why) => Ok(Look::NotYet(why.clone())),
            }
        };
        let (found, _) = self.screen.until(&format!("{} answers as {to}", plain(&host.name)), look).await?;
        self.level(&found).await?;
        let look = async || match self.cluster.view().await {
            Ok(view) => Ok(view.leader().cloned().map_or(Look::NotYet("no leader".into()), Look::There)),
            Err(failure) => Ok(Look::NotYet(failure.text)),
        };
        let leader = self.screen.until("there is a leader", look).await?;
        let same = compare::keys(self.cluster, self.screen, &[&leader, &found]).await?;
        self.screen.say(&format!("the learner has the leader's {same}"))?;
        changes::promote(self.cluster, self.screen, &found).await?;
        self.moved.borrow_mut().push(found.id);
        self.agreed("has its vote").await
    }

    /// The others can do without this member: it hands over if it leads, and what they say after that decides, for things may have
    /// changed since `view`.
    async fn spare(&self, view: &View, member: &Seen) -> Outcome {
        let started = Instant::now();
        let mut view = view.clone();
        loop {
            self.hand_over(&view, member).await?;
            let why = match self.cluster.view().await {
                Ok(fresh) => match plan::hindrance(&fresh, member.id) {
                    None => return Ok(()),
                    Some(why) => {
                        view = fresh;
                        why
                    }
                },
                Err(failure) if failure.code == code::INVALID_INPUT => return Err(failure),
                Err(failure) => failure.text,
            };
            if started.elapsed() >= GRACE {
                return Err(Failure::new(code::ERROR, format!("{member} is not stopped now: {why}")));
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// A leader that goes hands over first.
    async fn hand_over(&self, view: &View, member: &Seen) -> Outcome {
        if view.leader().is_none_or(|leader| leader.id != member.id) {
            return Ok(());
        }
        let Some(successor) = plan::successor(view, &self.settings.goal, member.id) else { return Ok(()) };
        changes::lead(self.cluster, self.screen, successor).await?;
        self.screen.say(&format!("leadership went to {successor}"))
    }

    /// Has the old program stopped and the other one started, by the operator's commands or by the operator. `running` is the member
    /// that runs now, if it goes on as the same.
    async fn exchange(&self, host: &Host, running: Option<&Seen>) -> Outcome {
        let Some(commands) = &self.settings.hooks else {
            return self.screen.show(&self.settings.form.lines(host));
        };
        if host.stops() {
            self.screen.say("stop command")?;
            hooks::run(self.screen, "stop", &commands.stop, host).await?;
        }
        if let Some(member) = running {
            let look = async || {
                Ok(match self.cluster.ask(member).await? {
                    Ok(told) if told.kind == host.to => Look::There(()),
                    Ok(told) => Look::NotYet(format!("{} still answers", told.kind)),
                    Err(_) => Look::There(()),
                })
            };
            self.screen.until(&format!("{member} stops"), look).await?;
        }
        self.screen.say("start command")?;
        hooks::run(self.screen, "start", &commands.start, host).await
    }

    /// Waits until a member has applied what the leader had committed when this began.
    async fn level(&self, member: &Seen) -> Outcome {
        let mut wanted = None;
        let look = async || {
            let target = match wanted {
                Some(target) => target,
                None => {
                    let view = match self.cluster.view().await {
                        Ok(view) => view,
                        Err(failure) => return Ok(Look::NotYet(failure.text)),
                    };
                    let told = view.leader().and_then(|leader| leader.told.as_ref().ok());
                    let Some(told) = told else { return Ok(Look::NotYet("there is no leader".into())) };
                    *wanted.insert(told.status.raft_index)
                }
            };
            let told = match self.cluster.ask(member).await? {
                Ok(told) => told,
                Err(why) => return Ok(Look::NotYet(why)),
            };
            let reached = told.status.raft_applied_index;
            if reached >= target && told.status.leader != 0 {
                return Ok(Look::There(reached));
            }
            Ok(Look::NotYet(format!("it has applied entry {reached} of {target}")))
        };
        self.screen.until(&format!("{member} is level"), look).await.map(drop)
    }

    /// Compares all voters at the end of a step, and says what it was.
    async fn agreed(&self, what: &str) -> Outcome {
        let look = async || match self.cluster.view().await {
            Ok(view) if view.is_whole() => Ok(Look::There(view)),
            Ok(view) => {
                let silent: Vec<String> = view.silent().map(Seen::to_string).collect();
                let why = if silent.is_empty() { "no leader".into() } else { silent.join(", ") + " does not answer" };
                Ok(Look::NotYet(why))
            }
            Err(failure) if failure.code == code::INVALID_INPUT => Err(failure),
            Err(failure) => Ok(Look::NotYet(failure.text)),
        };
        let view = self.screen.until("all members answer", look).await?;
        let same = self.compared(&view).await?;
        self.screen.say(&format!("{what}; {} members have {same}", view.voters().count()))
    }

    fn finish(&self, view: &View) -> Outcome {
        self.screen.begin("");
        let to = self.settings.goal.to;
        let others: Vec<String> =
            view.members.iter().filter(|member| member.kind() != Some(to)).map(Seen::to_string).collect();
        if !others.is_empty() {
            let text = format!("{} are not run by {to}, and no member is left to be replaced", others.join(", "));
            return Err(Failure::new(code::ERROR, text));
        }
        self.screen.show(&advice::at_the_end(view, &self.settings))
    }
}

/// What forbids to go on.
fn refusal(findings: &[Finding]) -> Option<String> {
    let failed = findings.iter().filter(|finding| finding.grade == Grade::Fail);
    let texts: Vec<String> = failed.map(|finding| format!("{}: {}", finding.name, finding.text)).collect();
    (!texts.is_empty()).then(|| texts.join("; "))
}
