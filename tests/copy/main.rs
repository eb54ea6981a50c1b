//! The commands of a copy, as a pod runs them; what they do is tested in `crates/copy`.

#[path = "../tally/dice.rs"]
mod dice;
#[path = "../../crates/copy/tests/copy/sender.rs"]
mod sender;
#[path = "../../crates/copy/tests/copy/servers.rs"]
#[allow(dead_code)] // The commands need no route.
mod servers;
#[path = "../../crates/copy/tests/copy/tarballs.rs"]
#[allow(dead_code)] // They unpack one whole archive.
mod tarballs;
#[path = "../../crates/copy/tests/copy/world.rs"]
#[allow(dead_code)] // They need few trees.
mod world;

/// Both trees are on this machine.
const IS_FAR: bool = false;

mod commands;
