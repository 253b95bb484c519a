//! What single requests are made of: the requests it sends, and what their answers have to be.

use crate::meter::Meter;

/// A request that was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Request {
    /// Which of the methods it calls.
    pub method: usize,
    /// Which of the run's meters counts it.
    pub group: usize,
    /// The number by which the maker of the request recognizes it.
    pub number: u64,
}

/// Requests of a thread, and the judge of their answers.
pub trait Work: 'static {
    /// The state of an answer that is being received. Its memory is reused for the next answer.
    type Answer: Default;

    /// The paths of the methods that the requests call.
    fn methods(&self) -> &'static [&'static str];

    /// Writes the next request into `message`, replacing its contents.
    fn make(&mut self, message: &mut Vec<u8>) -> Request;

    /// Prepares for the answer to a request.
    fn begin(&mut self, answer: &mut Self::Answer);

    /// Takes the next part of an answer.
    fn data(&mut self, request: Request, answer: &mut Self::Answer, data: &[u8]);

    /// Checks a whole answer with the status OK. Other counts go into `meter`.
    fn end(&mut self, request: Request, answer: &mut Self::Answer, meter: &mut Meter) -> Result<(), &'static str>;

    /// After a right answer, makes a further request that belongs to the same one, such as the next page of a list. The
    /// request counts as done only after the last.
    fn follow(&mut self, _request: Request, _answer: &mut Self::Answer, _message: &mut Vec<u8>) -> Option<Request> {
        None
    }
}
