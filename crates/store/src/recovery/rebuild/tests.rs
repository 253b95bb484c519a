use super::place::Places;
use super::sort::{Item, sort};
use super::*;
use crate::log::RECORD_HEADER_BYTES;
use proptest::prelude::*;

/// Keys that agree in long prefixes, end inside of one another, or are equal.
fn keys() -> impl Strategy<Value = Vec<Vec<u8>>> {
    let part = prop::sample::select(vec![&b"\0"[..], b"a", b"b", b"/registry/pods/", b"namespace-0001/", b"\xff\xff"]);
    let key = prop::collection::vec(part, 1..6).prop_map(|parts| parts.concat());
    prop::collection::vec(key, 0..200)
}

proptest! {
    #[test]
    fn records_are_sorted_by_key_then_place(keys in keys(), depth_hint in any::<bool>()) {
        let mut bytes = Vec::new();
        let mut expected = Vec::new();
        for key in &keys {
            expected.push((key.clone(), bytes.len() as u32));
            bytes.resize(bytes.len() + RECORD_HEADER_BYTES, 0);
            bytes.extend_from_slice(&[0x0a, key.len() as u8]);
            bytes.extend_from_slice(key);
        }
        let mut depth = 0;
        if let (true, Some(first)) = (depth_hint, keys.first()) {
            depth = keys.iter().fold(first.len(), |depth, key| sort::shared(&first[..depth], key));
        }
        let mut items: Vec<Item> =
            expected.iter().map(|(_, offset)| Item::new(Place { segment: 0, offset: *offset })).collect();
        let places = Places::new(vec![&bytes]);
        sort(&mut items, depth, &places, || {});
        expected.sort();
        let sorted: Vec<_> =
            items.iter().map(|item| (places.key(item.place()).to_vec(), item.place().offset)).collect();
        prop_assert_eq!(&sorted, &expected);
        for (pair, keys) in items.windows(2).zip(expected.windows(2)) {
            prop_assert!(keys[0].0 != keys[1].0 || pair[0].may_share_key(&pair[1]));
        }
    }
}
