//! Copies of trees and devices on any machine: hostile trees, writers, and cuts at every point.
//!
//! Owners, devices and attributes of the system need root; without it these tests say so and pass.

#[path = "../../../../tests/tally/dice.rs"]
mod dice;

/// Both trees are on this machine.
const IS_FAR: bool = false;

mod archives;
mod cuts;
mod devices;
mod differences;
mod fetches;
mod hostile;
mod index;
mod rounds;
mod sender;
mod servers;
mod tarballs;
mod trees;
mod world;
