//! Connections that come faster than they can be looked at.

mod common;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use common::wire::{block, frame, settings};
use common::{PATIENCE, framed, options, serve};
use rpc::frame::{flag, kind};
use rpc::hpack::Encoder;

/// The preface and what every client says first.
fn hello() -> Vec<u8> {
    [b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".as_slice(), &settings(&[])].concat()
}

#[test]
fn connections_wait_outside_while_the_thread_is_busy() {
    let fixture = serve(options());
    let never = fixture.seen.never.lock().expect("not poisoned");
    let mut busy = TcpStream::connect(fixture.address).expect("connects");
    let head = frame(kind::HEADERS, flag::END_HEADERS, 1, &block(&mut Encoder::new(), "Never", &[]));
    let call = [hello(), head, frame(kind::DATA, flag::END_STREAM, 1, &framed(b"x"))].concat();
    busy.write_all(&call).expect("sends");
    let end = Instant::now() + PATIENCE;
    while fixture.seen.unary_calls.load(Ordering::SeqCst) == 0 {
        assert!(Instant::now() < end, "the call does not come");
        std::thread::sleep(Duration::from_millis(1));
    }
    // Its only thread is held in that call. The system takes the connections for it.
    let connect = |_| {
        let mut socket = TcpStream::connect(fixture.address).expect("connects");
        socket.write_all(&hello()).expect("sends");
        socket
    };
    let mut waiting: Vec<TcpStream> = (0..100).map(connect).collect();
    let stats = fixture.server.stats();
    while stats.connections_open() < 17 {
        assert!(Instant::now() < end, "{} connections are open", stats.connections_open());
        std::thread::sleep(Duration::from_millis(1));
    }
    std::thread::sleep(Duration::from_millis(50));
    assert_eq!(stats.connections_open(), 17, "all but 16 of those that wait do so outside");
    drop(never);
    for socket in &mut waiting {
        let mut greeting = [0; 9];
        socket.set_read_timeout(Some(PATIENCE)).expect("a time that can be set");
        socket.read_exact(&mut greeting).expect("is served");
        assert_eq!(greeting[3], kind::SETTINGS);
    }
    assert_eq!(stats.connections_open(), 101);
}
