//! Power cuts, kills, and who waits for whom.

use super::*;

#[tokio::test]
async fn a_power_cut_loses_what_was_not_flushed() {
    let host = machine().await;
    let device = ready(&host, "kept", 2).await;
    host.write_at(&device, 0, b"kept");
    for disk in host.disks().await.unwrap() {
        host.flush(&disk.path).await.unwrap();
    }
    let durable = host.group(G);
    lvm(&host, &format!("lvremove -y -f {G}/kept")).await;
    ready(&host, "lost", 2).await;
    let host = host.after_power_cut();
    assert_eq!(code(&host, &format!("lvchange -y -ay {G}/kept")).await, 5);
    host.pin_devices(G, &["/dev/fake0", "/dev/fake1"].map(PathBuf::from)).await.unwrap();
    assert_eq!(host.group(G), durable);
    assert_eq!((host.dm_list().await.unwrap(), host.mounts().await.unwrap().len()), (vec![], 2));
    lvm(&host, &format!("lvchange -y -ay {G}/kept")).await;
    let device = host.device_of(G, "kept").unwrap();
    assert_eq!(host.read_at(&device, 0, 4).await.unwrap(), b"kept");
}

#[tokio::test]
async fn a_power_cut_may_keep_any_part_of_what_was_not_flushed() {
    let host = machine().await;
    lvm(&host, &create("a", 1, "shown")).await;
    let seen: BTreeSet<bool> = (0..64)
        .map(|seed| host.after_power_cut_with(seed).group(G).unwrap().lvs.contains_key("a"))
        .collect();
    assert_eq!(seen, BTreeSet::from([false, true]));
}

/// Size of the volume in the metadata, of its live table, whether it is suspended and a table waits.
fn looks(host: &FakeHost) -> (u64, u64, bool, bool) {
    let state = host.state();
    let device = &state.devices["vg0-a"];
    let size = device.size.unwrap() / Bytes::mib(4).get();
    let extents = state.groups[G].volumes["a"].extents;
    (extents, size, device.suspended, device.waiting)
}

#[tokio::test]
async fn a_killed_lvextend_leaves_what_the_real_one_leaves() {
    let extend = format!("lvextend -y -l 5 {G}/a");
    let mut left = Vec::new();
    for n in 1.. {
        let host = machine().await;
        lvm(&host, &create("a", 2, "shown")).await;
        host.forget_effects();
        host.cut_at(n, Side::After);
        if host.run_until_cut(code(&host, &extend)).await.is_some() {
            break;
        }
        left.push(looks(&host.after_crash()));
    }
    let (preloaded, uncommitted) = ((2, 2, false, true), (2, 2, true, true));
    let (committed, done) = ((5, 2, true, true), (5, 5, false, false));
    // The commit is two effects: the group has two disks.
    assert_eq!(left, [preloaded, uncommitted, committed, committed, done]);
}

#[tokio::test]
async fn a_stopped_machine_answers_nobody_and_its_successor_does() {
    let host = machine().await;
    host.cut_at(1, Side::Before);
    let path = Path::new("/run/x");
    assert!(host.run_until_cut(host.make_dir(path)).await.is_none());
    assert!(host.run_until_cut(host.path_kind(path)).await.is_none());
    let next = host.after_crash();
    assert_eq!(next.path_kind(path).await.unwrap(), None);
    assert_eq!(host.effects(), ["mkdir /run/x"]);
    assert_eq!(next.effects(), [""; 0]);
    let host = machine().await;
    host.cut_at(1, Side::After);
    assert!(host.run_until_cut(host.make_dir(path)).await.is_none());
    let kind = host.after_crash().path_kind(path).await.unwrap();
    assert_eq!(kind, Some(PathKind::Directory));
}

#[tokio::test]
async fn a_command_waits_for_the_lock_of_its_group() {
    let host = machine().await;
    let lock = host.try_lock_group(G).await.unwrap().unwrap();
    assert!(host.try_lock_group(G).await.unwrap().is_none());
    let line = create("a", 1, "shown");
    let (code, ()) = tokio::join!(code(&host, &line), async {
        tokio::task::yield_now().await;
        assert_eq!(host.effects(), [""; 0]);
        drop(lock);
    });
    assert_eq!(code, 1);
}

#[tokio::test]
async fn every_cut_of_a_snapshot_can_be_taken_back() {
    let base = machine().await;
    ready(&base, "a", 2).await;
    let before = base.state();
    let snapshot = format!("lvcreate -y -s -l 2 -n s {G}/a");
    let mut cuts = 0;
    for n in 1.. {
        let host = base.after_crash();
        host.cut_at(n, Side::After);
        if host.run_until_cut(code(&host, &snapshot)).await.is_some() {
            break;
        }
        cuts += 1;
        take_back(&host.after_crash(), &before).await;
    }
    assert_eq!(cuts, 17);
}

/// Repair a killed snapshot as one does on a real machine.
async fn take_back(host: &FakeHost, before: &MachineState) {
    let group = host.group(G).unwrap();
    let uuid = group.dm_uuid(&group.lvs["a"]);
    if host.dm_info(&uuid).await.unwrap().unwrap().suspended {
        host.dm_clear(&uuid).await.unwrap();
        host.dm_resume(&uuid).await.unwrap();
    }
    lvm(host, &format!("lvchange -y --refresh {G}/a")).await;
    if group.lvs.contains_key("s") {
        lvm(host, &format!("lvremove -y -f {G}/s")).await;
    }
    lvm(host, &format!("lvchange -y --refresh {G}/a")).await;
    host.dm_remove(&format!("{uuid}-real")).await.unwrap();
    assert_eq!(&host.state(), before);
}
