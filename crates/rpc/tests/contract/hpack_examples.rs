//! The examples of RFC 7541 appendix C, and every list of fields there and back.

use proptest::prelude::*;
use rpc::hpack::{Decoder, Encoder, Error, Indexing};

type Fields = Vec<(Vec<u8>, Vec<u8>)>;

fn bytes(hex: &str) -> Vec<u8> {
    let digits: Vec<u8> = hex.bytes().filter(|byte| !byte.is_ascii_whitespace()).collect();
    let text = |pair: &[u8]| String::from_utf8(pair.to_vec()).expect("hex digits");
    digits.chunks(2).map(|pair| u8::from_str_radix(&text(pair), 16).expect("hex digits")).collect()
}

fn list(fields: &[(&str, &str)]) -> Fields {
    fields.iter().map(|(name, value)| (name.as_bytes().to_vec(), value.as_bytes().to_vec())).collect()
}

fn decoded(decoder: &mut Decoder, block: &[u8]) -> Result<Fields, Error> {
    let mut fields = Vec::new();
    decoder.decode(block, |field| fields.push((field.name.to_vec(), field.value.to_vec())))?;
    Ok(fields)
}

fn encoded(encoder: &mut Encoder, fields: &Fields) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in fields {
        encoder.encode(&mut block, name, value, Indexing::Index);
    }
    block
}

const COOKIE: &str = "foo=ASDJKHQKBZXOQWEOPIUAXQWEOIU; max-age=3600; version=1";

/// Appendix C.3 and C.4.
fn requests() -> [Fields; 3] {
    let get = |scheme, path| {
        vec![(":method", "GET"), (":scheme", scheme), (":path", path), (":authority", "www.example.com")]
    };
    [
        list(&get("http", "/")),
        list(&[get("http", "/"), vec![("cache-control", "no-cache")]].concat()),
        list(&[get("https", "/index.html"), vec![("custom-key", "custom-value")]].concat()),
    ]
}

/// Appendix C.5 and C.6.
fn responses() -> [Fields; 3] {
    let response = |status, date| {
        let location = ("location", "https://www.example.com");
        vec![(":status", status), ("cache-control", "private"), ("date", date), location]
    };
    let (first, later) = ("Mon, 21 Oct 2013 20:13:21 GMT", "Mon, 21 Oct 2013 20:13:22 GMT");
    [
        list(&response("302", first)),
        list(&response("307", first)),
        list(&[response("200", later), vec![("content-encoding", "gzip"), ("set-cookie", COOKIE)]].concat()),
    ]
}

#[test]
fn single_fields() {
    let mut decoder = Decoder::new(4096);
    let indexed = bytes("400a 6375 7374 6f6d 2d6b 6579 0d63 7573 746f 6d2d 6865 6164 6572");
    assert_eq!(decoded(&mut decoder, &indexed), Ok(list(&[("custom-key", "custom-header")])));
    assert_eq!(decoded(&mut decoder, &[0xbe]), Ok(list(&[("custom-key", "custom-header")])));
    let mut decoder = Decoder::new(4096);
    let not_indexed = bytes("040c 2f73 616d 706c 652f 7061 7468");
    assert_eq!(decoded(&mut decoder, &not_indexed), Ok(list(&[(":path", "/sample/path")])));
    let never_indexed = bytes("1008 7061 7373 776f 7264 0673 6563 7265 74");
    assert_eq!(decoded(&mut decoder, &never_indexed), Ok(list(&[("password", "secret")])));
    assert_eq!(decoded(&mut decoder, &[0x82]), Ok(list(&[(":method", "GET")])));
    assert_eq!(decoded(&mut decoder, &[0xbe]), Err(Error::IndexUnknown(62)));
}

#[test]
fn requests_without_huffman() {
    let blocks = [
        "8286 8441 0f77 7777 2e65 7861 6d70 6c65 2e63 6f6d",
        "8286 84be 5808 6e6f 2d63 6163 6865",
        "8287 85bf 400a 6375 7374 6f6d 2d6b 6579 0c63 7573 746f 6d2d 7661 6c75 65",
    ];
    let mut decoder = Decoder::new(4096);
    for (block, fields) in blocks.iter().zip(requests()) {
        assert_eq!(decoded(&mut decoder, &bytes(block)), Ok(fields));
    }
}

#[test]
fn requests_with_huffman() {
    let blocks = [
        "8286 8441 8cf1 e3c2 e5f2 3a6b a0ab 90f4 ff",
        "8286 84be 5886 a8eb 1064 9cbf",
        "8287 85bf 4088 25a8 49e9 5ba9 7d7f 8925 a849 e95b b8e8 b4bf",
    ];
    let (mut decoder, mut encoder) = (Decoder::new(4096), Encoder::new());
    for (block, fields) in blocks.iter().zip(requests()) {
        assert_eq!(encoded(&mut encoder, &fields), bytes(block));
        assert_eq!(decoded(&mut decoder, &bytes(block)), Ok(fields));
    }
}

#[test]
fn responses_without_huffman_and_with_eviction() {
    let blocks = [
        "4803 3330 3258 0770 7269 7661 7465 611d 4d6f 6e2c 2032 3120 4f63 7420 3230 3133 2032 303a 3133 3a32 3120 474d
         546e 1768 7474 7073 3a2f 2f77 7777 2e65 7861 6d70 6c65 2e63 6f6d",
        "4803 3330 37c1 c0bf",
        "88c1 611d 4d6f 6e2c 2032 3120 4f63 7420 3230 3133 2032 303a 3133 3a32 3220 474d 54c0 5a04 677a 6970 7738 666f
         6f3d 4153 444a 4b48 514b 425a 584f 5157 454f 5049 5541 5851 5745 4f49 553b 206d 6178 2d61 6765 3d33 3630 303b
         2076 6572 7369 6f6e 3d31",
    ];
    let mut decoder = Decoder::new(256);
    for (block, fields) in blocks.iter().zip(responses()) {
        assert_eq!(decoded(&mut decoder, &bytes(block)), Ok(fields));
    }
}

#[test]
fn responses_with_huffman_and_with_eviction() {
    let blocks = [
        "4882 6402 5885 aec3 771a 4b61 96d0 7abe 9410 54d4 44a8 2005 9504 0b81 66e0 82a6 2d1b ff6e 919d 29ad 1718 63c7
         8f0b 97c8 e9ae 82ae 43d3",
        "4883 640e ffc1 c0bf",
        "88c1 6196 d07a be94 1054 d444 a820 0595 040b 8166 e084 a62d 1bff c05a 839b d9ab 77ad 94e7 821d d7f2 e6c7 b335
         dfdf cd5b 3960 d5af 2708 7f36 72c1 ab27 0fb5 291f 9587 3160 65c0 03ed 4ee5 b106 3d50 07",
    ];
    let (mut decoder, mut encoder) = (Decoder::new(256), Encoder::new());
    let mut decoder_of_ours = Decoder::new(256);
    encoder.set_table_bytes_max(256);
    let mut announcement = bytes("3f e1 01").len();
    for (block, fields) in blocks.iter().zip(responses()) {
        let block = bytes(block);
        // A string that is no shorter with Huffman stays as it is, so that only the length is that of the example.
        let ours = encoded(&mut encoder, &fields);
        assert_eq!(ours.len(), announcement + block.len());
        assert_eq!(decoded(&mut decoder_of_ours, &ours), Ok(fields.clone()));
        assert_eq!(decoded(&mut decoder, &block), Ok(fields));
        announcement = 0;
    }
}

#[derive(Clone, Debug)]
struct Block {
    /// SETTINGS_HEADER_TABLE_SIZE that come before it.
    sizes: Vec<usize>,
    fields: Vec<(Vec<u8>, Vec<u8>, Indexing)>,
}

fn block() -> impl Strategy<Value = Block> {
    let text = || {
        prop_oneof![
            "[a-c]{0,2}".prop_map(String::into_bytes),
            "[ -~]{0,60}".prop_map(String::into_bytes),
            prop::collection::vec(any::<u8>(), 0..200),
        ]
    };
    let known = prop::sample::select(vec![":status", ":path", "accept-encoding", "cookie"]);
    let name = prop_oneof![text(), known.prop_map(|name| name.as_bytes().to_vec())];
    let value = prop_oneof![text(), Just(b"200".to_vec()), Just(b"gzip, deflate".to_vec()), Just(b"/".to_vec())];
    let indexing = prop::sample::select(vec![Indexing::Index, Indexing::Index, Indexing::Without, Indexing::Never]);
    let sizes = prop_oneof![3 => Just(vec![]), 1 => prop::collection::vec(0..5000usize, 1..4)];
    (sizes, prop::collection::vec((name, value, indexing), 0..12)).prop_map(|(sizes, fields)| Block { sizes, fields })
}

proptest! {
    #[test]
    fn there_and_back(blocks in prop::collection::vec(block(), 0..12)) {
        let (mut encoder, mut decoder) = (Encoder::new(), Decoder::new(4096));
        for Block { sizes, fields } in blocks {
            sizes.into_iter().for_each(|bytes| encoder.set_table_bytes_max(bytes));
            let mut block = Vec::new();
            for (name, value, indexing) in &fields {
                encoder.encode(&mut block, name, value, *indexing);
            }
            let mut got = Vec::new();
            let result = decoder.decode(&block, |field| {
                got.push((field.name.to_vec(), field.value.to_vec(), field.never_indexed));
            });
            prop_assert_eq!(result, Ok(()));
            let secret = |indexing| indexing == Indexing::Never;
            let sent: Vec<_> = fields.into_iter().map(|(name, value, indexing)| (name, value, secret(indexing))).collect();
            prop_assert_eq!(got, sent);
        }
    }

    /// Whatever comes: an answer, no panic, and no more than the block can hold.
    #[test]
    fn any_bytes(blocks in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..60), 0..20)) {
        let mut decoder = Decoder::new(4096);
        for block in blocks {
            let mut longest = 0;
            let result = decoder.decode(&block, |field| longest = longest.max(field.name.len().max(field.value.len())));
            prop_assert!(longest <= 4096);
            if result.is_err() {
                break;
            }
        }
    }
}
