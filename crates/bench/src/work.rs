//! What single requests are made of: the requests it sends, and what their answers have to be.

use crate::meter::Meter;

/// A request that was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Request {
    /// Which of the methods it calls.
    pub method: usize,
    /// Which of the run's meters counts it.
    pub group: usize,
    /// What whoever made it knows it by.
    pub number: u64,
}

/// Requests of a thread, and the judge of their answers.
pub trait Work: 'static {
    /// What is kept of an answer on its way. Its memory is used again for the next one.
    type Answer: Default;

    /// The paths of the methods it calls.
    fn methods(&self) -> &'static [&'static str];

    /// Makes the next request, which takes the place of what is in `message`.
    fn make(&mut self, message: &mut Vec<u8>) -> Request;

    /// Prepares for the answer to a request.
    fn begin(&mut self, answer: &mut Self::Answer);

    /// Takes the next part of an answer.
    fn data(&mut self, request: Request, answer: &mut Self::Answer, data: &[u8]);

    /// The verdict on a whole answer whose status is OK; what is worth counting beside it goes into `meter`.
    fn end(&mut self, request: Request, answer: &mut Self::Answer, meter: &mut Meter) -> Result<(), &'static str>;

    /// Makes what is to be sent behind the right answer to a request before that counts as done: the next page of a list.
    fn follow(&mut self, _request: Request, _answer: &mut Self::Answer, _message: &mut Vec<u8>) -> Option<Request> {
        None
    }
}
