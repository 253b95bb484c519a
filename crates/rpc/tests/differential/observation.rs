//! What a client sees of a server, without the order of events that may differ.

use std::collections::BTreeMap;

use rpc::hpack::Decoder;

use crate::script::{flag, kind};

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Observation {
    /// The error code that the connection ended with.
    pub connection_error: Option<u32>,
    pub streams: BTreeMap<u32, Stream>,
    pub settings_acks: usize,
    pub pongs: Vec<Vec<u8>>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stream {
    /// Fields of all header blocks.
    pub fields: Vec<(String, String)>,
    pub body: Vec<u8>,
    pub has_ended: bool,
    pub reset: Option<u32>,
}

impl Stream {
    pub fn field(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(its_name, _)| its_name == name).map(|(_, value)| &value[..])
    }
}

/// Reads what a server sends, as it comes.
pub struct Observer {
    seen: Observation,
    decoder: Decoder,
    block: Vec<u8>,
    unread: Vec<u8>,
}

impl Observer {
    pub fn new() -> Observer {
        Observer { seen: Observation::default(), decoder: Decoder::new(4096), block: Vec::new(), unread: Vec::new() }
    }

    /// All that has been seen so far.
    pub fn seen(&self) -> &Observation {
        &self.seen
    }

    /// Anything a server must not send is a panic.
    pub fn read(&mut self, output: &[u8]) {
        self.unread.extend_from_slice(output);
        let output = std::mem::take(&mut self.unread);
        let mut rest = &output[..];
        while let [a, b, c, kind, flags, d, e, f, g, tail @ ..] = rest {
            let length = u32::from_be_bytes([0, *a, *b, *c]) as usize;
            let stream = u32::from_be_bytes([*d, *e, *f, *g]);
            let Some((payload, tail)) = tail.split_at_checked(length) else { break };
            rest = tail;
            self.frame(*kind, *flags, stream, payload);
        }
        self.unread = rest.to_vec();
    }

    fn frame(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
        let Observer { seen, decoder, block, .. } = self;
        let word = |at: usize| u32::from_be_bytes(payload[at..at + 4].try_into().expect("four bytes"));
        match kind {
            kind::DATA => {
                let stream = seen.streams.entry(stream).or_default();
                assert!(!stream.has_ended && !stream.fields.is_empty(), "data before or behind the response");
                stream.body.extend(payload);
                stream.has_ended = flags & flag::END_STREAM != 0;
            }
            kind::HEADERS | kind::CONTINUATION => {
                let stream = seen.streams.entry(stream).or_default();
                if kind == kind::HEADERS {
                    assert!(!stream.has_ended, "headers behind the response");
                    stream.has_ended = flags & flag::END_STREAM != 0;
                }
                block.extend(payload);
                if flags & flag::END_HEADERS != 0 {
                    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
                    let decoded = decoder.decode(block, |field| {
                        stream.fields.push((text(field.name), text(field.value)));
                    });
                    assert_eq!(decoded, Ok(()), "a good header block");
                    block.clear();
                }
            }
            kind::RST_STREAM => seen.streams.entry(stream).or_default().reset = Some(word(0)),
            kind::GO_AWAY => seen.connection_error = Some(word(4)).filter(|code| *code != 0),
            kind::SETTINGS if flags & flag::ACK != 0 => seen.settings_acks += 1,
            kind::PING if flags & flag::ACK != 0 => seen.pongs.push(payload.to_vec()),
            _ => {}
        }
    }
}
