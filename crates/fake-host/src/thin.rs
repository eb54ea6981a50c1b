//! Thin pools of the kernel: which chunks of a pool its volumes have, and what is in them.
//!
//! The bytes are on the disks of the pool's data, so that what a chunk held before is there when another volume
//! gets it. What a pool has given is durable from the next flush on, as in the kernel.

use std::collections::BTreeSet;
use std::ops::Range;
use std::path::Path;

use nix::libc::ENOSPC;
use pliant_lvm::host::HostError;
use pliant_lvm::lvm::{Group, Lv};

use crate::device::{Layer, Table, linear};
use crate::disk::system;
use crate::disks::Place;
use crate::thin_pools::{FakeThinPool, Given};
use crate::{FakeHost, World};

/// Bytes of a block of metadata.
const METADATA_BLOCK: u64 = 4096;

impl FakeHost {
    /// Returns whether a thin pool has reached its mark and was not expanded since.
    pub fn is_at_its_mark(&self) -> bool {
        self.lock().thin_pools.values().any(|pool| pool.told)
    }

    /// Let so many more blocks of the metadata of each thin pool be in use.
    pub fn use_thin_metadata(&self, blocks: u64) {
        self.lock().thin_pools.values_mut().for_each(|pool| pool.more_metadata += blocks);
    }

    /// Let the kernel have found an error in the metadata of each thin pool.
    pub fn damage_thin_pools(&self) {
        self.lock().thin_pools.values_mut().for_each(|pool| pool.damaged = true);
    }

    /// The chunks of a thin volume, active or not: where each begins in it, and its bytes.
    pub fn chunks_of(&self, group: &Group, lv: &Lv) -> Vec<(u64, Vec<u8>)> {
        self.lock().chunks_of(group, lv)
    }
}

/// Where a part of the chunk at this offset of the data is on the disks; chunks lie in one row.
fn place_in(data: &Table, start: u64, within: &Range<u64>) -> Option<Place> {
    let row = data.rows.iter().find(|row| row.range.contains(&start))?;
    let at = start - row.range.start + row.at;
    Some((row.disk.clone(), at + within.start..at + within.end))
}

/// A part of a thin volume, within one chunk.
struct Part {
    pool: String,
    volume: String,
    chunk: u64,
    within: Range<u64>,
}

impl World {
    /// The parts of a range of a thin volume; `None` for another device.
    fn thin_parts(&self, device: &Path, range: &Range<u64>) -> Option<Vec<Part>> {
        let Layer::Thin { pool, volume, .. } = &self.device_at(device)?.live.as_ref()?.layer else {
            return None;
        };
        let size = self.thin_pools.get(pool)?.chunk;
        let chunks = range.start / size..range.end.div_ceil(size);
        let part = |chunk: u64| {
            let start = (chunk * size).max(range.start) - chunk * size;
            let end = ((chunk + 1) * size).min(range.end) - chunk * size;
            Part { pool: pool.clone(), volume: volume.clone(), chunk, within: start..end }
        };
        Some(chunks.map(part).collect())
    }

    /// The bytes of a range of a thin volume: zeroes where it has no chunk.
    pub fn read_thin(
        &self,
        device: &Path,
        range: &Range<u64>,
        what: &str,
    ) -> Result<Option<Vec<u8>>, HostError> {
        let Some(parts) = self.thin_parts(device, range) else { return Ok(None) };
        let mut bytes = Vec::new();
        for part in parts {
            if let Some((disk, place)) = self.place_of(&part) {
                let disk = &self.disks[&disk];
                disk.may_read(what)?;
                bytes.append(&mut disk.content().read(place.start, place.end - place.start));
            } else {
                let length = part.within.end - part.within.start;
                bytes.resize(bytes.len() + usize::try_from(length).expect("a chunk"), 0);
            }
        }
        Ok(Some(bytes))
    }

    /// What was ever written in a range of a thin volume: where in it, and the bytes; `None` for another device.
    pub fn known_of_thin(&self, device: &Path, range: &Range<u64>) -> Option<Vec<(u64, Vec<u8>)>> {
        let mut known = Vec::new();
        for part in self.thin_parts(device, range)? {
            let Some((disk, place)) = self.place_of(&part) else { continue };
            let start = part.chunk * self.thin_pools[&part.pool].chunk + part.within.start;
            let bytes = self.disks[&disk].content().known(&place).into_iter();
            known.extend(bytes.map(|(at, bytes)| (at - place.start + start, bytes)));
        }
        Some(known)
    }

    /// Where a range of a thin volume is written, after its pool has given what it lacks; `None` for another device.
    pub fn give_thin(
        &mut self,
        device: &Path,
        range: &Range<u64>,
        what: &str,
    ) -> Result<Option<Vec<Place>>, HostError> {
        let Some(parts) = self.thin_parts(device, range) else { return Ok(None) };
        let mut places = Vec::new();
        for part in parts {
            self.give(&part, what)?;
            places.extend(self.place_of(&part));
        }
        Ok(Some(places))
    }

    /// Take back the whole chunks in a range; says whether it is of a thin volume.
    pub fn discard_thin(&mut self, device: &Path, range: &Range<u64>) -> bool {
        let Some(parts) = self.thin_parts(device, range) else { return false };
        for part in parts {
            let pool = self.thin_pools.get_mut(&part.pool).expect("it has parts");
            if part.within == (0..pool.chunk) {
                pool.given.remove(&(part.volume, part.chunk));
            }
        }
        true
    }

    /// Make durable what the pools have given.
    pub fn commit_thin(&mut self) {
        for pool in self.thin_pools.values_mut() {
            pool.durable = pool.given.clone();
        }
    }

    /// Forget what is not durable.
    pub fn lose_thin(&mut self) {
        for pool in self.thin_pools.values_mut() {
            pool.given = pool.durable.clone();
        }
    }

    /// Let a new volume share all chunks of another.
    pub fn share_thin(&mut self, pool: &str, from: &str, to: &str) {
        let pool = self.thin_pools.get_mut(pool).expect("a pool");
        let its = pool.given.iter().filter(|((volume, _), _)| volume == from);
        let shared: Given =
            its.map(|((_, chunk), place)| ((to.to_owned(), *chunk), *place)).collect();
        pool.given.extend(shared);
        self.take_message();
    }

    /// Take back all chunks of a volume.
    pub fn drop_thin(&mut self, pool: &str, volume: &str) {
        if let Some(pool) = self.thin_pools.get_mut(pool) {
            pool.given.retain(|(of, _), _| of != volume);
        }
        self.take_message();
    }

    /// The kernel commits at each message, and sends a flush to the disks of its metadata.
    fn take_message(&mut self) {
        let metas = self.devices.values().filter_map(|device| match &device.live.as_ref()?.layer {
            Layer::Pool { meta, .. } => self.devices.get(meta)?.live.as_ref(),
            _ => None,
        });
        let disks: Vec<_> =
            metas.flat_map(|table| &table.rows).map(|row| row.disk.clone()).collect();
        for disk in disks {
            self.disks.get_mut(&disk).expect("a known disk").flush();
        }
        self.commit_thin();
    }

    fn give(&mut self, part: &Part, what: &str) -> Result<(), HostError> {
        let pool = &self.thin_pools[&part.pool];
        let key = (part.volume.clone(), part.chunk);
        let now = pool.given.get(&key).copied();
        let is_shared = |chunk| pool.given.values().filter(|given| **given == chunk).count() > 1;
        if now.is_some_and(|chunk| !is_shared(chunk)) {
            return Ok(());
        }
        let new = self.free_chunk(&part.pool).ok_or_else(|| system(what, ENOSPC))?;
        let (whole, zeroes) = (0..pool.chunk, pool.zeroes);
        let content = now.and_then(|old| {
            let (disk, place) = self.place_of_chunk(&part.pool, old, &whole)?;
            Some(self.disks[&disk].content().read(place.start, place.end - place.start))
        });
        let (disk, place) = self.place_of_chunk(&part.pool, new, &whole).expect("it is free");
        let disk = self.disks.get_mut(&disk).expect("a known disk");
        disk.may_write(what)?;
        match content {
            Some(content) => disk.write(place.start, &content),
            None if zeroes => disk.zero(place),
            None => {}
        }
        let all = self.data_of(&part.pool).map_or(0, Table::size);
        let pool = self.thin_pools.get_mut(&part.pool).expect("a pool");
        pool.given.insert(key, new);
        let used = pool.used() * pool.chunk;
        if !pool.told && used * 100 >= all * u64::from(pool.mark) {
            (pool.told, pool.events) = (true, pool.events + 1);
            self.dm_events.notify_waiters();
        }
        Ok(())
    }

    /// The state of a pool as the kernel prints it.
    pub fn thin_status(&self, uuid: &str) -> Option<String> {
        let pool = self.thin_pools.get(uuid)?;
        let (used, all) = (pool.used(), self.data_of(uuid)?.size() / pool.chunk);
        let blocks = self.metadata_of(uuid)?.size() / METADATA_BLOCK;
        let metadata = format!("{}/{blocks}", 200 + used / 64 + pool.more_metadata);
        let (state, check) = match (pool.damaged, used == all) {
            (true, _) => ("ro", "needs_check"),
            (false, true) => ("out_of_data_space", "-"),
            (false, false) => ("rw", "-"),
        };
        Some(format!(
            "0 {metadata} {used}/{all} - {state} discard_passdown queue_if_no_space {check} 512"
        ))
    }

    /// The bytes of a chunk of a pool, and how many of them are free when it sends its event.
    pub fn low_water(&self, uuid: &str) -> (u64, u64) {
        let Some(pool) = self.thin_pools.get(uuid) else { return (64 << 10, 0) };
        let all = self.data_of(uuid).map_or(0, Table::size) / pool.chunk;
        (pool.chunk, all * u64::from(100_u32.saturating_sub(pool.mark)) / 100)
    }

    /// A pool was expanded: it sends an event when it is at its mark again.
    pub fn renew_mark(&mut self, uuid: &str, mark: u32) {
        if let Some(pool) = self.thin_pools.get_mut(uuid) {
            (pool.mark, pool.told) = (mark, false);
        }
    }

    /// A chunk that no volume has: one that still holds something, if there is any, since the kernel may choose that.
    fn free_chunk(&self, pool: &str) -> Option<u64> {
        let FakeThinPool { chunk, given, durable, .. } = self.thin_pools.get(pool)?;
        // What was given back since the last flush may still be another's after a power cut.
        let taken: BTreeSet<u64> = given.values().chain(durable.values()).copied().collect();
        let data = self.data_of(pool)?;
        let held = data.rows.iter().flat_map(|row| {
            let place = row.at..row.at + row.range.end - row.range.start;
            let written = self.disks[&row.disk].content().written(&place);
            written.map(move |at| (at - row.at + row.range.start) / chunk)
        });
        held.chain(0..data.size() / chunk).find(|chunk| !taken.contains(chunk))
    }

    fn place_of(&self, part: &Part) -> Option<Place> {
        let given = &self.thin_pools.get(&part.pool)?.given;
        let chunk = given.get(&(part.volume.clone(), part.chunk))?;
        self.place_of_chunk(&part.pool, *chunk, &part.within)
    }

    fn place_of_chunk(&self, pool: &str, chunk: u64, within: &Range<u64>) -> Option<Place> {
        place_in(self.data_of(pool)?, chunk * self.thin_pools.get(pool)?.chunk, within)
    }

    /// The chunks of a thin volume, active or not: where each begins in it, and its bytes.
    fn chunks_of(&self, group: &Group, lv: &Lv) -> Vec<(u64, Vec<u8>)> {
        let Some(thin) = group.thin_pool() else { return Vec::new() };
        let Some(pool) = self.thin_pools.get(&thin.device()) else { return Vec::new() };
        let data = linear(group, &group.lvs[&thin.lv.segments[0].volumes["pool"]]);
        let its = pool.given.iter().filter(|((volume, _), _)| *volume == lv.uuid);
        let bytes = its.filter_map(|((_, at), chunk)| {
            let (disk, place) = place_in(&data, chunk * pool.chunk, &(0..pool.chunk))?;
            let bytes = self.disks[&disk].content().read(place.start, pool.chunk);
            Some((at * pool.chunk, bytes))
        });
        bytes.collect()
    }

    /// The table of the metadata of a pool.
    fn metadata_of(&self, pool: &str) -> Option<&Table> {
        match &self.devices.get(pool)?.live.as_ref()?.layer {
            Layer::Pool { meta, .. } => self.devices.get(meta)?.live.as_ref(),
            _ => None,
        }
    }

    /// The table of the data of a pool.
    fn data_of(&self, pool: &str) -> Option<&Table> {
        match &self.devices.get(pool)?.live.as_ref()?.layer {
            Layer::Pool { data, .. } => self.devices.get(data)?.live.as_ref(),
            _ => None,
        }
    }
}
