//! What `bench sweep` and `bench compare` measure with.
//!
//! `flags` says which cluster, and how it is talked to; [`Cluster`] asks and tells it what no load is about: who leads, which keys
//! are there, space. [`Load`] is the requests, `requests` makes and judges them, and [`Task`] runs them on the engine between two looks
//! at the servers' `metrics`, which come by plain HTTP (`http`).

mod cluster;
mod flags;
mod http;
mod load;
mod metrics;
mod numbered;
mod requests;
mod task;

pub(crate) use cluster::Cluster;
pub(crate) use flags::{Access, CONNECTION_FLAGS, PEER_FLAGS, SWITCHES, safe_words};
pub(crate) use load::{Kind, Load};
pub(crate) use task::Task;
