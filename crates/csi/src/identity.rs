//! Answers who the driver is, from memory.

use tonic::{Request, Response, Status, async_trait};

use crate::{pb, reply};

/// The Identity service.
///
/// It looks at nothing: a slow disk must not make the kubelet restart the driver in a loop.
#[derive(Debug, Clone, Copy, Default)]
pub struct Identity;

#[async_trait]
impl pb::identity_server::Identity for Identity {
    /// Returns the name and version of the driver.
    async fn get_plugin_info(
        &self,
        _: Request<pb::GetPluginInfoRequest>,
    ) -> Result<Response<pb::GetPluginInfoResponse>, Status> {
        Ok(Response::new(reply::plugin_info()))
    }

    /// Returns the capabilities of the driver.
    async fn get_plugin_capabilities(
        &self,
        _: Request<pb::GetPluginCapabilitiesRequest>,
    ) -> Result<Response<pb::GetPluginCapabilitiesResponse>, Status> {
        Ok(Response::new(reply::plugin_capabilities()))
    }

    /// Returns that the driver is ready.
    async fn probe(
        &self,
        _: Request<pb::ProbeRequest>,
    ) -> Result<Response<pb::ProbeResponse>, Status> {
        Ok(Response::new(pb::ProbeResponse { ready: Some(true) }))
    }
}
