//! Answers that are one message.

use crate::cutter::Cutter;
use crate::meter::Meter;
use crate::work::{Request, Work};

/// Requests whose answer is one message, without further counts.
pub(crate) trait Simple: 'static {
    /// As [`Work::methods`].
    const METHODS: &'static [&'static str];

    /// As [`Work::make`].
    fn make(&mut self, message: &mut Vec<u8>) -> Request;

    /// Checks an answer.
    fn check(&mut self, request: Request, message: &[u8]) -> Result<(), &'static str>;
}

impl<W: Simple> Work for W {
    type Answer = Single;

    fn methods(&self) -> &'static [&'static str] {
        W::METHODS
    }

    fn make(&mut self, message: &mut Vec<u8>) -> Request {
        Simple::make(self, message)
    }

    fn begin(&mut self, answer: &mut Single) {
        answer.clear();
    }

    fn data(&mut self, request: Request, answer: &mut Single, data: &[u8]) {
        answer.push(data, |message| self.check(request, message));
    }

    fn end(&mut self, _: Request, answer: &mut Single, _: &mut Meter) -> Result<(), &'static str> {
        answer.verdict()
    }
}

/// The state of an answer that is being received.
#[derive(Default)]
pub struct Single {
    cutter: Cutter,
    messages: u32,
    wrong: Option<&'static str>,
}

impl Single {
    /// Ready for the next answer.
    pub(crate) fn clear(&mut self) {
        self.cutter.clear();
        (self.messages, self.wrong) = (0, None);
    }

    /// Takes the next part of the body; `check` judges the message.
    pub(crate) fn push(&mut self, data: &[u8], mut check: impl FnMut(&[u8]) -> Result<(), &'static str>) {
        let Single { cutter, messages, wrong } = self;
        cutter.push(data, |message| {
            *messages += 1;
            if let Err(why) = check(message) {
                *wrong = Some(why);
            }
        });
    }

    /// Checks that the answer had exactly one right message.
    pub(crate) fn verdict(&self) -> Result<(), &'static str> {
        if self.messages > 1 { Err("not exactly one message") } else { self.verdict_of_many() }
    }

    /// Checks that the answer had at least one message, all of them right.
    pub(crate) fn verdict_of_many(&self) -> Result<(), &'static str> {
        match self.wrong {
            Some(why) => Err(why),
            None if self.messages > 0 && self.cutter.is_empty() => Ok(()),
            None => Err("not exactly one message"),
        }
    }
}
