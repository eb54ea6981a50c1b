//! Connections to the webhook, and the memory of each. Any client in the cluster may connect, so both are
//! bounded, and the client with most of them is disconnected: an API server has few connections.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio_util::sync::CancellationToken;

/// Maximum number of connections.
const MOST_CONNECTIONS: usize = 256;

/// Maximum size of requests in memory, in bytes. Decoded, they take a multiple of that.
const MOST_BYTES: usize = 8 << 20;

/// Table of the connections. Clones share it.
#[derive(Debug, Clone, Default)]
pub(super) struct Guests(Arc<Mutex<Table>>);

#[derive(Debug, Default)]
struct Table {
    next: u64,
    /// Connections in the order of their arrival.
    all: BTreeMap<u64, ConnectionEntry>,
}

#[derive(Debug)]
struct ConnectionEntry {
    address: IpAddr,
    bytes: usize,
    ended: CancellationToken,
}

/// One connection, until this is dropped.
#[derive(Debug)]
pub(super) struct Guest {
    number: u64,
    guests: Guests,
    /// Cancelled when the connection makes way for another one.
    pub ended: CancellationToken,
}

impl Guests {
    /// Admits a connection. If there are too many, the oldest connection of the address with most of them
    /// ends.
    pub fn enter(&self, address: IpAddr) -> Guest {
        let mut table = self.table();
        while table.all.len() >= MOST_CONNECTIONS {
            let Some(number) = table.oldest_of_the_most_frequent() else { break };
            table.end(number);
        }
        let (number, ended) = (table.next, CancellationToken::new());
        table.next += 1;
        table.all.insert(number, ConnectionEntry { address, bytes: 0, ended: ended.clone() });
        drop(table);
        Guest { number, guests: self.clone(), ended }
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Guest {
    /// Reserves more bytes for a request, or returns false. If all are in use, connections of the address
    /// with most of them end, unless that is the address of this one.
    pub fn take(&self, more: usize) -> bool {
        let mut table = self.guests.table();
        if !table.all.contains_key(&self.number) {
            return false;
        }
        while table.bytes() + more > MOST_BYTES {
            let mine = table.bytes_by_address();
            let address = table.all[&self.number].address;
            let most = mine.iter().max_by_key(|(_, bytes)| **bytes);
            let Some((hog, _)) = most.filter(|(hog, _)| **hog != address) else { return false };
            let Some(number) = table.largest_of(*hog) else { return false };
            table.end(number);
        }
        if let Some(entry) = table.all.get_mut(&self.number) {
            entry.bytes += more;
        }
        true
    }

    /// Releases all bytes: the request is answered.
    pub fn give_back(&self) {
        if let Some(entry) = self.guests.table().all.get_mut(&self.number) {
            entry.bytes = 0;
        }
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        self.guests.table().all.remove(&self.number);
    }
}

impl Table {
    fn bytes(&self) -> usize {
        self.all.values().map(|entry| entry.bytes).sum()
    }

    fn bytes_by_address(&self) -> BTreeMap<IpAddr, usize> {
        let mut sums = BTreeMap::new();
        for entry in self.all.values() {
            *sums.entry(entry.address).or_default() += entry.bytes;
        }
        sums
    }

    fn largest_of(&self, address: IpAddr) -> Option<u64> {
        let its = self.all.iter().filter(|(_, entry)| entry.address == address);
        its.max_by_key(|(_, entry)| entry.bytes).map(|(number, _)| *number)
    }

    fn oldest_of_the_most_frequent(&self) -> Option<u64> {
        let mut counts: BTreeMap<IpAddr, usize> = BTreeMap::new();
        for entry in self.all.values() {
            *counts.entry(entry.address).or_default() += 1;
        }
        let (address, _) = counts.into_iter().max_by_key(|(_, count)| *count)?;
        self.all.iter().find(|(_, entry)| entry.address == address).map(|(number, _)| *number)
    }

    fn end(&mut self, number: u64) {
        if let Some(entry) = self.all.remove(&number) {
            entry.ended.cancel();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(last: u8) -> IpAddr {
        IpAddr::from([10, 0, 0, last])
    }

    #[test]
    fn who_has_most_connections_makes_way() {
        let guests = Guests::default();
        let api_server: Vec<Guest> = (0..4).map(|_| guests.enter(address(1))).collect();
        let crowd: Vec<Guest> = (0..MOST_CONNECTIONS).map(|_| guests.enter(address(2))).collect();
        assert_eq!(crowd.iter().filter(|one| one.ended.is_cancelled()).count(), 4);
        assert!(crowd[0].ended.is_cancelled(), "the oldest one goes first");
        let more: Vec<Guest> = (0..60).map(|_| guests.enter(address(3))).collect();
        let stay = |all: &[Guest]| all.iter().filter(|one| !one.ended.is_cancelled()).count();
        assert_eq!((stay(&api_server), stay(&more)), (4, 60));
        assert_eq!(stay(&crowd) + 64, MOST_CONNECTIONS);
        drop(crowd);
        assert_eq!(guests.table().all.len(), 64);
    }

    #[test]
    fn who_has_most_bytes_makes_way() {
        let guests = Guests::default();
        let hogs: Vec<Guest> = (0..4).map(|_| guests.enter(address(2))).collect();
        assert!(hogs.iter().all(|hog| hog.take(MOST_BYTES / 4)));
        assert!(!hogs[0].take(1), "it has most itself");
        let api_server = guests.enter(address(1));
        assert!(api_server.take(1000) && api_server.take(1000));
        assert_eq!(hogs.iter().filter(|hog| hog.ended.is_cancelled()).count(), 1);
        let ended = hogs.iter().find(|hog| hog.ended.is_cancelled()).unwrap();
        assert!(!ended.take(1), "it has gone");
        api_server.give_back();
        assert!(guests.table().bytes() < MOST_BYTES);
        assert!(!api_server.take(MOST_BYTES + 1));
    }
}
