//! Who sends, in this process.

use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::UNIX_EPOCH;

use pliant_copy::remote::{Credentials, Remote, Served, TransferKeys, serve};

/// One who sends until it is dropped.
pub struct Sender {
    listener: TcpListener,
    thread: Option<JoinHandle<()>>,
}

/// The keys of all tests: to make them takes longer than a copy.
pub fn keys() -> &'static TransferKeys {
    static KEYS: OnceLock<TransferKeys> = OnceLock::new();
    KEYS.get_or_init(|| {
        TransferKeys::make(UNIX_EPOCH.elapsed().expect("after 1970")).expect("keys")
    })
}

pub fn credentials(keys: &TransferKeys, pair: &(String, String)) -> Credentials {
    Credentials::of(keys.ca.as_bytes(), pair.0.as_bytes(), pair.1.as_bytes()).expect("keys")
}

impl Sender {
    pub fn of(source: Served) -> Sender {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let accepting = listener.try_clone().expect("a listener");
        let thread = std::thread::spawn(move || {
            let credentials = credentials(keys(), &keys().source);
            let ended = serve(&accepting, &source, &credentials, &|_| {});
            assert!(ended.is_err(), "ends with its listener alone");
        });
        Sender { listener, thread: Some(thread) }
    }

    pub fn address(&self) -> SocketAddr {
        self.listener.local_addr().expect("an address")
    }

    /// Who receives from it.
    pub fn remote(&self) -> Remote {
        let credentials = credentials(keys(), &keys().target);
        Remote::at(&self.address().to_string(), &credentials, Arc::default()).expect("keys")
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        let ended = rustix::net::shutdown(&self.listener, rustix::net::Shutdown::Both);
        if ended.is_ok() && !std::thread::panicking() {
            self.thread.take().map(JoinHandle::join);
        }
    }
}
