//! One call with all its attempts.

use api::{Code, Message};
use bytes::Bytes;
use rpc::Status;
use rpc::client::StreamingCall;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use crate::backoff;
use crate::balancer::Member;
use crate::client::Client;
use crate::credentials::{Secret, Ticket};
use crate::retry::{self, ATTEMPTS_MAX, Failure, Repeat};
use crate::{Error, Options};
use api::etcdserverpb::{AuthenticateRequest, AuthenticateResponse};

/// The path of the method that exchanges a password for a token.
const AUTHENTICATE: &str = "/etcdserverpb.Auth/Authenticate";

impl Client {
    /// One request, one answer, on whichever member is next; tried again as `repeat` allows, within [`Options::call_timeout`].
    pub(crate) async fn call<A: Message + Default>(
        &self,
        path: &str,
        request: &impl Message,
        repeat: Repeat,
    ) -> Result<A, Error> {
        let message = self.encode(request)?;
        let answer = self.within(self.inner.options.call_timeout, self.attempts(path, message, repeat)).await?;
        read(path, answer)
    }

    fn encode(&self, request: &impl Message) -> Result<Bytes, Status> {
        let (bytes, max) = (request.encoded_len(), self.inner.options.request_bytes_max);
        if bytes > max {
            let text = format!("trying to send message larger than max ({bytes} vs. {max})");
            return Err(Status::new(Code::ResourceExhausted, text));
        }
        Ok(request.encode_to_vec().into())
    }

    /// Gives `call` so long. What it failed with last says more than that its time is over, so that is kept.
    pub(crate) async fn within<T>(
        &self,
        patience: Option<Duration>,
        call: impl Future<Output = Result<T, Status>>,
    ) -> Result<T, Status> {
        match patience {
            None => call.await,
            Some(patience) => tokio::time::timeout(patience, call).await.unwrap_or_else(|_| {
                self.inner.zones.doubt();
                let reason = self.inner.balancer.failure();
                let text = match reason {
                    None => "context deadline exceeded".to_string(),
                    Some(reason) => format!("context deadline exceeded: {reason}"),
                };
                Err(Status::new(Code::DeadlineExceeded, text))
            }),
        }
    }

    async fn attempts(&self, path: &str, message: Bytes, repeat: Repeat) -> Result<Bytes, Status> {
        let patience = self.inner.options.call_timeout;
        let mut refused = None;
        let mut attempt = 0;
        loop {
            let ticket = self.ticket(refused.as_ref()).await?;
            let failure = match self.attempt(path, &ticket, message.clone(), patience, attempt == 0).await {
                Ok(answer) => return Ok(answer),
                Err(failure) => failure,
            };
            self.inner.zones.doubt();
            attempt += 1;
            if self.can_ask_again(&failure.status) && attempt < ATTEMPTS_MAX {
                refused = Some(ticket);
                if attempt > 1 {
                    self.pause(attempt, &failure.status).await;
                }
                continue;
            }
            let can_repeat = repeat.allows(&failure) || self.can_ask_elsewhere(&failure.status, attempt);
            // What was not sent is no attempt of the members'.
            if !can_repeat || (attempt >= ATTEMPTS_MAX && !failure.is_unsent) {
                return Err(failure.status);
            }
            self.pause(attempt, &failure.status).await;
        }
    }

    /// Whether a member refused what it will not refuse for ever: a token, which is replaced, or because users were changed just
    /// now, which happens to those without a token as well.
    fn can_ask_again(&self, status: &Status) -> bool {
        retry::wants_another_token(status)
            && (self.inner.credentials.can_refresh() || status.message != api::Error::UserEmpty.message())
    }

    /// Whether this attempt came to a learner, which does nothing of the kind, and there are other members to ask.
    pub(crate) fn can_ask_elsewhere(&self, status: &Status, attempt: u32) -> bool {
        retry::is_from_learner(status) && self.inner.balancer.len() > 1 && attempt < ATTEMPTS_MAX
    }

    /// What is to be done between two attempts.
    pub(crate) async fn pause(&self, attempt: u32, status: &Status) {
        self.inner.balancer.failed(&status.message);
        self.inner.zones.doubt();
        if let Some(pause) = retry::pause(attempt, self.inner.balancer.len()) {
            tokio::time::sleep(pause).await;
        }
    }

    async fn attempt(
        &self,
        path: &str,
        ticket: &Ticket,
        message: Bytes,
        patience: Option<Duration>,
        prefers_zone: bool,
    ) -> Result<Bytes, Failure> {
        let member = if prefers_zone { self.pick().await } else { self.inner.balancer.pick().await };
        let ended = |status: Status| Failure { is_unsent: status.is_unsent(), status };
        member.channel.unary(path, &ticket.metadata, message, patience).await.map_err(ended)
    }

    /// Gets a token within `patience` (none: however long it takes), if this client has a user and none yet: calls do so of their own
    /// accord, but cannot tell that this is what failed.
    ///
    /// # Errors
    /// If name or password is wrong, or nobody can be asked.
    pub async fn login(&self, patience: Option<Duration>) -> Result<(), Error> {
        self.within(patience, self.ticket(None)).await?;
        Ok(())
    }

    /// The metadata of the next call.
    pub(crate) async fn ticket(&self, refused: Option<&Ticket>) -> Result<Ticket, Status> {
        self.inner.credentials.ticket(refused, |secret| self.authenticate(secret)).await
    }

    async fn authenticate(&self, secret: Secret) -> Result<String, Status> {
        let request = AuthenticateRequest { name: secret.name, password: secret.password };
        let message = Bytes::from(request.encode_to_vec());
        let metadata = self.inner.credentials.anonymous();
        let mut attempt = 0;
        loop {
            let member = self.inner.balancer.pick().await;
            let patience = self.inner.options.call_timeout;
            let failure = match member.channel.unary(AUTHENTICATE, &metadata, message.clone(), patience).await {
                Ok(answer) => {
                    let read: Result<AuthenticateResponse, Error> = read(AUTHENTICATE, answer);
                    return read.map(|answer| answer.token).map_err(|error| match error {
                        Error::Status(status) => status,
                        other => Status::new(Code::Internal, other.to_string()),
                    });
                }
                Err(status) => Failure { status, is_unsent: false },
            };
            attempt += 1;
            let can_repeat = Repeat::Always.allows(&failure) || self.can_ask_elsewhere(&failure.status, attempt);
            if !can_repeat || attempt >= ATTEMPTS_MAX {
                return Err(failure.status);
            }
            self.pause(attempt, &failure.status).await;
        }
    }

    /// Begins a stream on whichever member is next. Waits for a member to be there, as long as it takes.
    pub(crate) async fn open(&self, path: &str, ticket: &Ticket) -> Result<(Arc<Member>, StreamingCall), Failure> {
        let member = self.pick().await;
        let unsent = |status| Failure { status, is_unsent: true };
        let call = member.channel.stream(path, &ticket.metadata, None).await.map_err(unsent)?;
        Ok((member, call))
    }
}

/// The same call to one endpoint, whichever member that is: for what is said to a member rather than to the cluster.
pub(crate) async fn to_member<A: Message + Default>(
    client: &Client,
    member: &Member,
    path: &str,
    request: &impl Message,
    options: &Options,
) -> Result<A, Error> {
    let message = Bytes::from(request.encode_to_vec());
    let call = async {
        let ticket = client.ticket(None).await?;
        // A member that cannot be reached may only be starting.
        let mut failures = 0;
        while let Err(status) = client.inner.balancer.connect(member).await {
            client.inner.balancer.failed(&status.message);
            failures += 1;
            tokio::time::sleep(backoff::after(failures)).await;
        }
        let first = member.channel.unary(path, &ticket.metadata, message.clone(), options.call_timeout).await;
        match first {
            Err(status) if client.can_ask_again(&status) => {
                let ticket = client.ticket(Some(&ticket)).await?;
                member.channel.unary(path, &ticket.metadata, message, options.call_timeout).await
            }
            other => other,
        }
    };
    read(path, client.within(options.call_timeout, call).await?)
}

/// The message of an answer.
pub(crate) fn read<A: Message + Default>(method: &str, answer: Bytes) -> Result<A, Error> {
    A::decode(answer).map_err(|error| Error::Unreadable { method: method.into(), why: error.to_string() })
}
