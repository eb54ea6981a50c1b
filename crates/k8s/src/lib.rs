//! What Pliant keeps in Kubernetes, and how it reads and writes a cluster.
//!
//! [`api`] has its kinds, one file each. [`cluster::Cluster`] is the trait [`Volumes`](pliant_volume::Volumes) of a whole
//! cluster, through requests to its nodes; beside it is what all loops need to look at objects and to write them.

pub mod api; // the records in Kubernetes, one file a kind
pub mod cluster;
pub mod error_chain; // an error and its causes in one line // volumes of a whole cluster, through requests to its nodes

// Under the names that the modules here call them by.
use pliant_volume as volume;
use pliant_volume::{bytes, panics};
