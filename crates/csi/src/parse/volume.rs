//! Requests of the Controller service.

use crate::parse::capability::{Capability, RequestedAccess};
use crate::parse::snapshot::source;
use crate::parse::{Defaults, ParseError, bounded, id, name, node_of, size};
use crate::pb;
use crate::volume::{Access, CapacityQuery, Class, Growth, MkfsOptions, Mode, NewVolume, VolumeId};

/// Parses the volume that `CreateVolume` asks for.
///
/// # Errors
/// [`ParseError`]. Mutable parameters are refused: not there yet.
///
/// # Source
/// CSI 1.13, `CreateVolume`.
pub fn new_volume(
    request: &pb::CreateVolumeRequest,
    or: &Defaults,
) -> Result<NewVolume, ParseError> {
    let name = name(&request.name)?;
    let workload = RequestedAccess::of_all(&request.volume_capabilities)?;
    let parameters = bounded("parameters", &request.parameters)?;
    let mut class = Class::parse(parameters, workload.fs(), or.fs)?;
    let source = source(request.volume_content_source.as_ref())?;
    if !request.mutable_parameters.is_empty() {
        let reason = "not supported: no parameter can be changed yet; remove the \
                      VolumeAttributesClass";
        return Err(ParseError::invalid("mutable_parameters", reason));
    }
    let mode = match workload {
        RequestedAccess::Block => Mode::Block,
        RequestedAccess::Mount(named) => Mode::Filesystem(class.file_system(named, or.fs)),
    };
    if mode == Mode::Block {
        class.mkfs_options = MkfsOptions::default(); // Nothing is formatted.
    }
    Ok(NewVolume {
        name,
        size: size::wanted(request.capacity_range, or.size)?,
        mode,
        class,
        nodes: nodes(request.accessibility_requirements.as_ref())?,
        source,
    })
}

/// The nodes of a requirement, the preferred ones first; none: any.
fn nodes(requirement: Option<&pb::TopologyRequirement>) -> Result<Vec<String>, ParseError> {
    let Some(requirement) = requirement else {
        return Ok(Vec::new());
    };
    let preferred = nodes_of("preferred", &requirement.preferred)?.unwrap_or_default();
    // One that says nothing allows any.
    let mut nodes = nodes_of("requisite", &requirement.requisite)?.unwrap_or_default();
    nodes.sort_by_key(|node| preferred.iter().position(|p| p == node).unwrap_or(usize::MAX));
    Ok(nodes)
}

/// The nodes that topologies name; `None` if one of them names none.
fn nodes_of(part: &str, named: &[pb::Topology]) -> Result<Option<Vec<String>>, ParseError> {
    let nodes = named
        .iter()
        .enumerate()
        .map(|(i, topology)| node_of(&format!("accessibility_requirements.{part}[{i}]"), topology));
    nodes.collect()
}

/// Parses the id of the volume that `DeleteVolume` names; `None` if no volume can have it, which is
/// the same as already gone.
pub fn removed(request: &pb::DeleteVolumeRequest) -> Result<Option<VolumeId>, ParseError> {
    match id(&request.volume_id) {
        Err(ParseError::Foreign { .. }) => Ok(None),
        parsed => parsed.map(Some),
    }
}

/// Parses the id of a volume that must be there.
pub fn held(volume_id: &str) -> Result<VolumeId, ParseError> {
    id(volume_id)
}

/// Arguments of `ControllerExpandVolume`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Enlargement {
    /// The volume.
    pub id: VolumeId,
    /// Requested size.
    pub growth: Growth,
}

impl Enlargement {
    /// Parses the request; a capacity range must be there, a capability may.
    pub fn parse(request: &pb::ControllerExpandVolumeRequest) -> Result<Self, ParseError> {
        Ok(Enlargement {
            id: id(&request.volume_id)?,
            growth: Growth {
                size: size::stated(request.capacity_range)?,
                block: is_block(request.volume_capability.as_ref())?,
            },
        })
    }
}

/// Returns whether the volume is raw block, if the caller sets it.
pub(super) fn is_block(given: Option<&pb::VolumeCapability>) -> Result<Option<bool>, ParseError> {
    let capability = given.map(|given| Capability::parse("volume_capability", given));
    Ok(capability.transpose()?.map(|c| c.access == Access::Block))
}

/// Parses what `GetCapacity` asks for; it may leave out everything.
pub fn capacity_query(
    request: &pb::GetCapacityRequest,
    or: &Defaults,
) -> Result<CapacityQuery, ParseError> {
    let parameters = bounded("parameters", &request.parameters)?;
    let topology = request.accessible_topology.as_ref();
    let node = topology.map(|topology| node_of("accessible_topology", topology));
    let node = node.transpose()?.flatten();
    if request.volume_capabilities.is_empty() {
        return Ok(CapacityQuery { node, ..CapacityQuery::of_class(parameters, or.fs)? });
    }
    let workload = RequestedAccess::of_all(&request.volume_capabilities)?;
    let class = Class::parse(parameters, workload.fs(), or.fs)?;
    let mode = match workload {
        RequestedAccess::Block => Mode::Block,
        RequestedAccess::Mount(named) => Mode::Filesystem(class.file_system(named, or.fs)),
    };
    Ok(CapacityQuery { class, mode: Some(mode), node })
}

/// Arguments of `ValidateVolumeCapabilities`.
///
/// Unsupported capabilities are a result here, not an error; so they are stored as parsed.
#[derive(Debug, Clone)]
pub struct Validation {
    /// The volume.
    pub id: VolumeId,
    /// The described access, or why it is not supported.
    pub asked: Result<RequestedAccess, ParseError>,
    /// The pools that its context and its parameters name.
    pub pools: Vec<String>,
    /// What is confirmed if the volume supports it.
    pub echo: pb::validate_volume_capabilities_response::Confirmed,
}

impl Validation {
    /// Parses the request; it must name a volume and a capability.
    pub fn parse(
        request: pb::ValidateVolumeCapabilitiesRequest,
        or: &Defaults,
    ) -> Result<Self, ParseError> {
        let id = id(&request.volume_id)?;
        if request.volume_capabilities.is_empty() {
            return Err(ParseError::missing("volume_capabilities"));
        }
        Ok(Validation {
            id,
            asked: Validation::judge(&request, or),
            pools: [&request.volume_context, &request.parameters]
                .into_iter()
                .filter_map(|map| map.get("pool").cloned())
                .collect(),
            echo: pb::validate_volume_capabilities_response::Confirmed {
                volume_context: request.volume_context,
                volume_capabilities: request.volume_capabilities,
                parameters: request.parameters,
                mutable_parameters: request.mutable_parameters,
            },
        })
    }

    fn judge(
        request: &pb::ValidateVolumeCapabilitiesRequest,
        or: &Defaults,
    ) -> Result<RequestedAccess, ParseError> {
        let workload = RequestedAccess::of_all(&request.volume_capabilities)?;
        let parameters = bounded("parameters", &request.parameters)?;
        Class::parse(parameters, workload.fs(), or.fs)?;
        if !request.mutable_parameters.is_empty() {
            let reason = "no parameter can be changed yet";
            return Err(ParseError::invalid("mutable_parameters", reason));
        }
        Ok(workload)
    }
}
