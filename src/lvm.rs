//! Volume groups and logical volumes: read without LVM, changed only by LVM.

pub mod group;
pub mod metadata;

pub use group::{Group, Lv, Piece, Pv, Segment};
