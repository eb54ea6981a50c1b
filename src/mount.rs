//! The mount table and what is done to it.
