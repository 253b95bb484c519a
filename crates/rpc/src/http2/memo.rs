//! Header blocks that were decoded before. Clients repeat themselves: most requests of a connection have the same headers as the one
//! before, compressed to the same few bytes.

use std::sync::Arc;

use super::head::{Grpc, Head, Target};
use super::hpack::Decoder;

/// Blocks that are remembered: a client alternates between few methods.
const ENTRIES: usize = 4;
/// Longer blocks are not worth their memory.
const BLOCK_BYTES_MAX: usize = 256;
/// Nor are those that mean more: a few bytes can refer many times to the same long field.
const HEAD_BYTES_MAX: usize = 2 * 1024;

/// What some header blocks mean, as long as the decoder's table stays as it is.
#[derive(Debug, Default)]
pub(crate) struct Memo {
    /// The newest first.
    entries: [Option<Entry>; ENTRIES],
}

#[derive(Debug)]
struct Entry {
    block: Box<[u8]>,
    generation: u64,
    grpc: Arc<Grpc>,
    content_length: Option<u64>,
    /// Memory that the request's headers hold. It counts for each stream that has them: this memory may forget them before.
    bytes: usize,
}

impl Memo {
    /// The meaning of `block`, if it is remembered.
    pub(crate) fn get(&self, block: &[u8], decoder: &Decoder) -> Option<Head> {
        let generation = decoder.generation();
        let mut entries = self.entries.iter().flatten();
        let entry = entries.find(|entry| entry.generation == generation && *entry.block == *block)?;
        Some(Head {
            target: Target::Grpc(entry.grpc.clone()),
            content_length: entry.content_length,
            bytes: entry.bytes,
        })
    }

    /// Remembers that `block` means `head`, if it will still do so when it comes again: `before` is the decoder's generation before
    /// it decoded the block.
    pub(crate) fn put(&mut self, block: &[u8], before: u64, decoder: &Decoder, head: &Head) {
        let Target::Grpc(grpc) = &head.target else { return };
        if before != decoder.generation() || block.len() > BLOCK_BYTES_MAX || head.bytes > HEAD_BYTES_MAX {
            return;
        }
        self.entries.rotate_right(1);
        self.entries[0] = Some(Entry {
            block: block.into(),
            generation: before,
            grpc: grpc.clone(),
            content_length: head.content_length,
            bytes: head.bytes,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Kind;
    use crate::Method;
    use crate::grpc::routes::Routes;
    use crate::http2::head;
    use crate::http2::hpack::{Encoder, Indexing};

    #[test]
    fn a_short_block_that_means_much_is_not_remembered() {
        let routes = Routes::new(&[Method { path: "/a.B/C", kind: Kind::Unary }]);
        let (mut encoder, mut decoder, mut memo) = (Encoder::new(), Decoder::new(4_096), Memo::default());
        let long = "x".repeat(1_500);
        // The first block brings the field into the table, the others refer to it.
        for (times, is_remembered) in [(1, false), (1, true), (3, false)] {
            let call =
                [(":method", "POST"), (":scheme", "http"), (":path", "/a.B/C"), ("content-type", "application/grpc")];
            let mut block = Vec::new();
            for (name, value) in call.into_iter().chain(std::iter::repeat_n(("long", &long[..]), times)) {
                encoder.encode(&mut block, name.as_bytes(), value.as_bytes(), Indexing::Index);
            }
            let before = decoder.generation();
            let Ok(head) = head::decode(&block, &mut decoder, &routes, 60_000) else { panic!("a request") };
            memo.put(&block, before, &decoder, &head);
            assert_eq!(
                memo.get(&block, &decoder).is_some(),
                is_remembered,
                "{} bytes mean {}",
                block.len(),
                head.bytes
            );
        }
    }
}
