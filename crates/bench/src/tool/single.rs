//! Answers that are one message.

use crate::cutter::Cutter;

/// What is kept of such an answer.
#[derive(Default)]
pub(crate) struct Single {
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

    /// The verdict on an answer that is to have one message.
    pub(crate) fn verdict(&self) -> Result<(), &'static str> {
        if self.messages > 1 { Err("not exactly one message") } else { self.verdict_of_many() }
    }

    /// The verdict on an answer that is to have at least one.
    pub(crate) fn verdict_of_many(&self) -> Result<(), &'static str> {
        match self.wrong {
            Some(why) => Err(why),
            None if self.messages > 0 && self.cutter.is_empty() => Ok(()),
            None => Err("not exactly one message"),
        }
    }
}
