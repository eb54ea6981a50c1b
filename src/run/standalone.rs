//! `pliant standalone`: a whole driver on one host.

use std::sync::Arc;

use anyhow::{Result, bail};
use tokio_util::sync::CancellationToken;

use crate::config::{PoolSettings, Settings};
use crate::csi::parse::Defaults;
use crate::csi::{self, Controller, Identity, Services};
use crate::in_flight::InFlight;
use crate::node::{GroupSource, NewDisk, PoolPlan};
use crate::run::machine::{self, Observer, Started};
use crate::volume::PoolName;
use crate::volume::Terms;

/// Serves Identity, Controller and Node on one socket until SIGTERM or SIGINT.
///
/// # Errors
/// What is missing or in the way, and the commands to run. One missing volume group does not affect
/// the others. If all are missing, a name is wrong, or their disks come later and the service
/// manager starts this again.
pub async fn serve(settings: Settings) -> Result<()> {
    let stop = CancellationToken::new();
    let stopped = machine::stop_on_signals(stop.clone())?;
    let plans = settings.pools.iter().map(|(name, pool)| plan(name, pool)).collect();
    let alone = machine::be_alone(&settings).await?;
    let Started { alone: _alone, node, metrics, .. } =
        machine::start(alone, &settings, plans, false, &stop).await?;
    if let Some(reason) = node.lacks_every_group().await {
        bail!("nothing to serve: {reason}");
    }
    let (busy, leaving) = (InFlight::new(), node.clone());
    let defaults = Defaults { fs: settings.default_fstype, ..Defaults::default() };
    let services = Services {
        identity: Identity,
        controller: Some(Controller::new(node.clone(), busy.clone(), defaults)),
        node: Some(csi::Node::new(node, busy.clone())),
    };
    let socket = settings.endpoint.as_path();
    csi::serve(socket, services, Arc::new(Observer(metrics)), stopped).await?;
    stop.cancel();
    leaving.leave();
    machine::drain(busy.idle()).await;
    Ok(())
}

fn plan(name: &PoolName, pool: &PoolSettings) -> PoolPlan {
    let existing = pool.groups.iter().map(|group| GroupSource::Existing(group.as_str().to_owned()));
    let created = pool.disks.iter().map(|disk| GroupSource::Create(new_disk(disk)));
    PoolPlan {
        standby_disks: pool.standby_disks.iter().map(new_disk).collect(),
        terms: Terms { thin: pool.thin, ..Terms::default() },
        ..PoolPlan::new(name.clone(), existing.chain(created).collect())
    }
}

fn new_disk(disk: &crate::config::NewDiskSetting) -> NewDisk {
    NewDisk { path: disk.path.as_path().to_owned(), wipe: disk.wipe }
}
