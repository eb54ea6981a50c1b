//! Volume groups as the plain tools make and show them: what everything else here stands on.

use crate::machine::{Disk, run};

#[test]
#[ignore = "needs the throw-away kernel: e2e/real-lvm"]
fn a_group_of_plain_lvm_is_read_back() {
    let disks = [Disk::of(256 << 20), Disk::of(128 << 20)];
    let fields = "vg_name,pv_count,lv_count,vg_extent_size,vg_extent_count";
    run("vgcreate", &["--metadatasize", "16m", "plain", disks[0].device(), disks[1].device()]);
    run("lvcreate", &["-an", "-Zn", "-Wn", "-l", "3", "-n", "first", "--addtag", "a=b", "plain"]);

    let group = run("vgs", &["--noheadings", "--nosuffix", "--units", "b", "-o", fields, "plain"]);
    let volume = run("lvs", &["--noheadings", "-o", "lv_name,lv_tags,seg_size_pe", "plain"]);

    // 17 MiB of each disk are taken by label and metadata: 59 and 27 whole extents of 4 MiB remain.
    assert_eq!(words(&group), ["plain", "2", "1", "4194304", "86"]);
    assert_eq!(words(&volume), ["first", "a=b", "3"]);
}

fn words(report: &str) -> Vec<&str> {
    report.split_whitespace().collect()
}
