//! The loops.
