//! What lets a user in: a token, which members take back after some time or when users change.

use std::cell::{Cell, RefCell};
use std::time::Duration;

use api::Message;
use api::etcdserverpb::{AuthenticateRequest, AuthenticateResponse};
use rpc::client::{Channel, Options};
use rpc::{Metadata, Status};

use crate::link::Place;

/// A user's name and password.
pub(crate) type User = (String, String);

const METHOD: &str = "/etcdserverpb.Auth/Authenticate";

/// The metadata that the requests of a thread carry, with the token.
pub(crate) struct Pass {
    user: Option<User>,
    metadata: RefCell<Metadata>,
    /// Distinguishes a pass from the one before.
    number: Cell<u64>,
    renewing: tokio::sync::Mutex<()>,
}

impl Pass {
    /// A pass that is renewed if there is a user.
    pub(crate) fn new(metadata: &Metadata, user: Option<User>) -> Pass {
        Pass {
            user,
            metadata: RefCell::new(metadata.clone()),
            number: Cell::default(),
            renewing: tokio::sync::Mutex::default(),
        }
    }

    pub(crate) fn metadata(&self) -> Metadata {
        self.metadata.borrow().clone()
    }

    pub(crate) fn number(&self) -> u64 {
        self.number.get()
    }

    /// Whether a request was refused for a reason that a new token may resolve.
    pub(crate) fn is_stale(&self, status: &Status) -> bool {
        self.user.is_some() && client::wants_another_token(status)
    }

    /// Replaces pass `number`, unless that has already happened. If that fails, the old pass stays, and is refused
    /// again. A member that does not answer within `patience` is given up, because other lanes wait meanwhile.
    pub(crate) async fn renew(&self, number: u64, place: &Place, patience: Duration) -> Result<(), Status> {
        let _turn = self.renewing.lock().await;
        let Some((name, password)) = self.user.clone().filter(|_| self.number.get() == number) else {
            return Ok(());
        };
        self.number.set(number + 1);
        let options = Options { tls: place.encryption.clone(), connect_timeout: patience, ..Options::default() };
        let channel = Channel::new(&place.address, options);
        let late = |_| {
            let text = format!("{}: no answer within {patience:?}", place.address);
            Err(Status::new(api::Code::DeadlineExceeded, text))
        };
        let token = tokio::time::timeout(patience, login(&channel, name, password)).await.unwrap_or_else(late)?;
        *self.metadata.borrow_mut() = token.iter().map(|token| ("token", token)).collect();
        Ok(())
    }
}

/// Gets a token, if authentication is enabled in the cluster.
pub(crate) async fn login(channel: &Channel, name: String, password: String) -> Result<Option<String>, Status> {
    let request = AuthenticateRequest { name, password }.encode_to_vec();
    match channel.unary(METHOD, &Metadata::default(), request.into(), None).await {
        Ok(answer) => match AuthenticateResponse::decode(answer) {
            Ok(AuthenticateResponse { token, .. }) => Ok(Some(token)),
            Err(error) => Err(Status::new(api::Code::Internal, error.to_string())),
        },
        Err(status) if status.message == api::Error::AuthNotEnabled.message() => Ok(None),
        Err(status) => Err(status),
    }
}
