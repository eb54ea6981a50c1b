//! Registers the driver with the kubelet, in place of the node-driver-registrar sidecar.

use std::path::{Path, PathBuf};

use tokio_stream::wrappers::UnixListenerStream;
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status, async_trait};

use crate::volume::DRIVER;
use crate::{ServeError, socket};

/// The messages and the service of `proto/registration.proto`.
#[allow(missing_docs, clippy::all, clippy::pedantic)] // Made by build.rs.
pub mod pb {
    tonic::include_proto!("pluginregistration");
}

use pb::registration_server::{Registration, RegistrationServer};

/// The oldest version of CSI with all that the driver cannot do without; newer ones add to it.
const VERSION: &str = "1.0.0";

/// Answers the kubelet.
struct Registrar {
    endpoint: PathBuf,
    refused: CancellationToken,
}

/// Serves at `socket` until `stop`, for the driver at `endpoint`, a path on the node.
///
/// A kubelet that restarts finds the socket and connects again. The file's name has to contain an
/// `@`: the kubelet sends the path with its slashes written `%2F` as the authority of each call,
/// and HTTP/2 here allows such characters only before an `@`, as a user's name.
///
/// # Errors
/// [`ServeError`]; also if the kubelet rejects the driver, so that the next start tries again.
pub async fn register(
    socket: &Path,
    endpoint: &Path,
    stop: CancellationToken,
) -> Result<(), ServeError> {
    let (listener, file) = socket::listen(socket).await?;
    let refused = CancellationToken::new();
    let registrar = Registrar { endpoint: endpoint.to_owned(), refused: refused.clone() };
    let over = async {
        tokio::select! {
            () = stop.cancelled() => {}
            () = refused.cancelled() => {}
        }
        drop(file);
    };
    tonic::transport::Server::builder()
        .add_service(RegistrationServer::new(registrar))
        .serve_with_incoming_shutdown(UnixListenerStream::new(listener), over)
        .await
        .map_err(|source| ServeError::Server { socket: socket.to_owned(), source })?;
    if refused.is_cancelled() {
        return Err(ServeError::Refused { socket: socket.to_owned() });
    }
    Ok(())
}

#[async_trait]
impl Registration for Registrar {
    async fn get_info(
        &self,
        _: Request<pb::InfoRequest>,
    ) -> Result<Response<pb::PluginInfo>, Status> {
        Ok(Response::new(pb::PluginInfo {
            r#type: "CSIPlugin".to_owned(),
            name: DRIVER.to_owned(),
            endpoint: self.endpoint.display().to_string(),
            supported_versions: vec![VERSION.to_owned()],
        }))
    }

    async fn notify_registration_status(
        &self,
        request: Request<pb::RegistrationStatus>,
    ) -> Result<Response<pb::RegistrationStatusResponse>, Status> {
        let told = request.into_inner();
        if told.plugin_registered {
            tracing::info!("registered with the kubelet");
        } else {
            tracing::error!(error = told.error, "the kubelet rejected the driver");
            self.refused.cancel();
        }
        Ok(Response::new(pb::RegistrationStatusResponse {}))
    }
}
