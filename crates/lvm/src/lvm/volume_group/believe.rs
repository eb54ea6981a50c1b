//! Selects the trusted description of a volume group if disks disagree.
//!
//! Anyone who can write to a disk can write a description of any volume group on it. So for a known
//! volume group its own disks decide, and not another disk. If nothing is known yet, no higher
//! sequence number wins over the disks that a description itself names.

use std::collections::BTreeSet;

use crate::lvm::group::Group;
use crate::lvm::scan::{Member, Scan};
use crate::volume::few;

/// The group as it was read last.
pub(super) struct PreviousGroup<'a> {
    pub seen: &'a Group,
    /// The disks that carried it.
    pub carriers: &'a [Member],
}

/// The trusted description of a volume group.
pub(super) struct Believed {
    /// Its newest description, with the devices set.
    pub group: Group,
    /// The disks that carry it.
    pub carriers: Vec<Member>,
    /// True if one of these has an older state.
    pub uneven: bool,
    /// Disks that also describe it and are not trusted, and the commands to run.
    pub strangers: Option<String>,
}

/// Reason why no description is trusted.
pub(super) enum Disbelief {
    /// No disk that may describe the volume group does.
    Absent,
    /// The disks contradict each other.
    Disputed(String),
}

/// Selects the description of the volume group of this name.
///
/// A known volume group consists of its known physical volumes; all other disks that describe it
/// are strangers. For an unknown one, a description counts if it is on a disk that it lists, and if
/// more of the disks that it lists carry it than another one. One on a trusted disk takes
/// precedence over one on any other.
pub(super) fn believe(
    name: &str,
    scan: &Scan,
    before: Option<&PreviousGroup<'_>>,
) -> Result<Believed, Disbelief> {
    let members = without_copies(scan, before);
    let told: Vec<DescribedGroup<'_>> = scan.of(name).filter_map(DescribedGroup::by).collect();
    let mut tellers: Vec<DescribedGroup<'_>> =
        told.iter().copied().filter(|told| told.lists_itself() && is_in(&members, told)).collect();
    if let Some(before) = before.filter(|before| !has_left(before, scan)) {
        let known = |told: &DescribedGroup<'_>| lists(before.seen, &told.member.label.pv_uuid);
        let trusted = |told: &DescribedGroup<'_>| scan.is_trusted(told.member);
        let (ours, others): (Vec<_>, Vec<_>) = tellers.iter().copied().partition(known);
        if let Some(one) = ours.first().filter(|_| !ours.iter().any(trusted))
            && let Some(other) =
                others.iter().find(|other| trusted(other) && !agree(other.group, one.group))
        {
            return Err(disputed(one, other)); // Memory of a file is worth less than a disk.
        }
        if ours.is_empty() && !told.is_empty() {
            return Err(Disbelief::Disputed(format!(
                "its disks cannot be read, and {}",
                strange(told.iter().map(|told| told.member))
            )));
        }
        tellers = ours;
    }
    let backed = |told: &DescribedGroup<'_>| told.is_backed(&members);
    let backed: Vec<DescribedGroup<'_>> = tellers.iter().copied().filter(backed).collect();
    let mut believed = backed.clone();
    if believed.iter().any(|told| scan.is_trusted(told.member)) {
        believed.retain(|told| scan.is_trusted(told.member));
    }
    let Some(first) = believed.iter().copied().rev().max_by_key(|told| told.group.seqno) else {
        return Err(match tellers[..] {
            [] => Disbelief::Absent,
            [one] => Disbelief::Disputed(format!(
                "{} describes it, but another disk that it names disagrees; see `pvs`",
                one.path()
            )),
            [one, other, ..] => disputed(&one, &other),
        });
    };
    if let Some(other) = believed.iter().find(|other| !agree(other.group, first.group)) {
        return Err(disputed(&first, other));
    }
    // A commit that was cut off may be on any of its disks.
    let of_it = backed.iter().copied().filter(|told| agree(told.group, first.group));
    let newest = of_it.max_by_key(|told| told.group.seqno).unwrap_or(first);
    let mut group = newest.group.clone();
    let ours = |told: &&DescribedGroup<'_>| agree(told.group, newest.group);
    group.metadata_full = told.iter().filter(ours).any(|told| told.group.metadata_full);
    let carriers = find_carriers(&mut group, &members)?;
    // One that has just joined may keep metadata and tell of no group yet.
    let old = |member: &Member| {
        let tells = member.mark.is_some();
        tells && member.group.as_ref().is_none_or(|own| own.seqno < group.seqno)
    };
    let is_strange = |told: &&DescribedGroup<'_>| {
        let is_its = carriers.iter().any(|carrier| carrier.disk.path == told.member.disk.path);
        !is_its && !told.is_outdated(&group)
    };
    let strangers: Vec<&Member> = told.iter().filter(is_strange).map(|told| told.member).collect();
    Ok(Believed {
        uneven: carriers.iter().any(old),
        strangers: (!strangers.is_empty()).then(|| strange(strangers)),
        carriers: carriers.into_iter().map(|member| Member { group: None, ..member }).collect(),
        group,
    })
}

/// A description of a group and the disk that it is on.
#[derive(Clone, Copy)]
struct DescribedGroup<'a> {
    member: &'a Member,
    group: &'a Group,
}

impl<'a> DescribedGroup<'a> {
    fn by(member: &'a Member) -> Option<DescribedGroup<'a>> {
        Some(DescribedGroup { member, group: member.group.as_ref()? })
    }

    fn path(&self) -> String {
        self.member.disk.path.display().to_string()
    }

    /// Returns whether the disk is one of those that its own description names.
    fn lists_itself(&self) -> bool {
        lists(self.group, &self.member.label.pv_uuid)
    }

    /// Returns whether more of the disks that it names carry it than carry another description.
    fn is_backed(&self, members: &[&Member]) -> bool {
        let named = members.iter().filter(|member| lists(self.group, &member.label.pv_uuid));
        let (with, against): (Vec<_>, Vec<_>) = named
            .filter_map(|member| member.group.as_ref())
            .partition(|group| agree(group, self.group));
        with.len() > against.len()
    }

    /// Returns whether it is what the group was before this disk was taken out of it.
    fn is_outdated(&self, group: &Group) -> bool {
        self.group.uuid == group.uuid && self.group.seqno < group.seqno && share(self.group, group)
    }
}

/// Returns whether two descriptions can be of one group: they name the same disks, so that one of them has
/// missed changes, or there is one commit between them.
fn agree(one: &Group, other: &Group) -> bool {
    let next = one.seqno.abs_diff(other.seqno) <= 1 && share(one, other);
    one.uuid == other.uuid && (next || disks(one) == disks(other))
}

fn disks(group: &Group) -> BTreeSet<&str> {
    group.pvs.values().map(|pv| pv.uuid.as_str()).collect()
}

fn share(one: &Group, other: &Group) -> bool {
    !disks(one).is_disjoint(&disks(other))
}

fn lists(group: &Group, pv_uuid: &str) -> bool {
    group.pvs.values().any(|pv| pv.uuid == pv_uuid)
}

fn is_in(members: &[&Member], told: &DescribedGroup<'_>) -> bool {
    members.iter().any(|member| member.disk.path == told.member.disk.path)
}

/// Returns whether all disks of the group are here and none is in a group any more: it was moved to others.
fn has_left(before: &PreviousGroup<'_>, scan: &Scan) -> bool {
    before.seen.pvs.values().all(|pv| {
        let mut carriers = scan.members.iter().filter(|member| member.label.pv_uuid == pv.uuid);
        carriers.next().is_some_and(Member::is_orphan) && carriers.next().is_none()
    })
}

/// The members; of those with one uuid only the disk that had it before, or else the only trusted one, if
/// there is such a disk.
fn without_copies<'a>(scan: &'a Scan, before: Option<&PreviousGroup<'_>>) -> Vec<&'a Member> {
    let is_known = |member: &Member| {
        let same = |carrier: &Member| {
            carrier.label.pv_uuid == member.label.pv_uuid
                && carrier.disk.path == member.disk.path
                && carrier.disk.number == member.disk.number
        };
        before.is_some_and(|before| before.carriers.iter().any(same))
    };
    let is_trusted = |member: &Member| scan.is_trusted(member);
    let only = |member: &Member, is: &dyn Fn(&Member) -> bool| {
        let copies = scan.members.iter().filter(|m| m.label.pv_uuid == member.label.pv_uuid);
        copies.filter(|copy| is(copy)).count() == 1
    };
    let stays = |member: &&Member| {
        if only(member, &is_known) {
            return is_known(member);
        }
        !only(member, &is_trusted) || is_trusted(member)
    };
    scan.members.iter().filter(stays).collect()
}

/// Fill in the devices of a group; says which disks carry it.
fn find_carriers(group: &mut Group, members: &[&Member]) -> Result<Vec<Member>, Disbelief> {
    let mut all = Vec::new();
    let whole = group.clone();
    let is_ours = |member: &&&Member| member.group.as_ref().is_none_or(|own| agree(own, &whole));
    for pv in group.pvs.values_mut() {
        let carriers: Vec<&Member> = members
            .iter()
            .filter(|m| m.label.pv_uuid == pv.uuid)
            .filter(is_ours)
            .copied()
            .collect();
        match carriers[..] {
            [] => {}
            [member] => {
                pv.device = Some(member.disk.path.clone());
                all.push(member.clone());
            }
            [one, two, ..] => {
                return Err(Disbelief::Disputed(format!(
                    "{} and {} carry the same physical volume {}; detach one, or give the copy new \
                     ids with `vgimportclone`",
                    one.disk.path.display(),
                    two.disk.path.display(),
                    pv.uuid
                )));
            }
        }
    }
    all.sort_by(|one, other| one.disk.path.cmp(&other.disk.path));
    Ok(all)
}

fn disputed(one: &DescribedGroup<'_>, other: &DescribedGroup<'_>) -> Disbelief {
    let (first, second) = (one.path(), other.path());
    Disbelief::Disputed(if one.group.uuid == other.group.uuid {
        format!(
            "{first} and {second} describe it differently, and neither names the disks of the \
             other; detach the one that does not belong to it"
        )
    } else {
        format!(
            "two volume groups have this name, one on {first} and one on {second}; rename one with \
             `vgrename UUID NEW`"
        )
    })
}

/// What is said of disks that describe a group and are not believed.
fn strange<'a>(members: impl IntoIterator<Item = &'a Member>) -> String {
    let paths: Vec<_> = members.into_iter().map(|member| member.disk.path.display()).collect();
    format!(
        "{} also describes it, but is not one of its disks and is not trusted; see `pvs`, and \
         detach or rename what should not be on this node",
        few(&paths)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bytes::Bytes;
    use crate::host::{DeviceNumber, Disk, DiskBacking};
    use crate::lvm::metadata::{self, Label};

    const TEXT: &[u8] = include_bytes!("../../../tests/fixtures/metadata/linear-and-snapshot.txt");

    /// A disk of the group, at this state of it.
    fn member(group: &Group, pv: &str, seqno: u8, source: DiskBacking) -> Member {
        let disk = Disk {
            path: format!("/dev/{pv}").into(),
            number: DeviceNumber { major: 8, minor: 0 },
            size: Bytes::gib(1),
            source,
            read_only: false,
            partitioned: false,
            logical_block: Bytes::new(512),
            optimal_io: Bytes::ZERO,
        };
        let pv_uuid = group.pvs[pv].uuid.clone();
        let label = Label { pv_uuid, device_size: disk.size, areas: Vec::new() };
        let group = Group { seqno: seqno.into(), ..group.clone() };
        Member { disk, label, mark: Some([seqno; 24]), group: Some(group), damage: None }
    }

    #[test]
    fn a_commit_that_one_disk_alone_has_counts_whichever_disk_that_is() {
        let group = metadata::parse_group(TEXT).unwrap();
        for (source, newer) in
            [(DiskBacking::Local, "pv0"), (DiskBacking::File, "pv0"), (DiskBacking::Local, "pv1")]
        {
            let states = ["pv0", "pv1"].map(|pv| (pv, if pv == newer { 9 } else { 8 }));
            let members = states.map(|(pv, seqno)| {
                member(&group, pv, seqno, if pv == "pv0" { source } else { DiskBacking::Local })
            });
            let scan = Scan { members: members.into(), ..Scan::default() };
            let believed = believe(&group.name, &scan, None).ok().unwrap();
            let seen = (believed.group.seqno, believed.uneven, believed.carriers.len());
            assert_eq!(seen, (9, true, 2), "{source:?} {newer}");
        }
    }
}
