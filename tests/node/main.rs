//! This machine's part of the driver on a machine in memory: what it does, and what it leaves when
//! it is cut off anywhere.

#![allow(
    clippy::cast_precision_loss,
    clippy::cloned_ref_to_slice_refs,
    clippy::format_collect,
    clippy::format_push_string,
    clippy::many_single_char_names,
    clippy::needless_pass_by_value,
    clippy::similar_names
)] // Matters of taste that make tests longer, not clearer.

mod calls;
mod conditions;
mod copies_model;
mod crash_points;
mod cuts;
#[path = "../tally/dice.rs"]
mod dice;
mod dry_runs;
#[path = "../tally/exhaustive.rs"]
mod exhaustive;
mod faults;
mod fences;
mod formats;
mod guards;
mod health;
mod hostile;
mod inspections;
mod looks;
mod machine;
mod model;
mod new_volumes;
mod pairs;
mod plans;
mod pools;
mod power_cuts;
mod programs;
mod rates;
mod refusals;
mod scenarios;
mod sends;
mod shrinks;
mod standby;
mod storm;
#[path = "../tally/mod.rs"]
mod tally;
mod thin;
mod trims;
mod truth;
mod uses;
mod wipes;
mod words;

use cuts::block_on;
