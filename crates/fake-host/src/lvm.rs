//! LVM commands: which lines are understood, and how their reports look.
//!
//! A command is planned as a list of steps from what it sees, and each step is an effect: the states
//! between them are those that a killed command leaves behind.

use std::collections::BTreeSet;
use std::path::PathBuf;

use pliant_lvm::host::{Cmd, HostError};
use pliant_lvm::lvm::group::{ExtentRun, Group};
use serde_json::{Value, json};

use crate::disk::{Fault, timed_out};
use crate::{FakeHost, World};

mod groups;
mod snapshots;
mod steps;
mod thin;
mod volumes;

use steps::Step;

/// Why a command changes nothing: its `log_ret_code` and its message.
pub(super) struct Refusal(u8, String);

type Plan = Result<Vec<Step>, Refusal>;

/// Something that LVM says no to; everything of substance is code 5.
fn no(message: impl Into<String>) -> Refusal {
    Refusal(5, message.into())
}

/// A command line taken apart.
struct Line {
    typed: String,
    command: String,
    /// Options in order, with their values if they take one.
    options: Vec<(String, Option<String>)>,
    /// What is no option: groups, volumes, disks.
    names: Vec<String>,
}

const WITH_VALUE: [&str; 17] = [
    "--errorwhenfull",
    "-V",
    "-c",
    "--type",
    "--thinpool",
    "--poolmetadatasize",
    "--discards",
    "-l",
    "-n",
    "-i",
    "--addtag",
    "--deltag",
    "--poll",
    "--metadatasize",
    "--setautoactivation",
    "--alloc",
    "--fs",
];

impl Line {
    fn parse(cmd: &Cmd) -> Line {
        let typed = cmd.to_string();
        let mut words =
            cmd.args.iter().map(|arg| arg.to_str().expect("arguments are text").to_owned());
        let command = match cmd.program {
            "lvm" => words.next().unwrap_or_default(),
            command => command.to_owned(),
        };
        let (mut options, mut names) = (Vec::new(), Vec::new());
        while let Some(word) = words.next() {
            if WITH_VALUE.contains(&word.as_str()) {
                options.push((word, words.next()));
            } else if word.starts_with('-') {
                options.push((word, None));
            } else {
                names.push(word);
            }
        }
        Line { typed, command, options, names }
    }

    /// Panic unless all of `needed` and nothing beyond `needed` and `allowed` is there.
    fn only(&self, needed: &[&str], allowed: &[&str]) -> &Self {
        let known = |option: &str| needed.contains(&option) || allowed.contains(&option);
        let unknown = self.options.iter().find(|(option, _)| !known(option));
        let missing = needed.iter().find(|option| !self.has(option));
        if let Some((option, _)) = unknown {
            self.unknown(&format!("`{option}`"));
        }
        if let Some(option) = missing {
            self.unknown(&format!("a line without `{option}`"));
        }
        self
    }

    fn unknown(&self, what: &str) -> ! {
        panic!("the fake does not know {what} in `{}`", self.typed)
    }

    fn has(&self, option: &str) -> bool {
        self.options.iter().any(|(found, _)| found == option)
    }

    fn all(&self, option: &str) -> Vec<String> {
        let found = self.options.iter().filter(|(found, _)| found == option);
        found.filter_map(|(_, value)| value.clone()).collect()
    }

    fn value(&self, option: &str) -> String {
        self.all(option)
            .pop()
            .unwrap_or_else(|| self.unknown(&format!("a line without `{option}`")))
    }

    fn extents(&self) -> u64 {
        let text = self.value("-l");
        text.parse().unwrap_or_else(|_| self.unknown(&format!("`-l {text}`")))
    }

    /// The group and, behind a slash, the volume that the first name names.
    fn target(&self) -> (&str, Option<&str>) {
        let name = self.names.first().unwrap_or_else(|| self.unknown("a line without names"));
        match name.split_once('/') {
            Some((group, lv)) => (group, Some(lv)),
            None => (name, None),
        }
    }

    /// The first name, which must be `GROUP/VOLUME`.
    fn volume(&self) -> (&str, &str) {
        let (group, lv) = self.target();
        (group, lv.unwrap_or_else(|| self.unknown("a line without a volume")))
    }

    /// The names behind the first as places: `DISK` or `DISK:FROM-TO[:FROM-TO…]`, both ends included.
    fn pieces(&self, group: &Group) -> Result<Vec<ExtentRun>, Refusal> {
        let mut pieces = Vec::new();
        for place in &self.names[1..] {
            let mut parts = place.split(':');
            let disk = PathBuf::from(parts.next().unwrap_or_default());
            let carried = |pv: &pliant_lvm::lvm::PhysicalVolume| pv.device.as_ref() == Some(&disk);
            let found = group.pvs.iter().find(|(_, pv)| carried(pv));
            let (name, pv) = found.ok_or_else(|| no(format!("no physical volume {place}")))?;
            let mut ranges: Vec<_> = parts.map(|part| self.range(part)).collect();
            if ranges.is_empty() {
                ranges.push(0..pv.pe_count);
            }
            pieces.extend(ranges.into_iter().map(|range| ExtentRun { pv: name.clone(), range }));
        }
        Ok(pieces)
    }

    fn range(&self, part: &str) -> std::ops::Range<u64> {
        let ends = part.split_once('-');
        let ends =
            ends.and_then(|(from, to)| Some(from.parse().ok()?..to.parse::<u64>().ok()? + 1));
        ends.unwrap_or_else(|| self.unknown(&format!("`{part}`")))
    }
}

/// Panic on what the shell would take apart otherwise than meant, or not answer at all.
pub(super) fn check_for_shell(lane: &str, cmd: &Cmd) {
    let parsed = Line::parse(cmd);
    let (group, typed) = (parsed.target().0, &parsed.typed);
    let of_a_group = parsed.command != "pvcreate";
    assert!(!of_a_group || lane == group, "`{typed}` runs in the lane of another group");
    assert!(cmd.args.len() < 63, "`{typed}` has too many arguments for the shell");
    for arg in &cmd.args {
        let arg = arg.to_string_lossy();
        let plain = !arg.is_empty() && !arg.starts_with(['#', '"', '\'']);
        let whole = plain && !arg.contains(char::is_whitespace);
        assert!(whole, "`{typed}`: the shell takes `{arg}` apart");
    }
}

impl World {
    fn plan(&mut self, group: &str, line: &Line) -> Plan {
        match line.command.as_str() {
            "pvcreate" => self.pvcreate(group, line),
            "lvcreate" if line.has("-s") => self.snapshot(line),
            "lvcreate" if line.has("--type") => self.create_thin_pool(line),
            "lvcreate" if line.has("--thinpool") => self.create_thin(line),
            "lvcreate" => self.lvcreate(line),
            "lvextend" => self.lvextend(line),
            "lvreduce" => self.lvreduce(line),
            "lvchange" => self.lvchange(line),
            "lvremove" => self.lvremove(line),
            "lvconvert" => self.merge(line),
            "vgcreate" => self.vgcreate(line),
            "vgextend" => self.vgextend(line),
            "vgchange" => self.vgchange(line),
            "vgck" => self.vgck(line),
            command => line.unknown(&format!("`{command}`")),
        }
    }

    /// The group as LVM sees it, if all its disks are there and may be written.
    fn changeable(&self, name: &str) -> Result<Group, Refusal> {
        let group = self.writable(name)?;
        if group.missing().next().is_some() {
            return Err(no(format!("Cannot change VG {name} while PVs are missing.")));
        }
        Ok(group)
    }

    /// The group as LVM sees it, if those of its disks that are there may be written.
    fn writable(&self, name: &str) -> Result<Group, Refusal> {
        let group = self.groups(Some(&self.pinned(name))).remove(name);
        let group = group.ok_or_else(|| no(format!("Volume group \"{name}\" not found")))?;
        let mut disks = group.pvs.values().filter_map(|pv| pv.device.as_ref());
        if disks.any(|disk| self.disks[disk].read_only) {
            return Err(no(format!("Error writing to a device of {name}: read-only.")));
        }
        Ok(group)
    }

    /// The disks that the commands of a lane see.
    fn pinned(&self, lane: &str) -> BTreeSet<PathBuf> {
        self.pinned.get(lane).cloned().unwrap_or_default()
    }

    fn hangs(&self, lane: &str) -> bool {
        let hangs = |disk: &PathBuf| {
            self.disks.get(disk).is_some_and(|disk| disk.fault == Some(Fault::Hangs))
        };
        self.pinned(lane).iter().any(hangs)
    }
}

impl FakeHost {
    /// Run a command line to its end; its code as LVM logs it, and its report.
    pub(super) async fn run_lvm(&self, group: &str, cmd: &Cmd) -> Result<(u8, String), HostError> {
        let line = Line::parse(cmd);
        self.lock().count("lvm_commands");
        self.turn().await;
        self.panic_if_asked(&line.typed);
        if self.lock().hangs(group) {
            return Err(timed_out(line.typed)); // LVM scans all its disks before anything else.
        }
        self.take_lock(group).await;
        self.take_time(&line.typed).await;
        let plan = match self.failure_of(&line.typed) {
            Ok(()) => self.lock().plan(group, &line),
            Err(error) => Err(no(error.to_string())),
        };
        let refusal = match plan {
            Ok(steps) => {
                for step in steps {
                    let what = format!("{}: {step}", line.typed);
                    self.effect(what, |world| step.apply(world)).await;
                    if self.lvm_dies() {
                        self.drop_lock(group);
                        return Err(HostError::Died { what: line.typed });
                    }
                }
                None
            }
            Err(refusal) => Some(refusal),
        };
        self.drop_lock(group);
        let (code, message) = refusal.map_or((1, None), |no| (no.0, Some(no.1)));
        Ok((code, report(&line.command, group, code, message)))
    }

    async fn take_lock(&self, group: &str) {
        loop {
            let mut unlocked = std::pin::pin!(self.unlocked.notified());
            unlocked.as_mut().enable();
            if self.lock().locks.insert(group.to_owned()) {
                return;
            }
            unlocked.await;
        }
    }

    /// Let the next one have the lock file of a group.
    pub(super) fn drop_lock(&self, group: &str) {
        self.lock().locks.remove(group);
        self.unlocked.notify_waiters();
    }
}

/// The command log as the shell writes it.
fn report(command: &str, group: &str, code: u8, error: Option<String>) -> String {
    let verdict = if code == 1 { "success" } else { "failure" };
    let mut rows: Vec<Value> = Vec::new();
    let mut row = |kind: &str, context: &str, object: (&str, &str), message: &str, code: u8| {
        rows.push(json!({
            "log_seq_num": (rows.len() + 1).to_string(), "log_type": kind, "log_context": context,
            "log_object_type": object.0, "log_object_name": object.1, "log_object_id": "",
            "log_object_group": "", "log_object_group_id": "", "log_message": message,
            "log_errno": if kind == "error" { "-1" } else { "0" }, "log_ret_code": code.to_string(),
        }));
    };
    if let Some(message) = error {
        row("error", "processing", ("vg", group), &message, 0);
    }
    row("status", "processing", ("vg", group), verdict, code);
    row("status", "shell", ("cmd", command), verdict, code);
    json!({ "log": rows }).to_string()
}
