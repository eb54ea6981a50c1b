//! Sets up a pool by its plan, or returns the actions that would set it up.

use std::path::PathBuf;
use std::sync::Arc;

use crate::lvm::{VolumeGroup, tags};
use crate::node::disks::{Located, NewDisk, SetupError};
use crate::node::pool_plan::{GroupSource, PoolPlan};
use crate::node::pools::{PlannedDisk, Pool, served};
use crate::node::storage::DiskUse;
use crate::node::survey::{Survey, group_name};
use crate::node::{Node, lv_tags};
use crate::panics::caught_now;
use crate::volume::error_chain;

/// What was found out about a disk.
enum DiskVerdict {
    /// It is in this group.
    In(Arc<VolumeGroup>),
    /// It is free, or becomes so when this is wiped.
    Free(Option<String>),
}

/// Set up a pool: find its groups, and make those that are missing where the plan allows it.
pub(super) async fn set_up(node: &Node, plan: &PoolPlan, survey: &Survey) -> Pool {
    let mut pool = Pool::new(plan.name.clone());
    (pool.configured, pool.terms) = (true, plan.terms);
    for source in &plan.groups {
        match source {
            GroupSource::Existing(name) => match adopt_alone(node, name, plan, survey) {
                Ok(group) => pool.add(group),
                Err(error) => note_trouble(node, &mut pool, &error),
            },
            GroupSource::Create(disk) => {
                set_up_on(node, disk, source, plan, survey, &mut pool).await;
            }
        }
    }
    for standby in &plan.standby_disks {
        look_at_standby_disk(node, standby, plan, survey, &mut pool).await;
    }
    pool
}

async fn set_up_on(
    node: &Node,
    disk: &NewDisk,
    source: &GroupSource,
    plan: &PoolPlan,
    survey: &Survey,
    pool: &mut Pool,
) {
    let verdict = match survey.group_of(node, plan, source) {
        Some(name) => adopt_alone(node, &name, plan, survey).map(DiskVerdict::In),
        None => disk.alone(make_group(node, disk, plan, survey, pool)).await,
    };
    pool.note_disk(disk, &verdict, survey);
    match verdict {
        Ok(DiskVerdict::In(group)) => pool.add(group),
        Ok(DiskVerdict::Free(_)) => {}
        Err(error) => note_trouble(node, pool, &error),
    }
}

/// Notes why a group is not there. It may hide volumes, unless another pool or node has it.
fn note_trouble(node: &Node, pool: &mut Pool, error: &SetupError) {
    let words = error_chain::in_full(error);
    let told = node.pools().iter().any(|p| p.name == pool.name && p.refused.contains(&words));
    if !told {
        tracing::error!(pool = %pool.name, error = words, "failed to add a volume group to the \
                                                               pool");
    }
    let elsewhere = matches!(
        error,
        SetupError::Taken { .. } | SetupError::GroupTaken { .. } | SetupError::OfAnotherNode { .. }
    );
    if !elsewhere {
        pool.trouble.push(words.clone());
    }
    pool.refused.push(words);
}

/// As [`Node::adopt`]; a panic of it is the refusal of the group.
fn adopt_alone(
    node: &Node,
    name: &str,
    plan: &PoolPlan,
    survey: &Survey,
) -> Result<Arc<VolumeGroup>, SetupError> {
    caught_now("groups", || adopt(node, name, plan, survey)).unwrap_or_else(|panicked| {
        Err(SetupError::Fault { what: format!("volume group {name}"), panicked })
    })
}

/// Takes the group as it is: the one that this node has already, or one on the host's disks.
fn adopt(
    node: &Node,
    name: &str,
    plan: &PoolPlan,
    survey: &Survey,
) -> Result<Arc<VolumeGroup>, SetupError> {
    if let Some(pool) = survey.owner(name).filter(|owner| **owner != plan.name) {
        return Err(SetupError::GroupTaken { group: name.to_owned(), pool: pool.clone() });
    }
    if let Some((_, group)) = served(&node.pools()).find(|(_, group)| group.name() == name) {
        group.let_read(&survey.scan.named);
        if survey.has_all(&group.numbers_when_read()) {
            group.look_for_strangers(&survey.scan);
        } else {
            group.accept_places(&survey.scan); // What is wrong is reported with the next reading.
        }
        refuse_if_of_another_node(node, group)?; // Until then it is served, and takes nothing new.
        return Ok(group.clone());
    }
    let group = VolumeGroup::new(node.host.clone(), name);
    if let Err(error) = group.accept(&survey.scan) {
        let error = error_chain::in_full(&error);
        tracing::error!(pool = %plan.name, error, "volume group unavailable");
    }
    group.let_read(&survey.scan.named);
    refuse_if_of_another_node(node, &group)?;
    Ok(group)
}

/// # Errors
/// [`SetupError::OfAnotherNode`]: each would take what the other is doing for what a crash left.
fn refuse_if_of_another_node(node: &Node, group: &VolumeGroup) -> Result<(), SetupError> {
    let other = group.remembered().and_then(|seen| lv_tags::other_node(&seen, &node.settings));
    other.map_or(Ok(()), |other| {
        Err(SetupError::OfAnotherNode {
            group: group.name().to_owned(),
            node: other,
            here: node.settings.name.clone(),
        })
    })
}

/// Creates a group on a free disk, if the plan allows it.
async fn make_group(
    node: &Node,
    disk: &NewDisk,
    plan: &PoolPlan,
    survey: &Survey,
    pool: &mut Pool,
) -> Result<DiskVerdict, SetupError> {
    let located = disk.locate(node.host.as_ref(), &survey.scan).await?;
    located.must_be_of_use(survey.disk(&located.device))?;
    let found = may_take(node, &located, survey).await?;
    let name = group_name(&node.settings, &plan.name, &disk.path);
    if !plan.create {
        pool.plan.push(step(&name, &located, found.as_deref(), survey));
        return Ok(DiskVerdict::Free(found));
    }
    if let Some(found) = found {
        located.wipe(node.host.as_ref(), &found).await?;
    }
    let device = &located.device;
    tracing::info!(pool = %plan.name, disk = %device.display(), group = name, "creating a volume group");
    let group = VolumeGroup::new(node.host.clone(), &name);
    group.let_read(&survey.scan.named);
    let tags =
        [tags::tag("pool", plan.name.as_str()), tags::tag(lv_tags::NODE, &node.settings.name)];
    group.turn().await?.create_group(device, &tags).await?;
    group.flush().await?;
    Ok(DiskVerdict::In(group))
}

/// What must be wiped before a disk can be taken; `None` if nothing.
async fn may_take(
    node: &Node,
    disk: &Located<'_>,
    survey: &Survey,
) -> Result<Option<String>, SetupError> {
    survey.refuse_if_named_twice(disk)?;
    let holder = |group: &str| survey.owner(group).cloned().or_else(|| node.holder(group));
    disk.refuse_if_taken(&survey.scan, holder)?;
    disk.to_wipe(node.host.as_ref(), &survey.scan).await
}

async fn look_at_standby_disk(
    node: &Node,
    standby: &NewDisk,
    plan: &PoolPlan,
    survey: &Survey,
    pool: &mut Pool,
) {
    let verdict = standby.alone(judge_standby_disk(node, standby, survey, pool)).await;
    pool.note_disk(standby, &verdict, survey);
    match &verdict {
        Ok(DiskVerdict::Free(found)) if !plan.create => {
            pool.plan.push(wait(standby, found.as_deref(), survey));
        }
        Ok(DiskVerdict::In(_) | DiskVerdict::Free(_)) => {}
        Err(error) => pool.refused.push(error_chain::in_full(error)),
    }
    // One that is refused for what is on it may be free when it is needed.
    let contested = matches!(verdict, Err(SetupError::NamedTwice { .. }));
    if plan.create && !contested {
        pool.standby_disks.push(standby.clone());
    }
}

async fn judge_standby_disk(
    node: &Node,
    standby: &NewDisk,
    survey: &Survey,
    pool: &Pool,
) -> Result<DiskVerdict, SetupError> {
    let located = standby.locate(node.host.as_ref(), &survey.scan).await?;
    if let Some(group) = pool.group_on(&survey.scan, &located.device) {
        return Ok(DiskVerdict::In(group.clone()));
    }
    let found = may_take(node, &located, survey).await?;
    match node.refused_disks.why(&located.device) {
        Some(why) => Err(SetupError::NotTaken { disk: standby.path.clone(), why }),
        None => Ok(DiskVerdict::Free(found)),
    }
}

impl Pool {
    fn add(&mut self, group: Arc<VolumeGroup>) {
        if !self.has(group.name()) {
            self.groups.push(group);
        }
    }

    fn note_disk(
        &mut self,
        disk: &NewDisk,
        verdict: &Result<DiskVerdict, SetupError>,
        survey: &Survey,
    ) {
        let device = survey.device(disk);
        let (state, message) = match verdict {
            _ if device.is_none() => {
                let why = verdict.as_ref().err().map(|error| error_chain::in_full(error));
                let away = || format!("{} is missing; see the kernel log", disk.path.display());
                (DiskUse::Missing, Some(why.unwrap_or_else(away)))
            }
            Ok(DiskVerdict::In(_)) => (DiskUse::Used, None),
            Ok(DiskVerdict::Free(found)) => {
                let goes = |found: &String| {
                    format!(
                        "it carries {found}, which is wiped when the disk is \
                                              used"
                    )
                };
                (DiskUse::Standby, found.as_ref().map(goes))
            }
            Err(error) => (DiskUse::Refused, Some(error_chain::in_full(error))),
        };
        self.disks.push(PlannedDisk {
            path: disk.path.clone(),
            device: device.map(PathBuf::from),
            disk: device.and_then(|device| survey.disk(device)).cloned(),
            group: match verdict {
                Ok(DiskVerdict::In(group)) => Some(group.name().to_owned()),
                Ok(DiskVerdict::Free(_)) | Err(_) => None,
            },
            state,
            message,
        });
    }
}

/// What would be done with a disk that a group is to be made on.
fn step(group: &str, disk: &Located<'_>, found: Option<&str>, survey: &Survey) -> String {
    let (name, size) = (disk.disk.path.display(), said_size(disk.disk, survey));
    match found {
        None => format!("create volume group {group} on {name} (blank{size})"),
        Some(found) => {
            format!("wipe {name}, which carries {found}, then create volume group {group} on it")
        }
    }
}

/// What would be done with a standby disk.
fn wait(disk: &NewDisk, found: Option<&str>, survey: &Survey) -> String {
    let (name, size) = (disk.path.display(), said_size(disk, survey));
    match found {
        None => format!("{name} joins a volume group when one needs space (blank{size})"),
        Some(found) => {
            format!(
                "{name} joins a volume group when one needs space, and is wiped then: it \
                     carries {found}"
            )
        }
    }
}

fn said_size(disk: &NewDisk, survey: &Survey) -> String {
    let disk = survey.device(disk).and_then(|device| survey.disk(device));
    disk.map_or_else(String::new, |disk| format!(", {}", disk.size))
}
