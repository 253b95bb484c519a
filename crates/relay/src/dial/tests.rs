use super::*;
use crate::names::tests::name;
use socket2::{Domain, Socket, Type};
use std::net::TcpListener;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock};
use std::time::Instant;

fn run<T>(test: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let limited = async { timeout(Duration::from_secs(60), test).await.expect("it ends in time") };
    runtime.block_on(limited)
}

/// A socket that accepts nothing and has no room for more: connections to it get no answer, as if packets were dropped.
fn silent() -> (Socket, SocketAddr, Vec<Socket>) {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
    socket.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).expect("bound");
    socket.listen(0).expect("listening");
    let address = socket.local_addr().expect("an address");
    let fill = (0..4).map(|_| {
        let client = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
        client.set_nonblocking(true).expect("set");
        // In progress, or waiting for an answer that never comes.
        let _ = client.connect(&address);
        client
    });
    let fill = fill.collect();
    (socket, address.as_socket().expect("an address"), fill)
}

#[test]
fn an_address_that_is_silent_does_not_hide_the_next() {
    static ADDRESSES: OnceLock<Vec<SocketAddr>> = OnceLock::new();
    let (_silent, dead, _fill) = silent();
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let alive = listener.local_addr().expect("an address");
    ADDRESSES.set(vec![dead, dead, alive]).expect("set once");
    let name = name(|_, _| Ok(ADDRESSES.get().expect("set").clone()));
    let began = Instant::now();
    let socket = run(connect(&name)).expect("connected");
    assert_eq!(socket.peer_addr().expect("a peer"), alive);
    assert!(began.elapsed() < CONNECT_TIMEOUT, "{:?}", began.elapsed());
}

#[test]
fn a_shortage_is_no_fault_of_a_member() {
    let target = Target { host: "a.name".into(), port: 1, priority: 0, weight: 0 };
    let mut dialer = Dialer::new(vec![target.clone(), target], Duration::from_secs(1));
    dialer.names = vec![
        name(|_, _| Err(io::Error::from_raw_os_error(libc::EMFILE))),
        name(|_, _| Err(io::Error::from_raw_os_error(libc::EADDRNOTAVAIL))),
    ];
    assert!(run(dialer.dial()).is_none());
    assert_eq!(dialer.balancer.left_out(), [0_usize; 0]);
    // Another kind of error is the member's.
    dialer.names[0] = name(|_, _| Err(io::ErrorKind::NotFound.into()));
    assert!(run(dialer.dial()).is_none());
    assert!(run(dialer.dial()).is_none());
    assert_eq!(dialer.balancer.left_out(), [0]);
}

#[test]
fn a_lookup_that_hangs_takes_one_thread() {
    static LOOKUPS: AtomicUsize = AtomicUsize::new(0);
    static HANGS: Mutex<()> = Mutex::new(());
    let hanging = HANGS.lock().expect("not poisoned");
    let name = name(|_, _| {
        LOOKUPS.fetch_add(1, Ordering::SeqCst);
        drop(HANGS.lock());
        Ok(Vec::new())
    });
    run(async {
        for _ in 0..10 {
            assert!(timeout(Duration::from_millis(5), name.addresses()).await.is_err());
        }
        while LOOKUPS.load(Ordering::SeqCst) == 0 {
            tokio::task::yield_now().await;
        }
        assert_eq!(LOOKUPS.load(Ordering::SeqCst), 1);
        drop(hanging);
        // Those that wait at the same time share one.
        let all = tokio::join!(name.addresses(), name.addresses(), name.addresses());
        assert!(all.0.is_ok() && all.1.is_ok() && all.2.is_ok());
        assert_eq!(LOOKUPS.load(Ordering::SeqCst), 2);
    });
}
