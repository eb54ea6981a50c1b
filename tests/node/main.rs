//! This machine's part of the driver on a machine in memory: what it does, and what it leaves when
//! it is cut off anywhere.

mod crash_points;
mod cuts;
mod machine;
mod power_cuts;
