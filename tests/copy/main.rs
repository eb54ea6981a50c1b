//! The commands of a copy, as a pod runs them; what they do is tested in `crates/copy`.

// Of what these make, the commands need a part.
#[path = "../tally/dice.rs"]
mod dice;
#[path = "../../crates/copy/tests/copy/sender.rs"]
mod sender;
#[path = "../../crates/copy/tests/copy/servers.rs"]
#[allow(dead_code)]
mod servers;
#[path = "../../crates/copy/tests/copy/tarballs.rs"]
#[allow(dead_code)]
mod tarballs;
#[path = "../../crates/copy/tests/copy/world.rs"]
#[allow(dead_code)]
mod world;

/// Both trees are on this machine.
const IS_FAR: bool = false;

mod commands;
