//! Chooses which usage of volumes is published: when the change matters.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::api::{UsageBefore, UsageStatus, VolumeUsage};
use crate::cluster;
use crate::volume::{FsUsage, VolumeId};

/// Shares of a file system, in percent, at which someone may want to act.
const MARKS: [u64; 5] = [70, 80, 85, 90, 95];

/// How far below a mark a volume has to come, in percent, to be told as below it.
const BACK: u64 = 2;

/// How much of the bytes or of the inodes has to come or go, in percent, to be told without a mark.
/// An autoscaler relies on it that no more than this is unknown to it.
const MOVED: u64 = 10;

/// Computes the next list to publish, in the order of the ids. For each volume that responded it
/// has the published value, or the value sampled `at` this time if the difference matters.
pub(super) fn next(
    told: &[VolumeUsage],
    seen: &BTreeMap<VolumeId, FsUsage>,
    at: &Time,
) -> Vec<VolumeUsage> {
    let each = seen.iter().map(|(id, usage)| {
        let (volume, usage) = (id.to_string(), cluster::usage_status(usage));
        let before = told.iter().find(|one| one.volume_handle == volume);
        match before.filter(|before| !matters(&before.usage, &usage)) {
            Some(same) => same.clone(),
            None => VolumeUsage {
                volume_handle: volume,
                observed_time: at.clone(),
                usage,
                previous: before.map(earlier),
            },
        }
    });
    each.collect()
}

fn earlier(told: &VolumeUsage) -> UsageBefore {
    UsageBefore {
        observed_time: told.observed_time.clone(),
        used: told.usage.used,
        inodes_used: told.usage.inodes_used,
    }
}

fn matters(told: &UsageStatus, now: &UsageStatus) -> bool {
    told.capacity != now.capacity
        || has_moved(told, now)
        || crosses(bytes_full(told), bytes_full(now))
        || crosses(inodes_full(told), inodes_full(now))
}

fn has_moved(told: &UsageStatus, now: &UsageStatus) -> bool {
    let moved = |told: u64, now: u64, whole: u64| {
        let moved = told.abs_diff(now);
        u128::from(moved) * 100 >= u128::from(whole) * u128::from(MOVED) && moved > 0
    };
    moved(told.used.0.get(), now.used.0.get(), now.capacity.0.get())
        || moved(count(told.inodes_used), count(now.inodes_used), count(now.inodes))
}

/// Returns whether a share, in hundredths of a percent, has come to a mark, or well below one.
fn crosses(told: u64, now: u64) -> bool {
    let marks = |share: u64| MARKS.iter().filter(|mark| share >= *mark * 100).count();
    marks(now) > marks(told) || marks(now + BACK * 100) < marks(told)
}

/// The share of what can be written that is, as `df` has it: a writer finds the file system full at all
/// of it, whatever is kept for root.
fn bytes_full(usage: &UsageStatus) -> u64 {
    let used = usage.used.0.get();
    share(used, used.saturating_add(usage.available.0.get()))
}

fn inodes_full(usage: &UsageStatus) -> u64 {
    share(count(usage.inodes_used), count(usage.inodes))
}

/// How many inodes there are; none where they are not counted.
fn count(inodes: Option<i64>) -> u64 {
    inodes.unwrap_or_default().unsigned_abs()
}

fn share(part: u64, whole: u64) -> u64 {
    let share = (u128::from(part) * 10_000).checked_div(u128::from(whole)).unwrap_or_default();
    u64::try_from(share).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::{NodeStorageStatus, Quantity};
    use crate::bytes::Bytes;
    use crate::volume::{NodeKey, VolumeKey};
    use k8s_openapi::jiff::Timestamp;
    use proptest::prelude::*;

    fn id(name: &str) -> VolumeId {
        VolumeId::new(NodeKey::of("alpha"), VolumeKey::of(name))
    }

    fn at(second: i64) -> Time {
        Time(Timestamp::from_second(second).unwrap())
    }

    /// A file system of 1000 MiB and 1000 inodes.
    fn usage(mib: u64, inodes: u64) -> FsUsage {
        FsUsage {
            total: Bytes::mib(1000),
            used: Bytes::mib(mib),
            available: Bytes::mib(1000 - mib),
            inodes: 1000,
            inodes_free: 1000 - inodes,
        }
    }

    fn seen(usage: FsUsage) -> BTreeMap<VolumeId, FsUsage> {
        BTreeMap::from([(id("pvc-1"), usage)])
    }

    /// Whether the second of two samples is told.
    fn is_told(before: FsUsage, now: FsUsage) -> bool {
        let told = next(&[], &seen(before), &at(1));
        next(&told, &seen(now), &at(2))[0].observed_time == at(2)
    }

    #[test]
    fn what_matters_is_told() {
        for (before, now, told) in [
            (usage(100, 10), usage(100, 10), false),
            (usage(100, 10), usage(199, 10), false),
            (usage(100, 10), usage(200, 10), true),
            (usage(200, 10), usage(100, 10), true),
            (usage(690, 10), usage(699, 10), false),
            (usage(690, 10), usage(700, 10), true),
            (usage(700, 10), usage(681, 10), false),
            (usage(700, 10), usage(679, 10), true),
            (usage(790, 10), usage(800, 10), true),
            (usage(840, 10), usage(850, 10), true),
            (usage(899, 10), usage(900, 10), true),
            (usage(949, 10), usage(950, 10), true),
            (usage(960, 10), usage(1000, 10), false),
            (usage(100, 699), usage(100, 700), true),
            (usage(100, 10), usage(100, 109), false),
            (usage(100, 10), usage(100, 110), true),
        ] {
            assert_eq!(is_told(before, now), told, "{before:?} {now:?}");
        }
        let grown = FsUsage { total: Bytes::mib(1001), ..usage(100, 10) };
        assert!(is_told(usage(100, 10), grown), "another size");
    }

    #[test]
    fn what_is_told_anew_says_how_it_was_before() {
        let first = next(&[], &seen(usage(100, 10)), &at(1));
        assert_eq!(first[0].previous, None);
        let same = next(&first, &seen(usage(150, 10)), &at(2));
        assert_eq!(same, first);
        let second = next(&same, &seen(usage(300, 20)), &at(3));
        let before = second[0].previous.as_ref().unwrap();
        assert_eq!(
            (&before.observed_time, before.used, before.inodes_used),
            (&at(1), first[0].usage.used, Some(10))
        );
    }

    #[test]
    fn what_is_kept_for_root_is_no_room() {
        let kept = |mib| FsUsage { available: Bytes::mib(950 - mib), ..usage(mib, 10) };
        assert!(is_told(kept(890), kept(905)), "95 % of what can be written");
    }

    #[test]
    fn a_file_system_that_counts_no_inodes_crosses_no_mark_of_them() {
        let btrfs = |mib| FsUsage { inodes: 0, inodes_free: 0, ..usage(mib, 10) };
        assert!(!is_told(btrfs(100), btrfs(110)));
        assert_eq!(next(&[], &seen(btrfs(100)), &at(1))[0].usage.inodes, None);
    }

    #[test]
    fn what_does_not_answer_is_not_told_as_it_was() {
        let told = next(&[], &seen(usage(100, 10)), &at(1));
        assert_eq!(next(&told, &BTreeMap::new(), &at(2)), []);
    }

    proptest! {
        #[test]
        fn who_wavers_around_a_mark_is_told_once(
            mark in prop::sample::select(&MARKS[..]),
            steps in prop::collection::vec(0u64..19, 1..50),
        ) {
            let mut told = next(&[], &seen(usage(mark * 10 - 9, 10)), &at(0));
            let mut writes = 0;
            for (second, step) in (1..).zip(steps) {
                let now = next(&told, &seen(usage(mark * 10 - 9 + step, 10)), &at(second));
                writes += u32::from(now != told);
                told = now;
            }
            prop_assert!(writes <= 1, "{writes} writes");
        }

        #[test]
        fn any_sample_is_taken(
            total: u64, used: u64, available: u64, inodes: u64, inodes_free: u64,
        ) {
            let (total, used) = (Bytes::new(total), Bytes::new(used));
            let available = Bytes::new(available);
            let now = FsUsage { total, used, available, inodes, inodes_free };
            let told = next(&[], &seen(now), &at(1));
            prop_assert_eq!(&next(&told, &seen(now), &at(2)), &told);
        }
    }

    #[test]
    fn the_record_of_500_volumes_stays_small() {
        let large = FsUsage {
            total: Bytes::new(u64::MAX / 4),
            used: Bytes::new(u64::MAX / 5),
            available: Bytes::new(u64::MAX / 6),
            inodes: u64::MAX / 4,
            inodes_free: u64::MAX / 5,
        };
        let names: Vec<String> = (0..500).map(|n| format!("pvc-{n:036}")).collect();
        let all = names.iter().map(|name| (id(name), large)).collect();
        let first = next(&[], &all, &at(1_800_000_000));
        let less = FsUsage { used: Bytes::new(u64::MAX / 9), ..large };
        let all = names.iter().map(|name| (id(name), less)).collect();
        let usage = next(&first, &all, &at(1_800_000_030));
        assert!(usage[0].previous.is_some());
        let volume = |name: &String| -> crate::api::VolumeOnNode {
            serde_json::from_value(serde_json::json!({
                "volumeHandle": id(name).to_string(), "name": name, "pool": "fast", "size": "4611686018427387904",
                "requestedSize": "4611686018427387904", "volumeMode": "Filesystem", "fsType": "btrfs", "state": "Resized",
                "fence": {"state": "Superseded", "generation": 1_000_000, "copyInProgress": true},
            }))
            .unwrap()
        };
        let volumes = names.iter().map(volume).collect();
        let size = Quantity(Bytes::new(u64::MAX / 2));
        let status =
            NodeStorageStatus { capacity: size, volumes, usage, ..NodeStorageStatus::default() };
        let bytes = serde_json::to_vec(&status).unwrap().len();
        assert!(bytes < 320 << 10, "{bytes} bytes");
        println!("{bytes} bytes");
    }
}
