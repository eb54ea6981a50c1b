//! Why the protocol is not served.

use std::path::PathBuf;

/// Reason why the protocol is not served.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// Another process answers there.
    #[error("another driver already listens on {socket}; stop it, or use another --endpoint")]
    Taken {
        /// Path of the socket.
        socket: PathBuf,
    },
    /// The socket cannot be made.
    #[error("failed to listen on {socket}")]
    Socket {
        /// Path of the socket.
        socket: PathBuf,
        /// Cause.
        source: std::io::Error,
    },
    /// The kubelet does not take the driver.
    #[error("the kubelet rejected the driver that registered at {socket}; the log has the reason")]
    Refused {
        /// Path of the socket.
        socket: PathBuf,
    },
    /// The server ended on its own.
    #[error("the server on {socket} failed")]
    Server {
        /// Path of the socket.
        socket: PathBuf,
        /// Cause.
        source: tonic::transport::Error,
    },
}
