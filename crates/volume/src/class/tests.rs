use super::*;
use proptest::prelude::*;

fn map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    let owned = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
    pairs.iter().map(owned).collect()
}

fn parse(pairs: &[(&str, &str)]) -> Result<Class, ClassError> {
    Class::parse(&map(pairs), None, FsKind::Ext4)
}

fn refused(pairs: &[(&str, &str)]) -> String {
    parse(pairs).unwrap_err().to_string()
}

#[test]
fn an_empty_class_is_the_default() {
    assert_eq!(parse(&[]), Ok(Class::default()));
}

#[test]
fn each_key_is_understood() {
    let class = parse(&[
        ("pool", "fast"),
        ("layout", "linear"),
        ("wipe", "Discard"),
        ("resizeSnapshot", "Required"),
        ("mkfsOptions", "-m crc=1"),
        ("trimInterval", "24h"),
        (FS_TYPE, "xfs"),
        ("csi.storage.k8s.io/pvc/name", "db"),
    ]);
    let expected = Class {
        pool: Some("fast".parse().unwrap()),
        layout: Layout::Linear,
        wipe: Wipe::Discard,
        safety: Safety::Required,
        mkfs_options: MkfsOptions::parse(FsKind::Xfs, "-m crc=1").unwrap(),
        trim: TrimInterval::of_hours(24),
        fs: Some(FsKind::Xfs),
    };
    assert_eq!(class, Ok(expected));
}

#[test]
fn a_class_is_written_as_it_is_read() {
    for pairs in [
        &[][..],
        &[("pool", "fast"), ("wipe", "None"), ("resizeSnapshot", "Off"), ("trimInterval", "168h")],
        &[(FS_TYPE, "xfs"), ("mkfsOptions", "-m crc=1,reflink=0 -L data")],
    ] {
        let class = parse(pairs).unwrap();
        assert_eq!(Class::parse(&class.parameters(), None, FsKind::Ext4), Ok(class));
    }
}

#[test]
fn what_a_tag_says_of_a_class_stays() {
    assert_eq!(Wipe::ALL.map(Wipe::tag_value), ["zero", "discard", "none"]);
    assert_eq!(Safety::ALL.map(Safety::tag_value), ["required", "best-effort", "off"]);
    let named = |text| Class::named_in(&map(&[(FS_TYPE, text)]));
    assert_eq!((named("xfs"), named("nofs")), (Some(FsKind::Xfs), None));
    assert_eq!(Class::named_in(&map(&[("pool", "fast")])), None);
}

#[test]
fn options_belong_to_the_file_system_that_the_request_names() {
    let parameters = map(&[(FS_TYPE, "xfs"), ("mkfsOptions", "-i 8192")]);
    assert!(Class::parse(&parameters, Some(FsKind::Ext4), FsKind::Btrfs).is_ok());
    assert!(Class::parse(&parameters, None, FsKind::Ext4).is_err());
    let raw = map(&[("csi.storage.k8s.io/fstype", "xfs"), ("mkfsOptions", "-m crc=1")]);
    assert!(Class::parse(&raw, None, FsKind::Ext4).is_ok());
}

#[test]
fn an_unknown_key_is_answered_with_the_nearest() {
    assert_eq!(
        refused(&[("mkfs-options", "")]),
        "class parameter mkfs-options: unknown; did you mean mkfsOptions? Known parameters are \
         pool, layout, wipe, resizeSnapshot, mkfsOptions, trimInterval, csi.storage.k8s.io/fstype"
    );
    for (typed, meant) in
        [("Pool", "pool"), ("fs-type", FS_TYPE), ("resizesnapshot", "resizeSnapshot")]
    {
        let answer = refused(&[(typed, "")]);
        assert!(answer.contains(&format!("did you mean {meant}?")), "{answer}");
    }
    let answer = refused(&[("compression", "")]);
    assert!(answer.contains("unknown; known parameters are pool, layout"), "{answer}");
}

#[test]
fn a_bad_value_is_answered_with_the_good_ones() {
    assert_eq!(
        refused(&[("wipe", "shred")]),
        "class parameter wipe: unknown value `shred`: use Zero, Discard or None"
    );
    assert_eq!(
        refused(&[("wipe", "zero")]),
        "class parameter wipe: unknown value `zero`: use Zero, Discard or None"
    );
    assert_eq!(
        refused(&[("resizeSnapshot", "best-effort")]),
        "class parameter resizeSnapshot: unknown value `best-effort`: use Required, BestEffort or \
         Off"
    );
    assert_eq!(
        refused(&[("layout", "raid1")]),
        "class parameter layout: unknown value `raid1`: use linear or thin"
    );
    assert_eq!(
        refused(&[(FS_TYPE, "zfs")]),
        "class parameter csi.storage.k8s.io/fstype: `zfs` is not a supported file system: use ext4, xfs, btrfs, ext3 \
         or ext2"
    );
    assert_eq!(
        refused(&[("trimInterval", "daily")]),
        "class parameter trimInterval: `daily` is not an interval from 1h to 8760h"
    );
    assert!(refused(&[("pool", "-f")]).starts_with("class parameter pool: `-f` is not"));
}

proptest! {
    #[test]
    fn any_parameters_are_answered(
        parameters in prop::collection::btree_map(
            prop_oneof![prop::sample::select(KEYS.to_vec()).prop_map(str::to_owned), ".{0,20}"],
            ".{0,40}",
            0..4,
        ),
        named in prop::option::of(prop::sample::select(FsKind::ALL.to_vec())),
    ) {
        let _ = Class::parse(&parameters, named, FsKind::Ext4);
    }
}
