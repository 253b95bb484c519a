//! `etcdserverpb.Maintenance/Downgrade`.

use super::reply::{encode, refuse};
use crate::auth::Permitted;
use crate::auth::rules::Root;
use crate::cluster::downgrade;
use crate::node::{self, For, Node, Weight};
use api::etcdserverpb::downgrade_request::DowngradeAction;
use api::etcdserverpb::{DowngradeRequest, DowngradeResponse};
use api::{Code, Error, RaftRequest};
use rpc::{Call, Responder, Status};
use std::sync::Arc;
use telemetry::logging;

pub(super) fn downgrade(
    node: &Arc<Node>,
    _call: Call,
    request: Permitted<Root, DowngradeRequest>,
    responder: Responder,
) {
    let own = node.clone();
    let action = DowngradeAction::try_from(request.action);
    let target = match action {
        Ok(DowngradeAction::Validate | DowngradeAction::Enable) => match downgrade::target(&request.version) {
            Ok(_) if node.store.cluster_version().is_empty() => {
                return refuse(responder, Error::ClusterVersionUnavailable);
            }
            Ok(target) => target,
            Err(error) => return refuse(responder, error),
        },
        Ok(DowngradeAction::Cancel) => return cancel(own, responder),
        Err(_) => return refuse(responder, Status::new(Code::Unknown, "etcdserver: unknown method")),
    };
    let is_to_begin = action == Ok(DowngradeAction::Enable);
    // The check must see every downgrade that was acknowledged so far.
    node.linearize(Weight::NONE, move |allowed| match allowed.and_then(|()| downgrade::check(&own, target)) {
        Err(error) => {
            if is_to_begin {
                logging::warn("reject downgrade request", &[("error", error.message().into())]);
            }
            refuse(responder, error);
        }
        Ok(()) if is_to_begin => begin(own, target, responder),
        Ok(()) => answer(&own, responder),
    });
}

fn begin(node: Arc<Node>, target: (u64, u64), responder: Responder) {
    let own = node.clone();
    let done = move |responder: Responder, outcome: node::Outcome| match outcome {
        Ok(_) => answer(&own, responder),
        Err(error) => refuse(responder, error),
    };
    let request = downgrade::request(Some(target));
    node.propose(node.as_member(), RaftRequest::DowngradeInfoSet, &request, For::new(responder, done));
}

/// Always succeeds, as in etcd: a downgrade that could not be cancelled is only logged.
fn cancel(node: Arc<Node>, responder: Responder) {
    let own = node.clone();
    let failed = |error: &str| logging::warn("failed to cancel downgrade", &[("error", error.into())]);
    node.linearize(Weight::NONE, move |allowed| match allowed {
        Ok(()) if own.store.members().downgrade.enabled => {
            let node = own.clone();
            let done = move |outcome: node::Outcome| {
                if let Err(error) = outcome {
                    failed(error.message());
                }
                answer(&node, responder);
            };
            own.propose(own.as_member(), RaftRequest::DowngradeInfoSet, &downgrade::request(None), Box::new(done));
        }
        Ok(()) => {
            failed(Error::NoInflightDowngrade.message());
            answer(&own, responder);
        }
        Err(error) => {
            failed(error.message());
            answer(&own, responder);
        }
    });
}

fn answer(node: &Node, responder: Responder) {
    let version = node.store.cluster_version();
    // Major and minor number only.
    let version = version.rsplit_once('.').map_or("", |parts| parts.0).to_string();
    responder.send(encode(&DowngradeResponse { header: Some(node.header(node.store.revision())), version }));
}
