//! Cuts the body of an answer into gRPC messages.

/// Length of gRPC's prefix of a message: a flag for compression and the length.
pub(crate) const PREFIX_BYTES: usize = 5;

/// Collects an incomplete message. Its memory is reused.
#[derive(Debug, Default)]
pub struct Cutter {
    held: Vec<u8>,
}

impl Cutter {
    /// Takes the next part of a body and passes every message that is now complete to `message`.
    pub fn push(&mut self, data: &[u8], mut message: impl FnMut(&[u8])) {
        if self.held.is_empty() {
            let rest = cut(data, &mut message);
            self.held.extend_from_slice(rest);
            return;
        }
        self.held.extend_from_slice(data);
        let left = cut(&self.held, &mut message).len();
        let done = self.held.len() - left;
        self.held.drain(..done);
    }

    /// Whether there is no incomplete message.
    pub fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    /// Drops the incomplete message.
    pub fn clear(&mut self) {
        self.held.clear();
    }
}

fn cut<'a>(data: &'a [u8], message: &mut impl FnMut(&[u8])) -> &'a [u8] {
    let mut rest = data;
    while let [_, a, b, c, d, body @ ..] = rest {
        let len = u32::from_be_bytes([*a, *b, *c, *d]) as usize;
        let Some((whole, after)) = body.split_at_checked(len) else { break };
        message(whole);
        rest = after;
    }
    rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_survive_any_cut() {
        let messages: [&[u8]; 4] = [b"first", b"", b"the third", b"x"];
        let framed = messages.map(|message| [&[0, 0, 0, 0, message.len() as u8], message].concat());
        let body = framed.concat();
        for step in 1..=body.len() {
            let (mut cutter, mut found) = (Cutter::default(), Vec::new());
            for piece in body.chunks(step) {
                cutter.push(piece, |message| found.push(message.to_vec()));
            }
            assert_eq!(found, messages, "in pieces of {step}");
            assert!(cutter.is_empty());
        }
    }
}
