//! One frame after the other, taken apart.
#![no_main]

use bytes::BytesMut;
use libfuzzer_sys::fuzz_target;
use rpc::frame::{Fault, Frame, HEAD_BYTES, Head, Settings};

/// What a fault ends is the connection or the stream of the frame, and what a frame holds is a part of its payload.
fn check(head: Head, payload: &[u8]) {
    match Frame::parse(head, payload) {
        Err(Fault { stream, .. }) => assert!(stream == 0 || stream == head.stream, "{head:?}"),
        Ok(Frame::Data { stream, data: part, .. })
        | Ok(Frame::Headers { stream, fragment: part, .. })
        | Ok(Frame::Continuation { stream, fragment: part, .. }) => {
            assert!(stream != 0 && stream == head.stream, "{head:?}");
            assert!(payload.as_ptr_range().start <= part.as_ptr_range().start, "{head:?}");
            assert!(payload.as_ptr_range().end >= part.as_ptr_range().end, "{head:?}");
        }
        Ok(Frame::Settings(settings)) => {
            let entries: Vec<_> = settings.iter().collect();
            assert!(entries.len() * 6 == payload.len(), "{head:?}");
            // What is allowed can be sent, and is the same then.
            let allowed: Vec<_> = entries.into_iter().flatten().collect();
            let mut again = BytesMut::new();
            Settings::put(&allowed, &mut again);
            let Some(Ok(Frame::Settings(settings))) =
                Head::parse(&again).map(|head| Frame::parse(head, &again[HEAD_BYTES..]))
            else {
                panic!("settings are settings");
            };
            assert!(settings.iter().eq(allowed.into_iter().map(Ok)), "the same settings");
        }
        Ok(Frame::WindowUpdate { stream, increment }) => {
            assert!(stream == head.stream && increment > 0 && increment < 1 << 31, "{head:?}");
        }
        Ok(Frame::Reset { stream, .. } | Frame::Priority { stream } | Frame::PushPromise { stream }) => {
            assert!(stream != 0 && stream == head.stream, "{head:?}");
        }
        Ok(Frame::SettingsAck | Frame::Ping { .. } | Frame::GoAway { .. }) => assert!(head.stream == 0, "{head:?}"),
        Ok(Frame::Unknown) => assert!(head.kind > 9, "{head:?}"),
    }
}

fuzz_target!(|data: &[u8]| {
    let mut rest = data;
    while let Some(head) = Head::parse(rest) {
        let mut again = BytesMut::new();
        head.put(&mut again);
        assert!(Head::parse(&again) == Some(head), "the same head");
        // The last payload is as long as it is, so that the fuzzer need not learn to count first.
        let len = head.len.min(rest.len() - HEAD_BYTES);
        let (payload, tail) = rest[HEAD_BYTES..].split_at(len);
        check(Head { len, ..head }, payload);
        rest = tail;
    }
});
