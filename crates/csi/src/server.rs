//! Serves the protocol on a Unix socket until it is stopped.

use std::future::Future;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio_stream::wrappers::UnixListenerStream;

use crate::error::ServeError;
use crate::pb::controller_server::ControllerServer;
use crate::pb::identity_server::IdentityServer;
use crate::pb::node_server::NodeServer;
use crate::rpc::{RpcLayer, RpcObserver};
use crate::socket;
use crate::{Controller, Identity, Node};

/// No request of CSI comes near this; larger ones are refused before they are read.
const LARGEST_MESSAGE: usize = 4 << 20;

/// Services on one socket.
#[derive(Debug)]
pub struct Services {
    /// The Identity service: on every socket.
    pub identity: Identity,
    /// The Controller service, if this process is a controller.
    pub controller: Option<Controller>,
    /// Volumes as workloads see them, if this process runs on a node.
    pub node: Option<Node>,
}

/// How long the calls under way are waited for at the end. A connection whose other end is stuck never
/// closes, and nothing tells it from one that waits for its answer.
const LAST_CALLS: Duration = Duration::from_secs(25);

/// Serves at the socket until `shutdown` is done, then answer the calls that are under way and return,
/// after 25 seconds at the latest.
///
/// The socket file has mode 0600 and is removed as soon as the shutdown begins, so that the next
/// driver can take its place. Work whose caller has left is not waited for here.
///
/// # Errors
/// [`ServeError`] if the socket cannot be had, or if the server fails.
pub async fn serve(
    socket: &Path,
    services: Services,
    observer: Arc<dyn RpcObserver>,
    shutdown: impl Future<Output = ()>,
) -> Result<(), ServeError> {
    let (listener, file) = socket::listen(socket).await?;
    let limited =
        |controller| ControllerServer::new(controller).max_decoding_message_size(LARGEST_MESSAGE);
    let limited_node = |node| NodeServer::new(node).max_decoding_message_size(LARGEST_MESSAGE);
    let identity =
        IdentityServer::new(services.identity).max_decoding_message_size(LARGEST_MESSAGE);
    tracing::info!(socket = %socket.display(), "serving");
    let (begin, stopping) = oneshot::channel();
    let served = tonic::transport::Server::builder()
        .layer(RpcLayer::new(observer))
        .add_service(identity)
        .add_optional_service(services.controller.map(limited))
        .add_optional_service(services.node.map(limited_node))
        .serve_with_incoming_shutdown(UnixListenerStream::new(listener), async move {
            shutdown.await;
            drop(file);
            let _ = begin.send(());
        });
    let too_late = async {
        let _ = stopping.await;
        tokio::time::sleep(LAST_CALLS).await;
    };
    tokio::select! {
        served = served => {
            served.map_err(|source| ServeError::Server { socket: socket.to_owned(), source })
        }
        () = too_late => {
            tracing::warn!("abandoning a connection that does not close");
            Ok(())
        }
    }
}
