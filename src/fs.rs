//! File systems: probe, make, check, grow. One table says which tool does what for which of them.
