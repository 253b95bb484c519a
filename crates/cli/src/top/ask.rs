//! Asking the members: all at once, so that one that does not answer delays the page by no more than its patience.

use super::look::Look;
use crate::command::Context;
use crate::failure::Outcome;
use crate::globals;
use api::etcdserverpb::{MemberListRequest, MemberListResponse, StatusRequest, StatusResponse};
use client::{Client, Endpoint};
use std::time::{Duration, Instant};

/// What one member said.
#[derive(Clone, Debug)]
pub(super) struct Answer {
    pub(super) name: String,
    /// Tells members apart, also those that have no name.
    pub(super) endpoint: Endpoint,
    pub(super) at: Instant,
    /// Or why it said nothing.
    pub(super) status: Result<StatusResponse, String>,
    pub(super) look: Look,
}

/// A member that does not answer for so long is down, as far as the page is concerned.
const PATIENCE: Duration = Duration::from_secs(1);

struct Asked {
    name: String,
    endpoint: Endpoint,
    client: Client,
}

pub(super) struct Members {
    /// Who is asked for the list of members.
    lister: Client,
    asked: Vec<Asked>,
}

impl Members {
    /// All members of the cluster; the endpoints that were named, if it cannot list them but one of these answers.
    pub(super) fn find(context: &Context) -> Outcome<Members> {
        let client = context.client()?;
        let endpoints = globals::endpoints(&context.parsed)?;
        let lister = globals::client(&context.parsed, endpoints.clone(), Some(PATIENCE))?;
        let mut members = Members { lister, asked: Vec::new() };
        let listed = context.call(client.member_list(MemberListRequest { linearizable: false }));
        match listed {
            Ok(listed) => members.take(context, &listed)?,
            Err(why) => {
                for endpoint in endpoints {
                    members.add(context, endpoint.as_str().into(), endpoint)?;
                }
                let answers = context.wait(members.look(context))?;
                if answers.iter().all(|answer| answer.status.is_err()) {
                    return Err(why);
                }
            }
        }
        Ok(members)
    }

    /// Asks all, and meanwhile who is a member now: the next look is at those.
    pub(super) async fn look(&mut self, context: &Context) -> Outcome<Vec<Answer>> {
        let asked: Vec<_> = self.asked.iter().map(|member| tokio::spawn(member.ask())).collect();
        // A cluster that cannot tell has the members that it had.
        if let Ok(listed) = self.lister.member_list(MemberListRequest { linearizable: false }).await {
            self.take(context, &listed)?;
        }
        let mut answers = Vec::with_capacity(asked.len());
        for one in asked {
            answers.extend(one.await);
        }
        Ok(answers)
    }

    /// From now on these are asked. Connections to those who stay are kept.
    fn take(&mut self, context: &Context, listed: &MemberListResponse) -> Outcome {
        let mut before = std::mem::take(&mut self.asked);
        for member in &listed.members {
            // One that was never started has no URL.
            let Some(endpoint) = member.client_ur_ls.iter().find_map(|url| url.parse::<Endpoint>().ok()) else {
                continue;
            };
            match before.iter().position(|known| known.endpoint == endpoint) {
                Some(place) => {
                    self.asked.push(Asked { name: member.name.clone(), ..before.swap_remove(place) });
                }
                None => self.add(context, member.name.clone(), endpoint)?,
            }
        }
        Ok(())
    }

    fn add(&mut self, context: &Context, name: String, endpoint: Endpoint) -> Outcome {
        let client = globals::client(&context.parsed, vec![endpoint.clone()], Some(PATIENCE))?;
        self.asked.push(Asked { name, endpoint, client });
        Ok(())
    }
}

impl Asked {
    fn ask(&self) -> impl Future<Output = Answer> + Send + use<> {
        let (name, endpoint, client) = (self.name.clone(), self.endpoint.clone(), self.client.clone());
        async move {
            let status = client.status(&endpoint, StatusRequest {}).await.map_err(|error| error.to_string());
            let page = match &status {
                Ok(_) => client.page(&endpoint, "/metrics").await.unwrap_or_default(),
                Err(_) => String::new(),
            };
            Answer { name, endpoint, at: Instant::now(), status, look: Look::read(&page) }
        }
    }
}
