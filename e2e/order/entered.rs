//! Which functions of a program are ever entered: `entered SYMBOLS OUTPUT PROGRAM ARGUMENTS…`
//!
//! SYMBOLS has a line a function, its address in decimal and its name; OUTPUT gets the names of
//! those that were entered before the program ended. A breakpoint lies at the start of each, and is taken
//! away when it is hit, so that the program is slow only the first time that it does something. What it
//! starts itself is let go.

#![allow(unsafe_code)] // Between fork and exec.
#![allow(clippy::disallowed_methods)] // No part of the product.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

use nix::errno::Errno;
use nix::libc::c_long;
use nix::sys::ptrace::{self, Options};
use nix::sys::signal::Signal;
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

/// The instruction that stops a process.
const STOP: u8 = 0xcc;

/// The functions at an address.
struct Entry {
    names: Vec<String>,
    first_byte: u8,
    is_entered: bool,
}

fn main() -> io::Result<()> {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, symbols, output, program, rest @ ..] = arguments.as_slice() else {
        panic!("entered SYMBOLS OUTPUT PROGRAM ARGUMENTS…");
    };
    let mut entries = read(&fs::read_to_string(symbols)?);
    let mut command = Command::new(program);
    command.args(rest);
    // SAFETY: it is one system call.
    unsafe { command.pre_exec(|| ptrace::traceme().map_err(io::Error::from)) };
    let child = Pid::from_raw(command.spawn()?.id().cast_signed());
    waitpid(child, None)?;
    let base = base(child, program)?;
    for (address, entry) in &mut entries {
        entry.first_byte = exchange(child, base + address, STOP)?;
    }
    ptrace::setoptions(
        child,
        Options::PTRACE_O_TRACECLONE
            | Options::PTRACE_O_TRACEFORK
            | Options::PTRACE_O_TRACEVFORK
            | Options::PTRACE_O_TRACEEXEC
            | Options::PTRACE_O_EXITKILL,
    )?;
    ptrace::cont(child, None)?;
    follow(child, base, &mut entries)?;
    let entered = entries.values().filter(|entry| entry.is_entered);
    let names: Vec<&str> =
        entered.flat_map(|entry| entry.names.iter().map(String::as_str)).collect();
    fs::write(output, names.join("\n") + "\n")
}

fn read(symbols: &str) -> BTreeMap<u64, Entry> {
    let mut entries: BTreeMap<u64, Entry> = BTreeMap::new();
    for line in symbols.lines() {
        let (address, name) = line.split_once(' ').expect("an address and a name");
        let address = address.parse().expect("an address");
        let new = || Entry { names: Vec::new(), first_byte: 0, is_entered: false };
        entries.entry(address).or_insert_with(new).names.push(name.to_owned());
    }
    entries
}

/// Where the program begins in its memory.
fn base(child: Pid, program: &str) -> io::Result<u64> {
    let maps = fs::read_to_string(format!("/proc/{child}/maps"))?;
    let first =
        maps.lines().find(|line| line.ends_with(program)).expect("the program, by its whole path");
    let (begin, _) = first.split_once('-').expect("a range");
    Ok(u64::from_str_radix(begin, 16).expect("an address"))
}

/// Write a byte; which one was there before.
fn exchange(process: Pid, address: u64, byte: u8) -> Result<u8, Errno> {
    let at = address as ptrace::AddressType;
    let mut word = ptrace::read(process, at)?.to_le_bytes();
    let before = std::mem::replace(&mut word[0], byte);
    ptrace::write(process, at, c_long::from_le_bytes(word))?;
    Ok(before)
}

/// Let the program run to its end, and note what it enters.
fn follow(child: Pid, base: u64, entries: &mut BTreeMap<u64, Entry>) -> Result<(), Errno> {
    loop {
        match waitpid(None, Some(WaitPidFlag::__WALL))? {
            WaitStatus::Exited(who, _) | WaitStatus::Signaled(who, _, _) if who == child => {
                return Ok(());
            }
            WaitStatus::PtraceEvent(who, _, event) if event == nix::libc::PTRACE_EVENT_EXEC => {
                ptrace::detach(who, None)?;
            }
            WaitStatus::Stopped(who, Signal::SIGTRAP) => enter(who, base, entries)?,
            // Each new thread begins with this signal.
            WaitStatus::PtraceEvent(who, _, _) | WaitStatus::Stopped(who, Signal::SIGSTOP) => {
                ptrace::cont(who, None)?;
            }
            WaitStatus::Stopped(who, signal) => ptrace::cont(who, signal)?,
            _ => {}
        }
    }
}

/// A thread stands behind a breakpoint: note it, take it away, and have the thread go on from there.
fn enter(thread: Pid, base: u64, entries: &mut BTreeMap<u64, Entry>) -> Result<(), Errno> {
    let mut registers = ptrace::getregs(thread)?;
    let address = registers.rip - 1;
    let Some(entry) = entries.get_mut(&(address - base)) else {
        return ptrace::cont(thread, Signal::SIGTRAP);
    };
    // Another thread may have come first; and who forks has a copy with the breakpoint still there.
    if exchange(thread, address, entry.first_byte)? == STOP {
        entry.is_entered = true;
    }
    registers.rip = address;
    ptrace::setregs(thread, registers)?;
    ptrace::cont(thread, None)
}
