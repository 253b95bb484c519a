//! The members that a backup asks.

use crate::command::Context;
use crate::commands::snapshot::copy;
use crate::failure::{Failure, Outcome};
use crate::globals;
use api::Code;
use api::cairnpb::EntriesRequest;
use api::cairnpb::entries_response::State;
use backup::{Answer, At, Found, Source, SourceError};
use client::{Client, Endpoint};
use std::path::PathBuf;
use std::time::Duration;

/// Clients of one member each.
#[derive(Clone)]
pub(super) struct Members {
    members: Vec<(Endpoint, Client)>,
    /// Tells this process apart from others that ask.
    asker: u64,
    patience: Duration,
}

impl Members {
    pub(super) fn of(context: &Context) -> Outcome<Members> {
        let endpoints = globals::endpoints(&context.parsed)?;
        let make = |endpoint: Endpoint| {
            let client = globals::client(&context.parsed, vec![endpoint.clone()], None)?;
            Ok::<_, Failure>((endpoint, client))
        };
        let members = endpoints.into_iter().map(make).collect::<Outcome<Vec<_>>>()?;
        let asker = backup::now_ms().wrapping_shl(20) ^ u64::from(std::process::id());
        Ok(Members { members, asker: asker.max(1), patience: context.patience() })
    }

    fn member(&self, member: usize) -> Result<&(Endpoint, Client), SourceError> {
        self.members.get(member).ok_or_else(|| SourceError { text: "there is no such member".into(), is_final: true })
    }
}

impl Source for Members {
    fn members(&self) -> usize {
        self.members.len()
    }

    fn name(&self, member: usize) -> String {
        self.members.get(member).map_or_else(String::new, |(endpoint, _)| endpoint.to_string())
    }

    async fn entries(&self, member: usize, after: Option<At>, kept: u64) -> Result<Answer, SourceError> {
        let (endpoint, client) = self.member(member)?;
        let At { index, term } = after.unwrap_or_default();
        let request = EntriesRequest { index, term, kept_index: kept, asker: self.asker };
        let asked = tokio::time::timeout(self.patience, client.entries(endpoint, request)).await;
        let answer = match asked {
            Err(_) => return Err(SourceError { text: "it does not answer".into(), is_final: false }),
            Ok(answer) => answer.map_err(of_client)?,
        };
        let state = answer.state();
        let found = match state {
            State::Next => Found::Next(At { index: answer.index, term: answer.term }, answer.entries),
            State::Behind => Found::Behind,
            State::Trimmed => Found::Trimmed,
            State::Differs => Found::Differs(answer.term),
        };
        let cluster_id = answer.header.map_or(0, |header| header.cluster_id);
        let (applied, time_ms, complete_ms) = (answer.applied_index, answer.time_ms, answer.complete_ms);
        Ok(Answer { cluster_id, found, applied, time_ms, complete_ms })
    }

    async fn snapshot(&self, member: usize, file: PathBuf) -> Result<(), SourceError> {
        let (_, client) = self.member(member)?;
        let copied = copy(client, &file).await;
        copied.map_err(|failure| SourceError { text: failure.text, is_final: false })
    }
}

fn of_client(error: client::Error) -> SourceError {
    let code = error.code();
    let text = Failure::from(error).text;
    match code {
        Some(Code::Unimplemented) => SourceError {
            text: "it does not serve archives: it is no member of Cairn, or of an older version".into(),
            is_final: true,
        },
        Some(Code::PermissionDenied | Code::Unauthenticated | Code::InvalidArgument) => {
            SourceError { text, is_final: true }
        }
        _ => SourceError { text, is_final: false },
    }
}
