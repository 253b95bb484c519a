//! Header blocks one after the other on one connection: decoded, held against another implementation, and encoded again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use rpc::hpack::{Decoder, Encoder, Error, Indexing};

const TABLE_BYTES: usize = 4096;

#[derive(Debug, PartialEq)]
struct Field {
    name: Vec<u8>,
    value: Vec<u8>,
    is_secret: bool,
}

fn decode(decoder: &mut Decoder, block: &[u8]) -> Result<Vec<Field>, Error> {
    let mut fields = Vec::new();
    decoder.decode(block, |field| {
        let (name, value) = (field.name.to_vec(), field.value.to_vec());
        fields.push(Field { name, value, is_secret: field.never_indexed });
    })?;
    Ok(fields)
}

/// The same from a crate that shares nothing with ours. It does not mind where the table changes its size, and does not take
/// a block that ends with that; where it says so, or ours does, the two are not compared any more.
fn compare(oracle: &mut loona_hpack::Decoder<'_>, block: &[u8], ours: &Result<Vec<Field>, Error>) {
    use loona_hpack::decoder::DecoderError;
    match (oracle.decode(block), ours) {
        (Ok(theirs), Ok(ours)) => {
            let ours = ours.iter().map(|field| (field.name.clone(), field.value.clone()));
            assert!(ours.eq(theirs), "the same fields");
        }
        (Err(DecoderError::SizeUpdateAtEnd), _) | (_, Err(Error::SizeUpdateLate)) => {}
        (Err(theirs), Ok(_)) => panic!("only we take it: {theirs:?}"),
        (Ok(_), Err(ours)) => panic!("only we do not take it: {ours:?}"),
        (Err(_), Err(_)) => {}
    }
}

/// Encodes fields as they came, and decodes them again.
fn there_and_back(encoder: &mut Encoder, decoder: &mut Decoder, fields: &[Field]) {
    let mut block = Vec::new();
    let generation = encoder.generation();
    for field in fields {
        let indexing = match field.value.len() % 4 {
            _ if field.is_secret => Indexing::Never,
            0 => Indexing::Without,
            _ => Indexing::Index,
        };
        encoder.encode(&mut block, &field.name, &field.value, indexing);
    }
    assert!(decode(decoder, &block).as_deref() == Ok(fields), "the same fields");
    if encoder.generation() == generation {
        assert!(decode(decoder, &block).as_deref() == Ok(fields), "the same block stands for the same fields");
    }
}

// Blocks, each with its length in front; 0 and a byte: the peer's table has another size from now on.
fuzz_target!(|data: &[u8]| {
    let mut rest = data;
    let mut decoder = Decoder::new(TABLE_BYTES);
    // The oracle is slow, so it is asked about one input in sixteen; which, is nothing that the fuzzer could learn to choose.
    let sum = data.iter().fold(0u8, |sum, byte| sum.wrapping_add(*byte));
    let mut oracle = (sum % 16 == 0).then(loona_hpack::Decoder::new);
    if let Some(oracle) = &mut oracle {
        oracle.set_max_allowed_table_size(TABLE_BYTES);
    }
    let (mut encoder, mut far_decoder) = (Encoder::new(), Decoder::new(TABLE_BYTES));
    while let [length, tail @ ..] = rest {
        let (block, tail) = tail.split_at(usize::from(*length).min(tail.len()));
        rest = tail;
        if *length == 0 {
            let Some((size, tail)) = rest.split_first() else { return };
            encoder.set_table_bytes_max(usize::from(*size) * 20);
            rest = tail;
            continue;
        }
        let generation = decoder.generation();
        let ours = decode(&mut decoder, block);
        if let Some(oracle) = &mut oracle {
            compare(oracle, block, &ours);
        }
        let Ok(fields) = ours else { return };
        let longest = fields.iter().map(|field| field.name.len().max(field.value.len())).max().unwrap_or(0);
        assert!(longest <= TABLE_BYTES, "no string is longer than the table and 8/5 of the block");
        if decoder.generation() == generation {
            assert!(decode(&mut decoder, block).as_ref() == Ok(&fields), "the same block decodes to the same fields");
        }
        there_and_back(&mut encoder, &mut far_decoder, &fields);
        // Changes of the size alone, which the oracle has not taken.
        if oracle.is_some() && fields.is_empty() {
            return;
        }
    }
});
