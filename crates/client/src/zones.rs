//! Members of the client's own zone go before others.
//!
//! A member says with its status where it runs. All are asked when the client makes its first call, which waits a little for one of the
//! same zone to answer; every now and then after that, because a member may have been moved; and soon after a call has failed. One that does
//! not answer, or knows of no leader, is not preferred. Nothing fails because of zones: a client that cannot find out, or whose zone has no
//! such member, asks all in turn. So does a call that is made again.

use api::Message as _;
use api::etcdserverpb::StatusResponse;
use bytes::Bytes;
use parking_lot::Mutex;
use rpc::Status;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::time::{Instant, timeout};

use crate::balancer::Member;
use crate::client::Client;

const STATUS: &str = "/etcdserverpb.Maintenance/Status";
/// How long the first call waits for a member of its zone.
const FIRST_WAIT: Duration = Duration::from_millis(500);
/// How long a member may take to connect and say where it is.
const ANSWER_TIME: Duration = Duration::from_secs(2);
/// How often members are asked.
const REFRESH: Duration = Duration::from_secs(30);
/// How often they are asked while calls fail.
const DOUBTFUL_REFRESH: Duration = Duration::from_secs(1);

/// When members were asked.
#[derive(Default)]
pub(crate) struct Zones(Mutex<Asked>);

#[derive(Default)]
struct Asked {
    /// None before the first call.
    at: Option<Instant>,
    /// A call has failed since.
    is_doubtful: bool,
}

impl Zones {
    /// A call has failed.
    pub(crate) fn doubt(&self) {
        self.0.lock().is_doubtful = true;
    }

    /// Whether it is time to ask, and whether that is the first time.
    fn begin(&self) -> Option<bool> {
        let mut asked = self.0.lock();
        let now = Instant::now();
        let pause = if asked.is_doubtful { DOUBTFUL_REFRESH } else { REFRESH };
        if asked.at.is_some_and(|at| now < at + pause) {
            return None;
        }
        asked.is_doubtful = false;
        Some(asked.at.replace(now).is_none())
    }
}

impl Client {
    /// The member for a call: in the client's zone, if one is connected there.
    pub(crate) async fn pick(&self) -> Arc<Member> {
        if self.inner.options.zone.is_none() {
            return self.inner.balancer.pick().await;
        }
        if let Some(is_first) = self.inner.zones.begin() {
            let answers = self.ask_zones();
            if is_first {
                // Boxed: only the first call has it.
                let _ = timeout(FIRST_WAIT, Box::pin(near(answers))).await;
            }
        }
        self.inner.balancer.pick_near().await
    }

    /// Asks all members where they are, beside the calls. Gets whether each is near.
    fn ask_zones(&self) -> UnboundedReceiver<bool> {
        let (tell, answers) = unbounded_channel();
        for member in self.inner.balancer.members() {
            let (client, member, tell) = (self.clone(), member.clone(), tell.clone());
            tokio::spawn(async move {
                let is_near = matches!(timeout(ANSWER_TIME, client.is_near(&member)).await, Ok(Ok(true)));
                member.set_near(is_near);
                let _ = tell.send(is_near);
            });
        }
        answers
    }

    async fn is_near(&self, member: &Member) -> Result<bool, Status> {
        let ticket = self.ticket(None).await?;
        self.inner.balancer.connect(member).await?;
        let answer = member.channel.unary(STATUS, &ticket.metadata, Bytes::new(), Some(ANSWER_TIME)).await?;
        let status = StatusResponse::decode(answer).unwrap_or_default();
        Ok(status.leader != 0 && self.inner.options.zone.as_ref() == Some(&status.zone))
    }
}

/// Waits until a member is near, or all have answered.
async fn near(mut answers: UnboundedReceiver<bool>) {
    while let Some(false) = answers.recv().await {}
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Endpoint, Options};
    use api::etcdserverpb::RangeRequest;
    use rpc::{Call, HttpResponder, Kind, Method, Reply, Responder, Server, Service, StreamCall, StreamHandler};
    use std::net::TcpListener;
    use std::sync::atomic::{AtomicUsize, Ordering};

    /// A member of a zone, which counts reads.
    struct Placed {
        zone: &'static str,
        leader: u64,
        reads: Arc<AtomicUsize>,
    }

    impl Service for Placed {
        fn methods(&self) -> &'static [Method] {
            const {
                &[
                    Method { path: STATUS, kind: Kind::Unary },
                    Method { path: "/etcdserverpb.KV/Range", kind: Kind::Unary },
                ]
            }
        }

        fn unary(&self, method: usize, _call: Call, responder: Responder) {
            if method == 1 {
                self.reads.fetch_add(1, Ordering::Relaxed);
                return responder.send(Ok(Reply::Whole(Bytes::new())));
            }
            let status = StatusResponse { zone: self.zone.into(), leader: self.leader, ..StatusResponse::default() };
            responder.send(Ok(Reply::Whole(status.encode_to_vec().into())));
        }

        fn stream(&self, _method: usize, _call: StreamCall) -> Result<Box<dyn StreamHandler>, Status> {
            unreachable!("there is no such method")
        }

        fn http(&self, _request: http::Request<Bytes>, _responder: HttpResponder) {}
    }

    fn member(zone: &'static str, leader: u64) -> (Server, Endpoint, Arc<AtomicUsize>) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let endpoint = listener.local_addr().expect("an address").to_string().parse().expect("an endpoint");
        let reads = Arc::<AtomicUsize>::default();
        let options = rpc::Options { threads: 1, ..rpc::Options::default() };
        let placed = Placed { zone, leader, reads: reads.clone() };
        (Server::start(vec![listener], Arc::new(placed), options).expect("a server"), endpoint, reads)
    }

    #[tokio::test]
    async fn members_of_the_zone_are_asked_as_long_as_there_are_any() {
        let (_far, at_far, far) = member("a", 1);
        let (near_one, at_one, one) = member("b", 1);
        let (near_two, at_two, two) = member("b", 1);
        let (cut_off, at_cut_off, alone) = member("b", 0);
        let endpoints = vec![at_far, at_one, at_two, at_cut_off];
        let client = |zone: &str| {
            let options = Options { endpoints: endpoints.clone(), zone: Some(zone.into()), ..Options::default() };
            Client::new(options).expect("options")
        };
        let read = async |client: &Client| client.range(RangeRequest::default()).await.map(drop).expect("an answer");
        let of_b = client("b");
        // The first answer that is near is enough for the first call; the others come meanwhile.
        while one.load(Ordering::Relaxed) == 0 || two.load(Ordering::Relaxed) == 0 {
            read(&of_b).await;
            tokio::task::yield_now().await;
        }
        assert_eq!((far.load(Ordering::Relaxed), alone.load(Ordering::Relaxed)), (0, 0));
        drop((near_one, near_two, cut_off));
        read(&of_b).await;
        assert_eq!(far.load(Ordering::Relaxed), 1);
        read(&client("nowhere")).await;
        assert_eq!(far.load(Ordering::Relaxed), 2);
    }
}
