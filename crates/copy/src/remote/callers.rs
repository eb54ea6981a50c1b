//! The open connections of a sender. Authenticated ones are counted apart from others, so that a
//! client that reaches the port cannot block the right one.

use std::cell::Cell;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::io;
use std::net::{IpAddr, Shutdown, SocketAddr, TcpStream};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::copy::Digest;

/// How many may be open that have shown the right key: a copy has three.
const MOST_KNOWN: usize = 16;
/// How many of these may show the same key, where several are right.
const MOST_OF_ONE_KEY: usize = 12;
/// How many may be open that have not shown it yet.
const MOST_UNKNOWN: usize = 64;

/// All of them.
#[derive(Debug, Default)]
pub struct Callers(Mutex<Open>);

#[derive(Debug, Default)]
struct Open {
    /// Those that are not known yet, the oldest first.
    unknown: Vec<Unknown>,
    known: usize,
    /// How many of the known ones have shown a key of several.
    by_key: HashMap<Digest, usize>,
    /// How many there were.
    count: u64,
}

#[derive(Debug)]
struct Unknown {
    number: u64,
    from: IpAddr,
    tcp: TcpStream,
}

/// One of them, until it is dropped.
#[derive(Debug)]
pub struct Caller<'a> {
    callers: &'a Callers,
    number: u64,
    from: SocketAddr,
    is_known: Cell<bool>,
    key: Cell<Option<Digest>>,
}

impl Callers {
    /// Admits an unauthenticated connection. If there are too many of those, the oldest one of the
    /// address that has the most is closed.
    ///
    /// # Errors
    /// An error of the system on the connection.
    pub fn admit(&self, tcp: &TcpStream, from: SocketAddr) -> io::Result<Caller<'_>> {
        let tcp = tcp.try_clone()?;
        let mut open = self.open();
        open.count += 1;
        let number = open.count;
        open.unknown.push(Unknown { number, from: from.ip(), tcp });
        if open.unknown.len() > MOST_UNKNOWN
            && let Some(at) = open.one_too_many()
        {
            // Whoever answers it finds it closed; that it is closed already is as good.
            let _ = open.unknown.remove(at).tcp.shutdown(Shutdown::Both);
        }
        Ok(Caller { callers: self, number, from, is_known: Cell::new(false), key: Cell::new(None) })
    }

    fn open(&self) -> MutexGuard<'_, Open> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Open {
    /// Where the oldest one is of the address that has the most.
    fn one_too_many(&self) -> Option<usize> {
        let mut counts: HashMap<IpAddr, usize> = HashMap::new();
        for unknown in &self.unknown {
            *counts.entry(unknown.from).or_default() += 1;
        }
        let most = counts.values().max()?;
        self.unknown.iter().position(|unknown| counts[&unknown.from] == *most)
    }

    /// Counts one no more that has shown this key.
    fn leave(&mut self, key: Digest) {
        if let Entry::Occupied(mut count) = self.by_key.entry(key) {
            *count.get_mut() -= 1;
            if *count.get() == 0 {
                count.remove();
            }
        }
    }

    /// Counts one no more that is not known; false if it is not among them.
    fn close(&mut self, number: u64) -> bool {
        let before = self.unknown.len();
        self.unknown.retain(|unknown| unknown.number != number);
        self.unknown.len() < before
    }
}

impl Caller<'_> {
    /// As [`Caller::known`], where several keys are right: who has one of them leaves room for the others.
    ///
    /// # Errors
    /// As there, and if too many have shown this key.
    pub fn known_by(&self, key: Digest) -> io::Result<()> {
        let mut open = self.callers.open();
        let count = open.by_key.entry(key).or_default();
        if *count >= MOST_OF_ONE_KEY {
            return Err(self.too_many(MOST_OF_ONE_KEY));
        }
        *count += 1;
        self.key.set(Some(key));
        drop(open);
        self.known()
    }

    fn too_many(&self, most: usize) -> io::Error {
        io::Error::other(format!("{}: {most} copies are in progress already", self.from))
    }

    /// Marks it as authenticated.
    ///
    /// # Errors
    /// It was closed meanwhile, or there are too many authenticated ones.
    pub fn known(&self) -> io::Result<()> {
        let mut open = self.callers.open();
        if open.known >= MOST_KNOWN {
            return Err(self.too_many(MOST_KNOWN));
        }
        if !open.close(self.number) {
            return Err(io::Error::other("closed: too many unauthenticated connections"));
        }
        open.known += 1;
        self.is_known.set(true);
        Ok(())
    }
}

impl Drop for Caller<'_> {
    fn drop(&mut self) {
        let mut open = self.callers.open();
        if self.is_known.get() {
            open.known -= 1;
        } else {
            open.close(self.number);
        }
        if let Some(key) = self.key.get() {
            open.leave(key);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::net::TcpListener;

    use super::*;

    /// Both ends of so many connections.
    fn connections(count: usize) -> Vec<(TcpStream, TcpStream)> {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let connect = || TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (0..count).map(|_| (connect(), listener.accept().unwrap().0)).collect()
    }

    fn from(last: u8) -> SocketAddr {
        ([10, 0, 0, last], 4000).into()
    }

    fn is_closed(end: &mut TcpStream) -> bool {
        end.set_nonblocking(true).unwrap();
        matches!(end.read(&mut [0]), Ok(0))
    }

    #[test]
    fn whoever_opens_most_loses_the_oldest_and_no_one_else_any() {
        let callers = Callers::default();
        let mut ends = connections(MOST_UNKNOWN + 2);
        // The first one is of another address, and older than all.
        let admitted: Vec<Caller> = ends
            .iter()
            .enumerate()
            .map(|(at, (_, tcp))| callers.admit(tcp, from(u8::from(at > 0))).unwrap())
            .collect();
        let closed: Vec<usize> = (0..ends.len()).filter(|at| is_closed(&mut ends[*at].0)).collect();
        assert_eq!(closed, [1, 2]);
        admitted[0].known().unwrap();
        admitted[1].known().unwrap_err();
        drop(admitted);
        let open = callers.open();
        assert_eq!((open.known, open.unknown.len()), (0, 0));
    }

    #[test]
    fn who_has_one_key_of_several_leaves_room_for_the_others() {
        let callers = Callers::default();
        let ends = connections(MOST_OF_ONE_KEY + 2);
        let mut admitted: Vec<Caller> =
            ends.iter().map(|(_, tcp)| callers.admit(tcp, from(1)).unwrap()).collect();
        let (first, second) = (Digest::of(b"first"), Digest::of(b"second"));
        for caller in &admitted[..MOST_OF_ONE_KEY] {
            caller.known_by(first).unwrap();
        }
        let error = admitted[MOST_OF_ONE_KEY].known_by(first).unwrap_err();
        assert!(error.to_string().ends_with("12 copies are in progress already"), "{error}");
        admitted[MOST_OF_ONE_KEY + 1].known_by(second).unwrap();
        drop(admitted.remove(0));
        admitted[MOST_OF_ONE_KEY - 1].known_by(first).unwrap();
        drop(admitted);
        let open = callers.open();
        assert_eq!((open.known, open.unknown.len(), open.by_key.len()), (0, 0, 0));
    }

    #[test]
    fn those_that_are_known_are_counted_apart() {
        let callers = Callers::default();
        let ends = connections(MOST_KNOWN + 1);
        let admitted: Vec<Caller> =
            ends.iter().map(|(_, tcp)| callers.admit(tcp, from(1)).unwrap()).collect();
        for caller in &admitted[..MOST_KNOWN] {
            caller.known().unwrap();
        }
        let error = admitted[MOST_KNOWN].known().unwrap_err();
        assert!(error.to_string().ends_with("16 copies are in progress already"), "{error}");
        assert_eq!(callers.open().unknown.len(), 1);
    }
}
