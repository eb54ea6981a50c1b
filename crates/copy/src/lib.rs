//! Copies of volumes that cannot lie: both sides are read again and compared before a copy counts.
//!
//! [`copy`](mod@copy) carries trees and devices of this machine, [`remote`] those of another node, and [`archive`] unpacks
//! what an address serves. They run in pods of their own and know neither the driver nor Kubernetes.

pub mod archive; // unpacks an archive into a volume
pub mod certificates; // an authority and what it signs
pub mod copy; // bytes of one volume into another, compared
pub mod remote; // a volume of another node, sent to be copied

// Under the name that the modules here call it by.
use pliant_volume::bytes;
