//! A server that answers every `Range` with the same reply: the cost of a request is then the transport's alone.
//!
//! `cargo run --release -p cairn-rpc --example echo -- 127.0.0.1:42000 [threads] [reply bytes] [later]`, where `later` answers from another thread.

use std::net::TcpListener;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use rpc::{
    Call, HttpResponder, Kind, Method, Options, Reply, Responder, Server, Service, Status, StreamCall, StreamHandler,
};

struct Echo {
    reply: Bytes,
    later: Option<Mutex<Sender<Responder>>>,
}

impl Service for Echo {
    fn methods(&self) -> &'static [Method] {
        &[Method { path: "/etcdserverpb.KV/Range", kind: Kind::Unary }]
    }

    fn unary(&self, _: usize, _: Call, responder: Responder) {
        match &self.later {
            None => responder.send(Ok(Reply::Whole(self.reply.clone()))),
            Some(later) => {
                if let Ok(later) = later.lock() {
                    // Fails only at the end of the process.
                    let _ = later.send(responder);
                }
            }
        }
    }

    fn stream(&self, _: usize, _: StreamCall) -> Result<Box<dyn StreamHandler>, Status> {
        Err(Status::new(api::Code::Unimplemented, "no streams here"))
    }

    fn http(&self, _: http::Request<Bytes>, responder: HttpResponder) {
        responder.send(http::Response::new(Bytes::from_static(b"echo\n")));
    }
}

fn main() -> std::io::Result<()> {
    let mut args = std::env::args().skip(1);
    let address = args.next().unwrap_or_else(|| "127.0.0.1:42000".to_string());
    let threads = args.next().and_then(|text| text.parse().ok()).unwrap_or(1);
    let reply_bytes = args.next().and_then(|text| text.parse().ok()).unwrap_or(0);
    let reply = Bytes::from(vec![b'x'; reply_bytes]);
    let later = args.next().map(|_| {
        let (sender, receiver) = channel::<Responder>();
        let reply = reply.clone();
        std::thread::spawn(move || {
            while let Ok(responder) = receiver.recv() {
                responder.send(Ok(Reply::Whole(reply.clone())));
            }
        });
        Mutex::new(sender)
    });
    let listener = TcpListener::bind(&address)?;
    let options = Options { threads, ..Options::default() };
    let _server = Server::start(vec![listener], Arc::new(Echo { reply, later }), options)?;
    println!("serving on {address}");
    loop {
        std::thread::park();
    }
}
