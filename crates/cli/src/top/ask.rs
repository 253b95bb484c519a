//! Asking the members: all at once, so that one that does not answer delays the page by no more than its patience.

use super::look::Look;
use crate::command::Context;
use crate::failure::Outcome;
use crate::globals;
use api::etcdserverpb::{MemberListRequest, StatusRequest, StatusResponse};
use client::{Client, Endpoint};
use std::time::{Duration, Instant};

/// What one member said.
#[derive(Clone, Debug)]
pub(super) struct Answer {
    pub(super) name: String,
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

pub(super) struct Members(Vec<Asked>);

impl Members {
    /// All members of the cluster, or the endpoints that were named if it cannot list them.
    pub(super) fn find(context: &Context) -> Outcome<Members> {
        let client = context.client()?;
        let listed = context.call(client.member_list(MemberListRequest { linearizable: false }))?;
        let mut all = Vec::new();
        for member in listed.members {
            let Some(endpoint) = member.client_ur_ls.iter().find_map(|url| url.parse::<Endpoint>().ok()) else {
                continue;
            };
            let client = globals::client(&context.parsed, vec![endpoint.clone()], Some(PATIENCE))?;
            all.push(Asked { name: member.name, endpoint, client });
        }
        Ok(Members(all))
    }

    pub(super) async fn look(&mut self) -> Vec<Answer> {
        let asked: Vec<_> = self.0.iter().map(|member| tokio::spawn(member.ask())).collect();
        let mut answers = Vec::with_capacity(asked.len());
        for one in asked {
            answers.extend(one.await);
        }
        answers
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
            Answer { name, at: Instant::now(), status, look: Look::read(&page) }
        }
    }
}
