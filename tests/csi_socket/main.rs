//! The protocol over a real socket, with volumes that exist only in memory.

mod answers;
mod calls;
mod driver;
mod hostile;
mod kubelet;
mod log;
mod refusals;
mod secrets;
mod snapshots;
mod unreachable;
