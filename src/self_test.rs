//! `pliant self-test`: runs the full lifecycle of a volume against a running driver, and prints each step.
//!
//! It calls CSI on the driver's socket as the kubelet and the sidecars do, and verifies everything:
//! it writes, reads back and compares.

pub mod client;
mod content;
mod tell;

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::{Context, Result, bail, ensure};

use crate::bytes::Bytes;
use crate::cli::SelfTest;
use crate::csi::pb;
use crate::volume::Mode;

use client::Client;
use content::{TestPattern, TestWriter};
use tell::Tell;

/// Runs the full lifecycle of one volume of each mode.
///
/// # Errors
/// The first step that did not do what it should; what was made until then is removed if possible.
pub async fn run(args: &SelfTest) -> Result<()> {
    ensure!(args.expand_to > args.size, "--expand-to must be above --size");
    let mut client = Client::connect(args.endpoint.as_path()).await?;
    let tell = Tell::new();
    Tell::line(&client.describe().await?);
    for mode in &args.modes {
        let mut life = VolumeLifecycle::new(&mut client, args, *mode, &tell);
        if let Err(error) = life.walk().await {
            life.clean_up().await;
            return Err(error.context(format!("{mode} volume")));
        }
    }
    Tell::line("all steps passed, no volume is left");
    Ok(())
}

/// The lifecycle of one volume.
struct VolumeLifecycle<'a> {
    client: &'a mut Client,
    args: &'a SelfTest,
    mode: Mode,
    tell: &'a Tell,
    staging: PathBuf,
    target: PathBuf,
    volume: Option<String>,
    /// Current size of the volume.
    size: Bytes,
}

/// The size to expand to from `now`: the requested one if it is larger, else as much more.
///
/// A volume may be created larger than requested, so that its file system fits.
fn larger(now: Bytes, args: &SelfTest) -> Bytes {
    if args.expand_to > now { args.expand_to } else { now + (args.expand_to - args.size) }
}

impl<'a> VolumeLifecycle<'a> {
    fn new(client: &'a mut Client, args: &'a SelfTest, mode: Mode, tell: &'a Tell) -> Self {
        let dir = args.dir.join(mode.to_string());
        let (staging, target) = (dir.join("staging"), dir.join("target"));
        VolumeLifecycle { client, args, mode, tell, staging, target, volume: None, size: args.size }
    }

    fn id(&self) -> Result<&str> {
        self.volume.as_deref().context("no volume exists")
    }

    /// The class parameters.
    fn parameters(&self) -> BTreeMap<String, String> {
        let pool = self.args.pool.iter();
        pool.map(|pool| ("pool".to_owned(), pool.to_string())).collect()
    }

    async fn free(&mut self) -> Result<Bytes> {
        let free = self.client.capacity(&self.parameters()).await?.available_capacity;
        Ok(Bytes::from_i64(free).unwrap_or_default())
    }

    async fn walk(&mut self) -> Result<()> {
        self.tell.heading(&self.mode.to_string());
        let before = self.free().await?;
        self.create().await?;
        self.mount().await?;
        let content = self.write().await?;
        self.grow_under_writer().await?;
        self.grow_offline().await?;
        self.compare(&content).await?;
        self.delete(before).await
    }

    async fn create(&mut self) -> Result<()> {
        let name = format!("try-{}-{}", self.mode, std::process::id());
        let step = self.tell.begin("create");
        let (id, size) =
            self.client.create(&name, self.args.size, self.mode, &self.parameters()).await?;
        let asked = self.args.size;
        let why = if size > asked { format!(", {asked} requested") } else { String::new() };
        step.done(&format!("{size}{why}, volume {id}"));
        self.volume = Some(id);
        self.size = size;
        Ok(())
    }

    async fn mount(&mut self) -> Result<()> {
        let step = self.tell.begin("stage");
        self.show().await?;
        step.done(&format!("and published at {}", self.target.display()));
        Ok(())
    }

    /// Stages and publishes the volume.
    async fn show(&mut self) -> Result<()> {
        std::fs::create_dir_all(&self.staging).context("failed to create the staging directory")?;
        let id = self.id()?.to_owned();
        self.client.stage(&id, &self.staging, self.mode).await?;
        Ok(self.client.publish(&id, &self.staging, &self.target, self.mode).await?)
    }

    async fn write(&mut self) -> Result<TestPattern> {
        let step = self.tell.begin("write");
        let content = TestPattern::write(&self.target, self.mode).await?;
        step.done(&format!("{} and fsync, {}", TestPattern::SIZE, content.short_sum()));
        Ok(content)
    }

    async fn grow_under_writer(&mut self) -> Result<()> {
        let writer = TestWriter::start(&self.target, self.mode, self.size)?;
        let grown = self.grow_shown().await;
        // In any case: a volume that the writer has open cannot be unstaged.
        let records = writer.stop().await;
        grown?;
        let step = self.tell.begin("writer");
        let (records, seen) = (records?, self.must_show(self.size).await?);
        step.done(&format!("{records} blocks written meanwhile and read back; it sees {seen}"));
        Ok(())
    }

    async fn grow_shown(&mut self) -> Result<()> {
        let (to, id) = (larger(self.size, self.args), self.id()?.to_owned());
        let step = self.tell.begin("expand");
        let (size, node_step) = self.client.grow(&id, to, self.mode).await?;
        if node_step {
            self.client.node_expand(&id, &self.target, &self.staging, to, self.mode).await?;
        }
        self.note_growth(size)?;
        let steps = if node_step { "two calls" } else { "one call" };
        step.done(&format!("to {size} under a running writer, in {steps}"));
        Ok(())
    }

    async fn grow_offline(&mut self) -> Result<()> {
        self.hide().await?;
        let id = self.id()?.to_owned();
        let step = self.tell.begin("expand");
        let to = larger(self.size, self.args);
        let (size, node_step) = self.client.grow(&id, to, self.mode).await?;
        self.note_growth(size)?;
        step.done(&format!(
            "to {size} unstaged{}",
            if node_step { ", its file system at staging" } else { ", in one call" }
        ));
        Ok(())
    }

    fn note_growth(&mut self, size: Bytes) -> Result<()> {
        ensure!(
            size > self.size,
            "it has {size} after the expansion, and had {} before",
            self.size
        );
        self.size = size;
        Ok(())
    }

    async fn compare(&mut self, content: &TestPattern) -> Result<()> {
        let step = self.tell.begin("compare");
        self.show().await?;
        content.compare(&self.target, self.mode).await?;
        let seen = self.must_show(self.size).await?;
        step.done(&format!("staged again: the same bytes, {seen}"));
        Ok(())
    }

    /// Checks that the workload sees at least this size, less the overhead of the file system.
    async fn must_show(&mut self, size: Bytes) -> Result<String> {
        let id = self.id()?.to_owned();
        let stats = self.client.stats(&id, &self.target).await?;
        let in_bytes = i32::from(pb::volume_usage::Unit::Bytes);
        let bytes = stats.usage.into_iter().find(|usage| usage.unit == in_bytes);
        let bytes = bytes.context("NodeGetVolumeStats returned no bytes")?;
        let total = Bytes::from_i64(bytes.total).unwrap_or_default();
        let used = Bytes::from_i64(bytes.used).filter(|used| *used > Bytes::ZERO);
        let least = match self.mode {
            Mode::Block => size,
            Mode::Filesystem(_) => Bytes::new(size.get() / 100 * 75),
        };
        ensure!(total >= least, "the workload sees {total}, at least {least} was expected");
        Ok(match used {
            Some(used) => format!("{total}, {used} used"),
            None => total.to_string(),
        })
    }

    /// Unpublishes and unstages the volume.
    async fn hide(&mut self) -> Result<()> {
        let id = self.id()?.to_owned();
        self.client.unpublish(&id, &self.target).await?;
        ensure!(!self.target.exists(), "{} still exists", self.target.display());
        Ok(self.client.unstage(&id, &self.staging).await?)
    }

    async fn delete(&mut self, free_before: Bytes) -> Result<()> {
        let id = self.id()?.to_owned();
        let step = self.tell.begin("delete");
        self.hide().await?;
        self.client.delete(&id).await?;
        let mut listed = self.client.list().await?.into_iter().filter_map(|entry| entry.volume);
        if listed.any(|volume| volume.volume_id == id) {
            bail!("volume {id} is still listed");
        }
        let free = self.free().await?;
        ensure!(free == free_before, "{free} is free now, {free_before} was free before");
        self.volume = None;
        self.remove_directories();
        step.done(&format!("unstaged, wiped, removed; {free} free as before"));
        Ok(())
    }

    /// Removes only empty directories: the parent may contain other files.
    fn remove_directories(&self) {
        let parents = self.staging.ancestors().skip(1).take(2);
        for dir in [self.target.as_path(), &self.staging].into_iter().chain(parents) {
            let _ = std::fs::remove_dir(dir);
        }
    }

    /// Removes what it can after a failed step, so that the next run starts clean.
    async fn clean_up(&mut self) {
        let Some(id) = self.volume.take() else { return };
        let _ = self.client.unpublish(&id, &self.target).await;
        let _ = self.client.unstage(&id, &self.staging).await;
        if let Err(error) = self.client.delete(&id).await {
            Tell::line(&format!("volume {id} is left behind: {error:#}"));
        }
        self.remove_directories();
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::cli::{Cli, Command};

    fn args(size: &str, expand_to: &str) -> SelfTest {
        match Cli::parse_from(["pliant", "self-test", "--size", size, "--expand-to", expand_to])
            .command
        {
            Command::SelfTest(args) => args,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_volume_that_was_made_larger_than_asked_for_still_grows() {
        let args = args("64Mi", "96Mi");
        for (now, next) in [(64, 96), (96, 128), (300, 332), (332, 364)] {
            assert_eq!(larger(Bytes::mib(now), &args), Bytes::mib(next));
        }
    }
}
