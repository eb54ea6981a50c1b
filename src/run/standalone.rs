//! `pliant standalone`: a whole driver on one machine.

use std::sync::Arc;

use anyhow::{Result, bail};
use tokio_util::sync::CancellationToken;

use crate::busy::Busy;
use crate::bytes::Bytes;
use crate::config::{PoolSettings, Settings};
use crate::csi::parse::Defaults;
use crate::csi::{self, Controller, Identity, Services};
use crate::host::DmDevice;
use crate::node::storage::GroupStatus;
use crate::node::{GroupSource, NewDisk, PoolPlan};
use crate::run::machine::{self, Observer, Started};
use crate::volume::PoolName;

/// Serve Identity, Controller and Node on one socket until SIGTERM or SIGINT. Of pools that were typed the groups have to
/// be there; a service that reads a file may start before its disks.
pub async fn serve(settings: Settings, are_pools_typed: bool) -> Result<()> {
    let stop = CancellationToken::new();
    let stopped = machine::stop_on_signals(stop.clone())?;
    let plans = settings.pools.iter().map(|(name, pool)| plan(name, pool)).collect();
    let Started { alone: _alone, node, host, metrics } =
        machine::start(&settings, plans, false, &stop).await?;
    if are_pools_typed
        && let Some(missing) = missing(&node.storage().groups, &host.dm_list().await?)
    {
        bail!("{missing}");
    }
    let busy = Busy::new();
    let defaults = Defaults { fs: settings.default_fs, ..Defaults::default() };
    let services = Services {
        identity: Identity,
        controller: Some(Controller::new(node.clone(), busy.clone(), defaults)),
        node: Some(csi::Node::new(node, busy.clone())),
    };
    let socket = settings.endpoint.as_path();
    csi::serve(socket, services, Arc::new(Observer(metrics)), stopped).await?;
    stop.cancel();
    machine::drain(busy.idle()).await;
    Ok(())
}

/// Why a group cannot be served that was never seen; `None` for one of which an earlier run has left devices, which are
/// unmounted without it.
fn missing<'a>(groups: &'a [GroupStatus], devices: &[DmDevice]) -> Option<&'a str> {
    let is_in_use = |group: &GroupStatus| {
        let begin = format!("{}-", group.name.replace('-', "--"));
        devices.iter().any(|device| {
            let rest = device.name.strip_prefix(&begin);
            rest.is_some_and(|rest| !rest.starts_with('-'))
        })
    };
    let never_seen = groups.iter().filter(|group| group.size == Bytes::ZERO);
    never_seen.filter(|group| !is_in_use(group)).find_map(|group| group.message.as_deref())
}

fn plan(name: &PoolName, pool: &PoolSettings) -> PoolPlan {
    let existing = pool.groups.iter().map(|group| GroupSource::Existing(group.as_str().to_owned()));
    let created = pool.create.iter().map(|disk| GroupSource::Create(new_disk(disk)));
    PoolPlan {
        spares: pool.spares.iter().map(new_disk).collect(),
        ..PoolPlan::new(name.clone(), existing.chain(created).collect())
    }
}

fn new_disk(disk: &crate::config::NewDisk) -> NewDisk {
    NewDisk { path: disk.path.as_path().to_owned(), wipe: disk.wipe }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::DeviceNumber;
    use crate::node::storage::Health;

    fn group(name: &str, size: Bytes) -> GroupStatus {
        GroupStatus {
            name: name.to_owned(),
            pool: "fast".parse().unwrap(),
            size,
            free: Bytes::ZERO,
            health: Health::Unavailable,
            message: Some(format!("no disk carries {name}")),
        }
    }

    fn device(name: &str) -> DmDevice {
        let number = DeviceNumber { major: 254, minor: 0 };
        DmDevice { name: name.to_owned(), uuid: "LVM-x".to_owned(), number }
    }

    #[test]
    fn a_group_that_was_never_seen_is_missing_unless_a_device_of_it_is_left() {
        let why = Some("no disk carries a-b");
        let groups = [group("seen", Bytes::gib(1)), group("a-b", Bytes::ZERO)];
        assert_eq!(missing(&groups, &[]), why);
        assert_eq!(missing(&groups[..1], &[]), None);
        assert_eq!(missing(&groups, &[device("a--b-pliant--x")]), None);
        for other in ["a-b", "a--b--c-x", "other-x"] {
            assert_eq!(missing(&groups, &[device(other)]), why, "{other}");
        }
    }
}
