//! The client's handle.

use std::sync::Arc;

use crate::balancer::Balancer;
use crate::credentials::Credentials;
use crate::keep_alive::KeepAlives;
use crate::zones::Zones;
use crate::{Endpoint, Options, OptionsError};

/// A client of one cluster. Cheap to clone; clones share connections, token and keep-alives.
#[derive(Clone)]
pub struct Client {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub(crate) options: Options,
    pub(crate) balancer: Balancer,
    pub(crate) credentials: Credentials,
    pub(crate) keep_alives: KeepAlives,
    pub(crate) zones: Zones,
}

impl Client {
    /// A client of the members that `options` names. Nothing is sent before the first call.
    ///
    /// # Errors
    /// If no endpoint is named, or files for TLS cannot be used.
    pub fn new(options: Options) -> Result<Client, OptionsError> {
        let balancer = Balancer::new(&options)?;
        let credentials = Credentials::new(options.user.clone(), options.token.as_deref(), options.needs_leader);
        let (keep_alives, zones) = (KeepAlives::default(), Zones::default());
        Ok(Client { inner: Arc::new(Inner { options, balancer, credentials, keep_alives, zones }) })
    }

    /// A client of the endpoints in a list with commas, everything else as by default.
    ///
    /// # Errors
    /// If one of them cannot be read, or there is none.
    pub fn connect(endpoints: &str) -> Result<Client, OptionsError> {
        let named = endpoints.split(',').map(str::trim).filter(|text| !text.is_empty());
        let endpoints = named.map(str::parse).collect::<Result<Vec<Endpoint>, _>>().map_err(OptionsError::Endpoint)?;
        Client::new(Options { endpoints, ..Options::default() })
    }

    /// The members this client talks to.
    pub fn endpoints(&self) -> impl Iterator<Item = &Endpoint> {
        self.inner.balancer.members().iter().map(|member| &member.endpoint)
    }
}
