//! What an observer asks what it follows: read indexes, and to pass proposals on.

use super::link::{Link, Source};
use crate::node::Node;
use api::Message as _;
use api::raftpb::{Message, MessageType};
use http::{HeaderValue, Method, Request, StatusCode, header};
use peer::client::{self, Kept};
use std::sync::Arc;
use std::time::Duration;
use telemetry::logging::{self, Pace, Value};

/// The path at which members and observers tell a read index.
pub(crate) const READ_INDEX: &str = "/cairn/read-index";
/// How long an answer may take. What is not answered is asked again.
const PATIENCE: Duration = Duration::from_secs(2);

/// Asks for read indexes, one call for all questions that wait. Questions that come meanwhile wait for the next call: its index is from
/// after they came.
pub(super) fn run_questions(node: &Arc<Node>, link: &Link) {
    let mut kept = Kept::default();
    while let Some((source, questions)) = link.questions() {
        match ask(node, &mut kept, &source) {
            Ok(index) => questions.into_iter().for_each(|question| answer(node, question, index)),
            // Consensus asks again.
            Err(error) => tell("cannot get a read index from what this observer follows", &source, &error),
        }
    }
}

fn ask(node: &Node, kept: &mut Kept, source: &Source) -> Result<u64, String> {
    let mut request = Request::new(Vec::new());
    *request.method_mut() = Method::POST;
    *request.uri_mut() = READ_INDEX.parse().unwrap_or_default();
    let answer = kept.call(&node.connector, &source.url, request, PATIENCE).map_err(|error| error.to_string())?;
    let text = String::from_utf8_lossy(answer.body());
    let index = text.trim().parse::<u64>().ok().filter(|_| answer.status() == StatusCode::OK);
    index.ok_or_else(|| {
        format!("it answered {}: {}", answer.status(), text.chars().take(200).collect::<String>().trim())
    })
}

fn answer(node: &Node, question: Message, index: u64) {
    node.take_followed(Message {
        r#type: Some(MessageType::MsgReadIndexResp as i32),
        to: Some(node.member_id),
        from: question.to,
        term: Some(node.status.term()),
        index: Some(index),
        entries: question.entries,
        ..Message::default()
    });
}

/// Passes proposals on. A call is made once: a proposal that was taken twice would be applied twice.
pub(super) fn run_proposals(node: &Arc<Node>, link: &Link) {
    let mut kept = Kept::default();
    while let Some((source, message)) = link.proposals() {
        if let Err(error) = propose(node, &mut kept, &source, message) {
            tell("cannot pass proposals on to what this observer follows", &source, &error);
        }
    }
}

fn propose(node: &Node, kept: &mut Kept, source: &Source, mut message: Message) -> Result<(), String> {
    message.to = Some(source.id());
    let mut request = Request::new(message.encode_to_vec());
    *request.method_mut() = Method::POST;
    *request.uri_mut() = "/raft".parse().unwrap_or_default();
    request.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/protobuf"));
    let answer: Result<_, client::Error> = kept.call_once(&node.connector, &source.url, request, PATIENCE);
    let answer = answer.map_err(|error| error.to_string())?;
    if answer.status() == StatusCode::NO_CONTENT {
        return Ok(());
    }
    let text = String::from_utf8_lossy(answer.body());
    Err(format!("it answered {}: {}", answer.status(), text.chars().take(200).collect::<String>().trim()))
}

fn tell(text: &str, source: &Source, error: &str) {
    static PACE: Pace = Pace::new();
    if let Some(left_out) = PACE.line() {
        let fields =
            [("url", (&source.url).into()), ("error", Value::from(error)), ("lines-left-out", left_out.into())];
        logging::warn(text, &fields);
    }
}
