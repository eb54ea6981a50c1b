//! Writes content like a workload, and verifies it.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result, ensure};
use sha2::{Digest, Sha256};

use crate::bytes::Bytes;
use crate::volume::Mode;

const CHUNK: usize = 1 << 20;
/// Offset of the writer's blocks on a raw block volume: behind the content.
const RECORDS_AT: u64 = TestPattern::SIZE.get();
const RECORD: usize = 4096;

/// Bytes that were written to a volume.
#[derive(Debug, Clone)]
pub(super) struct TestPattern {
    sum: String,
}

impl TestPattern {
    /// Number of bytes that are written.
    pub const SIZE: Bytes = Bytes::mib(8);

    /// Writes bytes that look random, flushes them, and remembers their checksum.
    pub async fn write(target: &Path, mode: Mode) -> Result<TestPattern> {
        let file = open(target, mode, "content")?;
        blocking(move || {
            let mut sum = Sha256::new();
            for index in 0..Self::SIZE.get() / CHUNK as u64 {
                let chunk = noise(index);
                file.write_all_at(&chunk, index * CHUNK as u64)?;
                sum.update(&chunk);
            }
            file.sync_all()?;
            Ok(TestPattern { sum: hex(&sum.finalize()) })
        })
        .await
        .context("failed to write")
    }

    /// Reads all bytes again, and verifies their checksum.
    ///
    /// # Errors
    /// If it is not what was written.
    pub async fn compare(&self, target: &Path, mode: Mode) -> Result<()> {
        let file = open(target, mode, "content")?;
        let sum = blocking(move || {
            let mut sum = Sha256::new();
            let mut chunk = vec![0; CHUNK];
            for index in 0..Self::SIZE.get() / CHUNK as u64 {
                file.read_exact_at(&mut chunk, index * CHUNK as u64)?;
                sum.update(&chunk);
            }
            Ok(hex(&sum.finalize()))
        });
        let sum = sum.await.context("failed to read")?;
        ensure!(sum == self.sum, "the bytes differ: sha256 {sum}, {} was written", self.sum);
        Ok(())
    }

    /// The beginning of the checksum, for people.
    pub fn short_sum(&self) -> String {
        format!("sha256 {}…", &self.sum[..12])
    }
}

/// Writes blocks and flushes each of them until it is stopped.
pub(super) struct TestWriter {
    stop: Arc<AtomicBool>,
    work: tokio::task::JoinHandle<io::Result<u64>>,
}

impl TestWriter {
    /// Starts to write below `size`, the current size of the volume.
    pub fn start(target: &Path, mode: Mode, size: Bytes) -> Result<TestWriter> {
        let file = open(target, mode, "records")?;
        let slots = match mode {
            Mode::Block => size.saturating_sub(TestPattern::SIZE).get() / RECORD as u64,
            Mode::Filesystem(_) => 4096,
        };
        let first = if mode == Mode::Block { RECORDS_AT } else { 0 };
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let work = tokio::task::spawn_blocking(move || {
            let mut number = 0u64;
            while !stopped.load(Ordering::SeqCst) || number == 0 {
                let at = first + number % slots * RECORD as u64;
                let record = record(number);
                file.write_all_at(&record, at)?;
                file.sync_data()?;
                let mut seen = vec![0; RECORD];
                file.read_exact_at(&mut seen, at)?;
                if seen != record {
                    return Err(io::Error::other(format!("block {number} reads back differently")));
                }
                number += 1;
            }
            Ok(number)
        });
        Ok(TestWriter { stop, work })
    }

    /// Stops, and returns the number of blocks that were written and read back.
    ///
    /// # Errors
    /// What the writer met.
    pub async fn stop(self) -> Result<u64> {
        self.stop.store(true, Ordering::SeqCst);
        self.work.await?.context("the writer failed")
    }
}

fn open(target: &Path, mode: Mode, name: &str) -> Result<File> {
    let path: PathBuf = match mode {
        Mode::Block => target.to_owned(),
        Mode::Filesystem(_) => target.join(name),
    };
    OpenOptions::new()
        .read(true)
        .write(true)
        .create(mode != Mode::Block)
        .truncate(false)
        .custom_flags(nix::libc::O_CLOEXEC)
        .open(&path)
        .with_context(|| format!("failed to open {}", path.display()))
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> Result<T> {
    Ok(tokio::task::spawn_blocking(work).await??)
}

/// Bytes that do not compress and are the same for the same seed (xorshift).
fn noise(seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    };
    (0..CHUNK / 8).flat_map(|_| next()).collect()
}

fn record(number: u64) -> Vec<u8> {
    number.to_le_bytes().repeat(RECORD / 8)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |hex, byte| hex + &format!("{byte:02x}"))
}
