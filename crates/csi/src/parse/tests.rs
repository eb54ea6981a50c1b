use super::*;
use crate::pb::volume_capability::access_mode::Mode as AccessMode;
use crate::pb::volume_capability::{AccessType, BlockVolume, MountVolume};
use crate::volume::{Access, Publish, Stage};
use crate::volume::{
    CapacityQuery, Class, Growth, Mode, NewVolume, NodeKey, RequestedSize, VolumeKey,
};
use proptest::prelude::*;

type Edit<T> = fn(&mut T);

fn volume_id() -> VolumeId {
    VolumeId::new(NodeKey::of("alpha"), VolumeKey::of("pvc-1"))
}

fn capability(access: AccessType, mode: AccessMode) -> pb::VolumeCapability {
    pb::VolumeCapability {
        access_type: Some(access),
        access_mode: Some(pb::volume_capability::AccessMode { mode: mode.into() }),
    }
}

fn block() -> AccessType {
    AccessType::Block(BlockVolume {})
}

fn mount(fs: &str, flags: &[&str]) -> AccessType {
    AccessType::Mount(MountVolume {
        fs_type: fs.to_owned(),
        mount_flags: flags.iter().map(|flag| (*flag).to_owned()).collect(),
        volume_mount_group: String::new(),
    })
}

fn range(required_bytes: i64, limit_bytes: i64) -> pb::CapacityRange {
    pb::CapacityRange { required_bytes, limit_bytes }
}

fn topology(key: &str, node: &str) -> pb::Topology {
    pb::Topology { segments: BTreeMap::from([(key.to_owned(), node.to_owned())]) }
}

fn create() -> pb::CreateVolumeRequest {
    pb::CreateVolumeRequest {
        name: "pvc-1".to_owned(),
        capacity_range: Some(range(5 << 30, 0)),
        volume_capabilities: vec![capability(mount("", &[]), AccessMode::SingleNodeWriter)],
        ..Default::default()
    }
}

fn stage_request() -> pb::NodeStageVolumeRequest {
    pb::NodeStageVolumeRequest {
        volume_id: volume_id().to_string(),
        staging_target_path: "/staging".to_owned(),
        volume_capability: Some(capability(mount("xfs", &[]), AccessMode::SingleNodeWriter)),
        ..Default::default()
    }
}

fn publish_request() -> pb::NodePublishVolumeRequest {
    pb::NodePublishVolumeRequest {
        volume_id: volume_id().to_string(),
        staging_target_path: "/staging".to_owned(),
        target_path: "/pods/a/mount".to_owned(),
        volume_capability: Some(capability(block(), AccessMode::SingleNodeWriter)),
        ..Default::default()
    }
}

fn edited<T>(mut request: T, edit: Edit<T>) -> T {
    edit(&mut request);
    request
}

/// The field that an invalid request is refused for.
fn field<T: std::fmt::Debug>(parsed: Result<T, ParseError>) -> String {
    match parsed {
        Err(ParseError::Invalid { field, .. }) => field,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_volume_is_parsed_whole() {
    let mut request = create();
    request.accessibility_requirements = Some(pb::TopologyRequirement {
        requisite: vec![topology(TOPOLOGY, "alpha"), topology(TOPOLOGY, "beta")],
        preferred: vec![topology(TOPOLOGY, "beta")],
    });
    request.parameters =
        BTreeMap::from([("csi.storage.k8s.io/fstype".to_owned(), "xfs".to_owned())]);
    let expected = NewVolume {
        name: "pvc-1".to_owned(),
        size: RequestedSize { at_least: Bytes::gib(5), at_most: None },
        mode: Mode::Filesystem(FsKind::Xfs),
        class: Class { fs: Some(FsKind::Xfs), ..Class::default() },
        nodes: ["beta", "alpha"].map(str::to_owned).into(),
        source: None,
    };
    assert_eq!(new_volume(&request, &Defaults::default()), Ok(expected));
}

#[test]
fn a_volume_that_cannot_be_made_is_refused_by_field() {
    let table: &[(&str, Edit<pb::CreateVolumeRequest>)] = &[
        ("name", |r| r.name.clear()),
        ("name", |r| r.name = "\u{e4}".repeat(129)),
        ("name", |r| r.name = "a\0b".to_owned()),
        ("volume_capabilities", |r| r.volume_capabilities.clear()),
        ("volume_capabilities[0]", |r| {
            r.volume_capabilities[0].access_type = None;
        }),
        ("volume_capabilities[0].access_mode", |r| {
            r.volume_capabilities[0].access_mode = None;
        }),
        ("volume_capabilities[0].access_mode", |r| {
            r.volume_capabilities = vec![capability(block(), AccessMode::MultiNodeMultiWriter)];
        }),
        ("volume_capabilities[1]", |r| {
            r.volume_capabilities.push(capability(block(), AccessMode::SingleNodeWriter));
        }),
        ("volume_capabilities[1]", |r| {
            let of = |fs| capability(mount(fs, &[]), AccessMode::SingleNodeWriter);
            r.volume_capabilities = vec![of("xfs"), of("ext4")];
        }),
        ("volume_capabilities[0].mount.fs_type", |r| {
            r.volume_capabilities =
                vec![capability(mount("zfs", &[]), AccessMode::SingleNodeWriter)];
        }),
        ("volume_capabilities[0].mount.mount_flags", |r| {
            let loops = mount("", &["loop=/dev/sda"]);
            r.volume_capabilities = vec![capability(loops, AccessMode::SingleNodeWriter)];
        }),
        ("volume_capabilities[0].mount.volume_mount_group", |r| {
            let group = MountVolume { volume_mount_group: "1000".to_owned(), ..Default::default() };
            let group = AccessType::Mount(group);
            r.volume_capabilities = vec![capability(group, AccessMode::SingleNodeWriter)];
        }),
        ("capacity_range.required_bytes", |r| {
            r.capacity_range = Some(range(-1, 0));
        }),
        ("capacity_range.limit_bytes", |r| {
            r.capacity_range = Some(range(1, i64::MIN));
        }),
        ("parameters[\"pools\"]", |r| {
            r.parameters = BTreeMap::from([("pools".to_owned(), "fast".to_owned())]);
        }),
        ("parameters", |r| {
            let long = "x".repeat(5000);
            r.parameters = BTreeMap::from([("csi.storage.k8s.io/x".to_owned(), long)]);
        }),
        ("volume_content_source", |r| {
            r.volume_content_source = Some(pb::VolumeContentSource::default());
        }),
        ("mutable_parameters", |r| {
            r.mutable_parameters = BTreeMap::from([("a".to_owned(), "b".to_owned())]);
        }),
        ("accessibility_requirements.requisite[0]", |r| {
            r.accessibility_requirements = Some(pb::TopologyRequirement {
                requisite: vec![topology("zone", "b")],
                preferred: vec![],
            });
        }),
    ];
    for (expected, edit) in table {
        let request = edited(create(), *edit);
        assert_eq!(field(new_volume(&request, &Defaults::default())), *expected);
    }
}

#[test]
fn sizes_follow_the_range() {
    let of = |required, limit| size::wanted(Some(range(required, limit)), Bytes::gib(1));
    let wanted = |at_least, at_most| Ok(RequestedSize { at_least, at_most });
    assert_eq!(size::wanted(None, Bytes::gib(1)), wanted(Bytes::gib(1), None));
    assert_eq!(of(0, 0), wanted(Bytes::gib(1), None));
    assert_eq!(of(0, 7), wanted(Bytes::new(7), Some(Bytes::new(7))));
    assert_eq!(of(5, 7), wanted(Bytes::new(5), Some(Bytes::new(7))));
    assert_eq!(of(i64::MAX, 0), wanted(Bytes::MAX, None));
    assert!(matches!(of(8, 7), Err(ParseError::Range { .. })));
    assert_eq!(field(size::stated(None)), "capacity_range");
    assert_eq!(field(size::stated(Some(range(0, 0)))), "capacity_range");
    assert_eq!(size::stated(Some(range(0, 7))), wanted(Bytes::ZERO, Some(Bytes::new(7))));
}

#[test]
fn single_node_modes_are_taken_and_say_who_else_may_look() {
    let table = [
        (AccessMode::SingleNodeWriter, false, false),
        (AccessMode::SingleNodeReaderOnly, true, false),
        (AccessMode::SingleNodeSingleWriter, false, true),
        (AccessMode::SingleNodeMultiWriter, false, false),
    ];
    for (mode, read_only, alone) in table {
        let expected = Capability { access: Access::Block, read_only, alone };
        assert_eq!(Capability::parse("", &capability(block(), mode)), Ok(expected));
    }
}

#[test]
fn mount_options_are_checked_for_the_file_system_that_is_named() {
    let parsed = |fs, flags| {
        Capability::parse("", &capability(mount(fs, flags), AccessMode::SingleNodeWriter))
    };
    let read_only = parsed("ext4", &["noatime", "ro"]).unwrap();
    assert_eq!(
        read_only.access,
        Access::Mount {
            fs: Some(FsKind::Ext4),
            options: ["noatime", "ro"].map(str::to_owned).to_vec(),
        }
    );
    assert!(read_only.read_only);
    assert!(parsed("", &["compress=zstd"]).is_ok());
    assert!(parsed("ext4", &["compress=zstd"]).is_err());
    assert!(parsed("", &["suid"]).is_err());
}

#[test]
fn a_stage_and_a_publish_are_parsed_whole() {
    let staged = Stage {
        id: volume_id(),
        staging: "/staging".into(),
        access: Access::Mount { fs: Some(FsKind::Xfs), options: vec![] },
        read_only: false,
    };
    assert_eq!(stage(&stage_request()), Ok(staged));
    let published = Publish {
        id: volume_id(),
        staging: "/staging".into(),
        target: "/pods/a/mount".into(),
        access: Access::Block,
        read_only: true,
        alone: false,
    };
    let request = edited(publish_request(), |r| r.readonly = true);
    assert_eq!(publish(&request), Ok(published));
}

#[test]
fn the_access_mode_says_whether_a_use_may_write_and_is_alone() {
    let reader = Some(capability(mount("", &[]), AccessMode::SingleNodeReaderOnly));
    let request = stage_request();
    let request = pb::NodeStageVolumeRequest { volume_capability: reader.clone(), ..request };
    assert!(stage(&request).unwrap().read_only);
    let request = publish_request();
    let request = pb::NodePublishVolumeRequest { volume_capability: reader, ..request };
    let read = publish(&request).unwrap();
    assert_eq!((read.read_only, read.alone), (true, false));
    let single = Some(capability(block(), AccessMode::SingleNodeSingleWriter));
    let request = pb::NodePublishVolumeRequest { volume_capability: single, ..publish_request() };
    let alone = publish(&request).unwrap();
    assert_eq!((alone.read_only, alone.alone), (false, true));
}

#[test]
fn a_block_volume_has_no_options_of_a_file_system() {
    let mut request = create();
    request.volume_capabilities = vec![capability(block(), AccessMode::SingleNodeWriter)];
    request.parameters = BTreeMap::from([("mkfsOptions".to_owned(), "-i 8192".to_owned())]);
    let parsed = new_volume(&request, &Defaults::default()).unwrap();
    assert_eq!((parsed.mode, parsed.class), (Mode::Block, Class::default()));
}

#[test]
fn names_are_counted_in_characters() {
    let longest = "\u{e4}".repeat(128);
    assert_eq!(name(&longest), Ok(longest.clone()));
}

#[test]
fn parameters_that_cannot_be_changed_are_objected_to() {
    let request = pb::ValidateVolumeCapabilitiesRequest {
        volume_id: volume_id().to_string(),
        volume_capabilities: create().volume_capabilities,
        mutable_parameters: BTreeMap::from([("a".to_owned(), "b".to_owned())]),
        ..Default::default()
    };
    let asked = Validation::parse(request, &Defaults::default()).unwrap().asked;
    assert_eq!(field(asked), "mutable_parameters");
}

#[test]
fn nothing_is_published_at_a_path_that_cannot_be() {
    let request = pb::NodeExpandVolumeRequest {
        volume_id: volume_id().to_string(),
        volume_path: "a/../b".to_owned(),
        ..Default::default()
    };
    assert!(matches!(Expansion::parse(&request), Err(ParseError::Nowhere { .. })));
    let capacity_range = Some(pb::CapacityRange::default());
    let request =
        pb::NodeExpandVolumeRequest { volume_path: "/b".to_owned(), capacity_range, ..request };
    assert_eq!(Expansion::parse(&request).unwrap().growth, None, "a range that says nothing");
}

#[test]
fn a_stage_that_cannot_be_is_refused_by_field() {
    let table: &[(&str, Edit<pb::NodeStageVolumeRequest>)] = &[
        ("volume_id", |r| r.volume_id.clear()),
        ("staging_target_path", |r| r.staging_target_path.clear()),
        ("staging_target_path", |r| {
            r.staging_target_path = "a/b".to_owned();
        }),
        ("staging_target_path", |r| {
            r.staging_target_path = "/a/../b".to_owned();
        }),
        ("staging_target_path", |r| {
            r.staging_target_path = "/".to_owned();
        }),
        ("staging_target_path", |r| {
            r.staging_target_path = "/a\nb".to_owned();
        }),
        ("staging_target_path", |r| {
            r.staging_target_path = "/a".repeat(4000);
        }),
        ("volume_capability", |r| r.volume_capability = None),
    ];
    for (expected, edit) in table {
        assert_eq!(field(stage(&edited(stage_request(), *edit))), *expected);
    }
}

#[test]
fn publishing_needs_staging() {
    let request = edited(publish_request(), |r| r.staging_target_path.clear());
    assert_eq!(publish(&request), Err(ParseError::Unstaged));
    let request = edited(publish_request(), |r| r.target_path.clear());
    assert_eq!(field(publish(&request)), "target_path");
}

#[test]
fn an_expansion_may_leave_out_its_size() {
    let request = pb::NodeExpandVolumeRequest {
        volume_id: volume_id().to_string(),
        volume_path: "/pods/a/mount".to_owned(),
        ..Default::default()
    };
    assert_eq!(Expansion::parse(&request).unwrap().growth, None);
    let request = pb::NodeExpandVolumeRequest {
        capacity_range: Some(range(7, 0)),
        volume_capability: Some(capability(block(), AccessMode::SingleNodeWriter)),
        ..request
    };
    let size = RequestedSize { at_least: Bytes::new(7), at_most: None };
    let block = Some(true);
    let growth = Some(Growth { size, block });
    assert_eq!(Expansion::parse(&request).unwrap().growth, growth);
}

#[test]
fn a_capacity_query_may_leave_out_everything() {
    let expected = CapacityQuery { class: Class::default(), mode: None, node: None };
    let request = pb::GetCapacityRequest::default();
    assert_eq!(capacity_query(&request, &Defaults::default()), Ok(expected));
    let parameters = BTreeMap::from([("csi.storage.k8s.io/fstype".to_owned(), "xfs".to_owned())]);
    let request = pb::GetCapacityRequest { parameters, ..pb::GetCapacityRequest::default() };
    let query = capacity_query(&request, &Defaults::default()).unwrap();
    assert_eq!(query.mode, Some(Mode::Filesystem(FsKind::Xfs)));
    let request = pb::GetCapacityRequest {
        volume_capabilities: vec![capability(mount("", &[]), AccessMode::SingleNodeWriter)],
        accessible_topology: Some(topology(TOPOLOGY, "alpha")),
        parameters: BTreeMap::from([("csi.storage.k8s.io/fstype".to_owned(), "xfs".to_owned())]),
    };
    let expected = CapacityQuery {
        class: Class { fs: Some(FsKind::Xfs), ..Class::default() },
        mode: Some(Mode::Filesystem(FsKind::Xfs)),
        node: Some("alpha".to_owned()),
    };
    assert_eq!(capacity_query(&request, &Defaults::default()), Ok(expected));
}

#[test]
fn an_id_that_is_not_ours_names_no_volume() {
    let own = volume_id().to_string();
    assert_eq!(id(&own), Ok(volume_id()));
    assert_eq!(field(id("")), "volume_id");
    let long = "a".repeat(10_000);
    for foreign in ["../../x", "-f", "a/b", "pvc-1", &own[1..], &format!("{own}\n"), &long] {
        assert!(matches!(id(foreign), Err(ParseError::Foreign { .. })), "{foreign}");
        let request =
            pb::DeleteVolumeRequest { volume_id: foreign.to_owned(), ..Default::default() };
        assert_eq!(removed(&request), Ok(None));
    }
}

proptest! {
    #[test]
    fn no_id_gets_through_that_is_more_than_letters(
        text in prop_oneof![".{0,80}", "-?[a-z2-7/\\n.-]{8}-[a-z2-7/\\n]{26}"],
    ) {
        if let Ok(id) = id(&text) {
            prop_assert_eq!(id.to_string(), &text[..]);
            prop_assert!(!text.starts_with('-') && !text.contains(['/', '\n', '.']));
        }
    }

    #[test]
    fn any_name_is_answered(text in ".{0,140}") {
        if let Ok(name) = name(&text) {
            prop_assert!((1..=128).contains(&name.chars().count()));
        }
    }

    #[test]
    fn any_path_is_answered(text in "(/|[.]{1,2}|[a-z]|\\PC){0,20}") {
        if let Ok(path) = path("target_path", &text) {
            prop_assert!(path.is_absolute() && path.parent().is_some());
            prop_assert!(!text.split('/').any(|part| part == ".."));
        }
    }

    #[test]
    fn any_range_is_answered(required in any::<i64>(), limit in any::<i64>()) {
        if let Ok(wanted) = size::wanted(Some(range(required, limit)), Bytes::gib(1)) {
            prop_assert!(wanted.at_most.is_none_or(|most| wanted.at_least <= most));
            prop_assert!(wanted.at_least <= Bytes::MAX);
        }
    }

    #[test]
    fn any_flags_are_answered(fs in "(ext4|xfs|.{0,8})", flags in prop::collection::vec(".{0,20}", 0..4)) {
        let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
        let given = capability(mount(&fs, &flags), AccessMode::SingleNodeWriter);
        let _ = Capability::parse("volume_capability", &given);
    }
}
