//! The protocol: the Container Storage Interface over a Unix socket.
//!
//! A handler is parse, do, reply. [`parse`] turns a request into valid types of [`crate::volume`],
//! the modules below do the work, `reply` turns the outcome into a message, and only [`status`]
//! chooses codes.

pub mod controller;
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
pub use identity::Identity;
pub use kubelet::KubeletDir;
pub use node::Node;
pub use rpc::RpcObserver;
pub use server::{ServeError, Services, serve};

/// The messages and services of `proto/csi.proto`.
///
/// A message with secrets has no `Debug`, so that no line of code can print it:
///
/// ```compile_fail
/// println!("{:?}", pliant::csi::pb::NodeStageVolumeRequest::default());
/// ```
///
/// ```
/// println!("{:?}", pliant::csi::pb::NodeUnstageVolumeRequest::default());
/// ```
#[allow(missing_docs, clippy::all, clippy::pedantic)] // Made by build.rs.
pub mod pb {
    tonic::include_proto!("csi.v1");
}
