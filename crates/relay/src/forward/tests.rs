use super::*;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::task::LocalSet;

/// Two sockets that are connected.
async fn pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let (one, other) = tokio::join!(TcpStream::connect(address), listener.accept());
    (one.expect("connected"), other.expect("accepted").0)
}

fn run(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let limited = async { tokio::time::timeout(Duration::from_secs(60), test).await.expect("it ends in time") };
    LocalSet::new().block_on(&runtime, limited);
}

fn noise(len: usize) -> Vec<u8> {
    let mut state = 1_u64;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 56) as u8
    };
    (0..len).map(|_| next()).collect()
}

/// Sends `bytes` through, in pieces of `piece`, to a receiver that takes them `slowly` or as they come.
async fn arrives_whole(bytes: Vec<u8>, piece: usize, slowly: bool, room: Rc<Room>) {
    let (mut sender, from) = pair().await;
    let (to, mut receiver) = pair().await;
    let (pipes, held) = (room.free_pipes.get(), room.free_bytes.get());
    let own = room.clone();
    let moving = tokio::task::spawn_local(async move { forward(&from, &to, &own).await });
    let sent = bytes.clone();
    let sending = tokio::task::spawn_local(async move {
        for piece in sent.chunks(piece) {
            sender.write_all(piece).await.expect("sent");
            tokio::task::yield_now().await;
        }
        sender.shutdown().await.expect("ended");
        sender
    });
    let mut got = Vec::new();
    let mut part = vec![0; if slowly { 1000 } else { 1 << 20 }];
    if slowly {
        // Everything on the way fills up first.
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    loop {
        match receiver.read(&mut part).await.expect("read") {
            0 => break,
            len => got.extend_from_slice(&part[..len]),
        }
    }
    assert!(got == bytes, "{} of {} bytes", got.len(), bytes.len());
    moving.await.expect("no panic").expect("moved");
    drop(sending.await);
    assert_eq!((room.free_pipes.get(), room.free_bytes.get()), (pipes, held), "everything is given back");
}

#[test]
fn every_byte_arrives_in_order_and_so_does_the_end() {
    run(async {
        for (pipes, held_bytes) in [(4, 1 << 20), (0, 1 << 20), (4, 0), (4, BUFFER_BYTES)] {
            for (len, piece) in [(0, 1), (1, 1), (100_000, 100), (300_000, 70_000), (8 << 20, 1 << 20)] {
                for slowly in [false, true] {
                    arrives_whole(noise(len), piece, slowly, Room::new(pipes, held_bytes)).await;
                }
            }
        }
    });
}

#[test]
fn a_receiver_that_takes_nothing_holds_no_more_than_its_share() {
    run(async {
        let room = Room::new(1, 2 * BUFFER_BYTES);
        let mut ends = Vec::new();
        for _ in 0..6 {
            let (sender, from) = pair().await;
            let (to, receiver) = pair().await;
            let own = room.clone();
            tokio::task::spawn_local(async move { forward(&from, &to, &own).await });
            ends.push((sender, receiver));
        }
        // Until no sender gets rid of anything for a while.
        let bytes = noise(1 << 20);
        let mut sent = vec![0_usize; ends.len()];
        let mut still = 0;
        while still < 100 {
            still += 1;
            for ((sender, _), sent) in ends.iter().zip(&mut sent) {
                while let Ok(len) = sender.try_write(&bytes[*sent % 1000..]) {
                    *sent += len;
                    still = 0;
                }
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        // A receiver that begins to read now gets what was sent to it, and room is given back.
        for ((mut sender, mut receiver), sent) in ends.into_iter().zip(sent) {
            sender.shutdown().await.expect("ended");
            let mut got = Vec::new();
            receiver.read_to_end(&mut got).await.expect("read");
            assert_eq!(got.len(), sent);
        }
        while room.free_bytes.get() != 2 * BUFFER_BYTES || room.free_pipes.get() != 1 {
            tokio::task::yield_now().await;
        }
    });
}

#[test]
fn one_direction_ends_and_the_other_goes_on() {
    run(async {
        let (mut client, near) = pair().await;
        let (far, mut member) = pair().await;
        let room = Room::new(0, 1 << 20);
        let joined = tokio::task::spawn_local(async move { join(&near, &far, &room).await });
        client.write_all(b"last words").await.expect("sent");
        client.shutdown().await.expect("ended");
        let mut heard = Vec::new();
        member.read_to_end(&mut heard).await.expect("read");
        assert_eq!(heard, b"last words");
        assert!(!joined.is_finished());
        member.write_all(b"an answer").await.expect("sent");
        drop(member);
        let mut answer = Vec::new();
        client.read_to_end(&mut answer).await.expect("read");
        assert_eq!(answer, b"an answer");
        joined.await.expect("no panic").expect("both ended");
    });
}

/// Ends a connection with a reset.
fn reset(socket: TcpStream) {
    SockRef::from(&socket).set_linger(Some(Duration::ZERO)).expect("set");
}

#[test]
fn a_client_that_is_gone_is_found_while_its_member_is_silent() {
    run(async {
        // It has said everything, or more than the member takes.
        for bytes in [0, 32 << 20] {
            let (mut client, near) = pair().await;
            let (far, silent) = pair().await;
            let room = Room::new(4, 1 << 20);
            let own = room.clone();
            let joined = tokio::task::spawn_local(async move { join(&near, &far, &own).await });
            if bytes == 0 {
                client.shutdown().await.expect("ended");
                while SockRef::from(&silent).peek(&mut [MaybeUninit::uninit()]).is_err() {
                    tokio::task::yield_now().await;
                }
            } else {
                let noise = noise(bytes);
                let sending = timeout(Duration::from_millis(300), client.write_all(&noise)).await;
                assert!(sending.is_err(), "more is taken than there is room for");
            }
            assert!(!joined.is_finished());
            reset(client);
            assert!(joined.await.expect("no panic").is_err());
            assert_eq!((room.free_pipes.get(), room.free_bytes.get()), (4, 1 << 20));
        }
    });
}

#[test]
fn a_member_that_is_gone_is_found_after_its_last_words() {
    run(async {
        let (mut client, near) = pair().await;
        let (far, mut member) = pair().await;
        let room = Room::new(4, 1 << 20);
        let joined = tokio::task::spawn_local(async move { join(&near, &far, &room).await });
        member.shutdown().await.expect("ended");
        assert_eq!(client.read(&mut [0; 1]).await.expect("read"), 0);
        reset(member);
        assert!(joined.await.expect("no panic").is_err());
    });
}

#[test]
fn what_is_cut_off_is_not_taken_for_whole() {
    run(async {
        // Either side, in the middle of what it says.
        for member_fails in [true, false] {
            let (client, near) = pair().await;
            let (far, member) = pair().await;
            let room = Room::new(4, 1 << 20);
            let joined = tokio::task::spawn_local(async move { join(&near, &far, &room).await });
            let (mut failing, mut other) = if member_fails { (member, client) } else { (client, member) };
            failing.write_all(&noise(200_000)).await.expect("sent");
            other.read_exact(&mut vec![0; 1000]).await.expect("read");
            reset(failing);
            let ended = other.read_to_end(&mut Vec::new()).await;
            assert_eq!(ended.expect_err("no end").kind(), io::ErrorKind::ConnectionReset);
            assert!(joined.await.expect("no panic").is_err());
        }
    });
}

#[test]
fn the_kernel_keeps_little_for_one_that_does_not_read() {
    run(async {
        let (sender, from) = pair().await;
        let (to, _silent) = pair().await;
        let (from, to) =
            (crate::worker::prepared(from).expect("prepared"), crate::worker::prepared(to).expect("prepared"));
        let to = Rc::new(to);
        let own = to.clone();
        tokio::task::spawn_local(async move { forward(&from, &own, &Room::new(4, 1 << 20)).await });
        // Until the sender gets rid of nothing for a while.
        let bytes = noise(1 << 20);
        let mut still = 0;
        while still < 100 {
            still += 1;
            while sender.try_write(&bytes).is_ok() {
                still = 0;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let mut queued: libc::c_int = 0;
        // SAFETY: the descriptor is open, and the pointer valid for the number that the call writes.
        assert_eq!(unsafe { libc::ioctl(std::os::fd::AsRawFd::as_raw_fd(&*to), libc::TIOCOUTQ, &mut queued) }, 0);
        assert!((1..1 << 19).contains(&queued), "{queued} bytes");
    });
}

#[test]
fn a_sender_that_falls_silent_keeps_no_pipe() {
    run(async {
        let (mut sender, from) = pair().await;
        let (to, mut receiver) = pair().await;
        let room = Room::new(1, 1 << 20);
        let own = room.clone();
        tokio::task::spawn_local(async move { forward(&from, &to, &own).await });
        let bytes = noise(4 << 20);
        let sent = bytes.clone();
        let sending = tokio::task::spawn_local(async move {
            sender.write_all(&sent).await.expect("sent");
            sender
        });
        let mut got = vec![0; bytes.len()];
        let (mut at, mut was_used) = (0, false);
        while at < got.len() {
            at += receiver.read(&mut got[at..]).await.expect("read");
            was_used |= room.free_pipes.get() == 0;
            tokio::task::yield_now().await;
        }
        assert!(got == bytes && was_used, "a pipe is used");
        let mut sender = sending.await.expect("no panic");
        while room.free_pipes.get() != 1 || room.free_bytes.get() != 1 << 20 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        sender.write_all(b"more").await.expect("sent");
        receiver.read_exact(&mut got[..4]).await.expect("read");
        assert_eq!(&got[..4], b"more");
    });
}
