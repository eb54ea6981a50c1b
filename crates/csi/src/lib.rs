//! The protocol: the Container Storage Interface over a Unix socket.
//!
//! A handler is parse, do, reply. [`parse`] turns a request into valid types of [`pliant_volume`],
//! the modules below do the work, `reply` turns the outcome into a message, and only [`status`]
//! chooses codes.

pub mod controller;
mod error;
pub mod identity;
mod kubelet;
pub mod node;
#[cfg(feature = "otlp")]
mod parent;
pub mod parse;
pub mod registration;
mod reply;
mod rpc;
pub mod server;
mod socket;
pub mod status;

pub use controller::Controller;
pub use error::ServeError;
pub use identity::Identity;
pub use kubelet::KubeletDir;
pub use node::Node;
pub use rpc::RpcObserver;
pub use server::{Services, serve};

// Under the names that the modules here call them by.
use pliant_volume as volume;
use pliant_volume::{bytes, in_flight, panics};

/// The messages and services of `proto/csi.proto`.
///
/// A message with secrets has no `Debug`, so that no line of code can print it:
///
/// ```compile_fail
/// println!("{:?}", pliant_csi::pb::NodeStageVolumeRequest::default());
/// ```
///
/// ```
/// println!("{:?}", pliant_csi::pb::NodeUnstageVolumeRequest::default());
/// ```
#[allow(missing_docs, clippy::all, clippy::pedantic)] // Made by build.rs.
pub mod pb {
    tonic::include_proto!("csi.v1");
}
