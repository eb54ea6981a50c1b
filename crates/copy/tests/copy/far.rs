//! The same copies as in `main.rs`, with a source that is sent over a connection, and what can go wrong with
//! that one.
//!
//! Owners, devices and attributes of the system need root; without it these tests say so and pass.

#[path = "../../../../tests/tally/dice.rs"]
mod dice;

/// The source is sent.
const IS_FAR: bool = true;

mod blocks;
mod cuts;
mod devices;
mod differences;
mod hostile;
mod rounds;
mod sender;
mod trees;
mod wire;
mod world;
