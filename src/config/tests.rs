use std::path::Path;

use super::*;

fn flags(words: &[&str]) -> Flags {
    crate::cli::flags_of(words)
}

fn read(name: &str, text: &str) -> Result<Settings, Vec<String>> {
    let printed = |errors: Vec<ConfigError>| errors.iter().map(ToString::to_string).collect();
    let layer = file::parse(Path::new(name), text).map_err(printed)?;
    Settings::check(Flags::default(), layer, PoolsFrom::Settings).map_err(printed)
}

fn error(name: &str, text: &str) -> String {
    read(name, text).unwrap_err().join("\n")
}

fn settings(words: &[&str], text: &str) -> Settings {
    let layer = file::parse(Path::new("pliant.toml"), text).unwrap();
    Settings::check(flags(words), layer, PoolsFrom::Settings).unwrap()
}

const WHOLE: &str = r#"node-id = "alpha"
endpoint = "unix:///run/other/csi.sock"
filesystem-expansion = "node"
default-fstype = "xfs"
max-volumes-per-node = 16
state-dir = "/run/other"
metrics-address = "127.0.0.1:9808"
copy-rate = "50Mi"
wipe-rate = "100Mi"
wipe-timeout = "5s"
log-format = "json"
log-level = "warn,pliant::lvm=debug"

[[pools]]
name = "fast"
volume-groups = ["vg0", "vg1"]
standby-disks = [{ device = "/dev/sdd" }]

[[pools]]
name = "large"
disks = [{ device = "/dev/sdb", wipe-existing = true }, { device = "/dev/sdc" }]
"#;

#[test]
fn a_file_that_says_everything_is_printed_back() {
    assert_eq!(read("pliant.toml", WHOLE).unwrap().to_string(), WHOLE);
}

#[test]
fn thin_pools_are_read_and_printed_back() {
    let thin = |lines: &str| {
        format!(
            "node-id = \"a\"\n[[pools]]\nname = \"p\"\nvolume-groups = [\"vg0\"]\n\n[pools.thin]\n{lines}"
        )
    };
    let whole = "size = \"500Gi\"
max-overcommit-percent = 150
grow-at-percent = 80
metadata-grow-at-percent = 60
reserve = \"5%\"
when-full = \"Queue\"
discards = \"NoPassDown\"
chunk-size = \"128Ki\"
";
    let printed = read("pliant.toml", &thin(whole)).unwrap().to_string();
    assert!(printed.ends_with(&format!("\n[pools.thin]\n{whole}")), "{printed}");
    let pools = read("pliant.toml", &thin("")).unwrap().pools;
    assert!(pools.values().all(|pool| pool.thin == Some(ThinSettings::default())));
    for (lines, wrong) in [
        (
            "size = \"half\"",
            "pools[0].thin.size: `half` is neither 1% to 100% nor a size such as 500Gi",
        ),
        (
            "when-full = \"Wait\"",
            "pools[0].thin.when-full: unknown value `Wait`: use Error or Queue",
        ),
        (
            "chunk-size = \"96Ki\"",
            "pools[0].thin: the chunk size is 96 KiB: use a power of two from 64 KiB to 1 GiB",
        ),
        (
            "grow-at-percnt = 80",
            "pools[0].thin.grow-at-percnt: unknown key; did you mean `grow-at-percent`?",
        ),
    ] {
        let said = error("pliant.toml", &thin(lines));
        assert!(said.ends_with(wrong), "{said}");
    }
}

#[test]
fn yaml_says_the_same() {
    let yaml = r"
node-id: alpha
endpoint: unix:///run/other/csi.sock
filesystem-expansion: node
default-fstype: xfs
max-volumes-per-node: 16
state-dir: /run/other
metrics-address: 127.0.0.1:9808
copy-rate: 50Mi
wipe-rate: 100Mi
wipe-timeout: 5s
log-format: json
log-level: warn,pliant::lvm=debug
pools:
  - name: fast
    volume-groups: [vg0, vg1]
    standby-disks:
      - device: /dev/sdd
  - name: large
    disks:
      - {device: /dev/sdb, wipe-existing: true}
      - device: /dev/sdc
";
    assert_eq!(read("pliant.yaml", yaml), read("pliant.toml", WHOLE));
}

#[test]
fn two_flags_are_enough() {
    let settings = Settings::check(
        flags(&["--node-id=alpha", "--pool=fast=vg0"]),
        Layer::default(),
        PoolsFrom::Settings,
    );
    let expected = r#"node-id = "alpha"
endpoint = "unix:///run/pliant/csi.sock"
filesystem-expansion = "controller"
default-fstype = "ext4"
max-volumes-per-node = 0
state-dir = "/run/pliant"
wipe-timeout = "20s"
log-format = "text"
log-level = "info"

[[pools]]
name = "fast"
volume-groups = ["vg0"]
"#;
    assert_eq!(settings.unwrap().to_string(), expected);
}

#[test]
fn flags_lie_over_the_file() {
    let words = [
        "--node-id=beta",
        "--endpoint=/run/x.sock",
        "--filesystem-expansion=controller",
        "--default-fstype=btrfs",
        "--max-volumes-per-node=1",
        "--state-dir=/run/x",
        "--metrics-address=[::1]:1",
        "--copy-rate=2Ki",
        "--wipe-rate=1Ki",
        "--wipe-timeout=1m",
        "--log-format=text",
        "--log-level=trace",
        "--pool=a=vg5",
        "--pool=b=create:/dev/sdx,/dev/sdy",
        "--pool=a=vg6",
        "--standby-disk=b=/dev/sdz",
        "--allow-wipe-disk=/dev/sdy",
        "--allow-wipe-disk=/dev/sdz",
    ];
    let expected = r#"node-id = "beta"
endpoint = "unix:///run/x.sock"
filesystem-expansion = "controller"
default-fstype = "btrfs"
max-volumes-per-node = 1
state-dir = "/run/x"
metrics-address = "[::1]:1"
copy-rate = "2Ki"
wipe-rate = "1Ki"
wipe-timeout = "1m"
log-format = "text"
log-level = "trace"

[[pools]]
name = "a"
volume-groups = ["vg5", "vg6"]

[[pools]]
name = "b"
disks = [{ device = "/dev/sdx" }, { device = "/dev/sdy", wipe-existing = true }]
standby-disks = [{ device = "/dev/sdz", wipe-existing = true }]
"#;
    assert_eq!(settings(&words, WHOLE).to_string(), expected);
}

#[test]
fn standby_disks_join_the_pools_of_the_file() {
    let standby_disks = &settings(&["--standby-disk=large=/dev/sde"], WHOLE).pools
        [&"large".parse().unwrap()]
        .standby_disks;
    assert_eq!(*standby_disks, [NewDiskSetting { path: "/dev/sde".parse().unwrap(), wipe: false }]);
}

#[test]
fn every_error_is_told_with_its_line_and_key() {
    let text = r#"nodeid = "alpha"
endpoint = "tcp://127.0.0.1:1"
filesystem-expansion = "agent"
default-fstype = "ntfs"
max-volumes-per-node = -1
state-dir = 'run'
metrics-address = "localhost"
wipe-rate = 0
wipe-timeout = 20
log-format = "xml"
log-level = "loud"

[[pools]]
name = "Fast"
volume-groups = ["-f", 7]

[[pools]]
volume-grops = ["vg0"]
disks = "/dev/sdb"
standby-disks = [{ device = "sdb", wipe-existing = "yes" }, { wipe-existing = true }]
"#;
    assert_eq!(
        error("pliant.toml", text),
        "pliant.toml:1: nodeid: unknown key; did you mean `node-id`?
pliant.toml:2: endpoint: `tcp://127.0.0.1:1` is not a socket: write unix:// and an absolute path, such as unix:///run/pliant/csi.sock
pliant.toml:3: filesystem-expansion: `agent` is not a component that expands file systems: use controller or node
pliant.toml:4: default-fstype: `ntfs` is not a supported file system: use ext4, xfs, btrfs, ext3 or ext2
pliant.toml:5: max-volumes-per-node: -1 is not between 0 and 4294967295
pliant.toml:6: state-dir: `run` cannot be the state directory: write an absolute path of A-Z, a-z, 0-9, ., _ and -, such as /run/pliant
pliant.toml:7: metrics-address: `localhost` is not an IP address and a port: write 127.0.0.1:9808 for this host only, or 0.0.0.0:9808 for all addresses
pliant.toml:8: wipe-rate: a rate of 0 would never finish: leave it out for no limit
pliant.toml:9: wipe-timeout: expected a quoted string, found the number 20
pliant.toml:10: log-format: `xml` is not a log format: use text or json
pliant.toml:11: log-level: `loud` is not a log level: use error, warn, info, debug or trace, or directives such as warn,pliant::lvm=debug
pliant.toml:14: pools[0].name: `Fast` is not a pool name: use 1 to 63 of a-z, 0-9 and -, with a letter or digit at both ends
pliant.toml:15: pools[0].volume-groups[0]: `-f` is not a volume group name: LVM allows A-Z, a-z, 0-9, ., _, + and -, not beginning with -; `vgs` lists the volume groups
pliant.toml:15: pools[0].volume-groups[1]: expected a quoted string, found the number 7
pliant.toml:17: pools[1]: a pool needs a name: add `name`
pliant.toml:18: pools[1].volume-grops: unknown key; did you mean `volume-groups`?
pliant.toml:19: pools[1].disks: expected a list, found the string `/dev/sdb`
pliant.toml:20: pools[1].standby-disks[0].device: `sdb` is not the path of a disk: write a path below /dev, such as /dev/sdb or /dev/disk/by-id/…
pliant.toml:20: pools[1].standby-disks[0].wipe-existing: expected true or false, found the string `yes`
pliant.toml:20: pools[1].standby-disks[1]: no disk is named: add `device`"
    );
}

#[test]
fn yaml_errors_have_lines_too() {
    let cases = [
        (
            "node-id: alpha\npools:\n  - name: fast\n    volume-grops: [vg0]\n",
            "c.yml:4: pools[0].volume-grops: unknown key; did you mean `volume-groups`?",
        ),
        ("node-id: 12\n", "c.yml:1: node-id: expected a quoted string, found the number 12"),
        (
            "node-id: alpha\nmax-volumes-per-node: 1.5\n",
            "c.yml:2: max-volumes-per-node: expected a number, found a number with a fraction",
        ),
        ("- a\n", "c.yml:1: expected a table with keys, found a list"),
        (
            "zebra: 1\nnode-id: a\n",
            "c.yml:1: zebra: unknown key; known keys are endpoint, node-id, pools, filesystem-expansion, \
             default-fstype, max-volumes-per-node, state-dir, metrics-address, copy-rate, wipe-rate, \
             wipe-timeout, log-format, log-level",
        ),
    ];
    for (text, message) in cases {
        assert_eq!(error("c.yml", text), message);
    }
}

#[test]
fn what_is_no_toml_or_yaml_has_a_line() {
    assert_eq!(error("c.toml", "node-id = \"a\"\nnode-id = \"b\"\n"), "c.toml:2: duplicate key");
    assert_eq!(
        error("c.toml", "a = 1\n\nb = \n"),
        "c.toml:3: string values must be quoted, expected literal string"
    );
    assert_eq!(error("c.json", "{}"), "c.json:1: a settings file ends in .toml, .yaml or .yml");
    assert_eq!(
        error("c.yaml", "node-id: a\nnode-id: b\n"),
        "c.yaml:2: duplicate mapping key `node-id` is not allowed here"
    );
}

#[test]
fn what_only_the_whole_shows() {
    assert_eq!(
        error("c.toml", ""),
        "node-id: is missing: give the node's name with --node-id NAME\n\
         pools: is missing: name at least one with --pool NAME=VG"
    );
    let text = r#"node-id = "a"
pools = [
  { name = "p", volume-groups = ["vg0"], standby-disks = [{ device = "/dev/sdb" }] },
  { name = "q", volume-groups = ["vg0"], disks = [{ device = "/dev/sdb" }] },
  { name = "q", volume-groups = ["vg1"] },
  { name = "r" },
]
"#;
    assert_eq!(
        error("c.toml", text),
        "c.toml:4: pools[1].volume-groups[0]: group `vg0` is already in pool `p`
c.toml:4: pools[1].disks[0]: disk `/dev/sdb` is already in pool `p`
c.toml:5: pools[2]: pool `q` is defined twice
c.toml:6: pools[3]: pool `r` is empty: it has neither volume groups nor disks to create them on: add `volume-groups` or `disks`"
    );
}

#[test]
fn flags_that_point_nowhere_are_refused() {
    let words = [
        "--node-id=a",
        "--pool=p=vg0",
        "--pool=p=vg0",
        "--standby-disk=q=/dev/sdb",
        "--allow-wipe-disk=/dev/sdc",
    ];
    let errors = Settings::check(flags(&words), Layer::default(), PoolsFrom::Settings).unwrap_err();
    let printed: Vec<String> = errors.iter().map(ToString::to_string).collect();
    assert_eq!(
        printed,
        [
            "--standby-disk: pool `q` does not exist; define it with --pool",
            "--allow-wipe-disk: `/dev/sdc` is neither a disk of a --pool NAME=create:… nor a \
             --standby-disk",
            "--pool: group `vg0` is already in pool `p`",
        ]
    );
}

#[test]
fn in_a_cluster_its_objects_say_which_pools_there_are() {
    let check =
        |words: &[&str]| Settings::check(flags(words), Layer::default(), PoolsFrom::Cluster);
    assert!(check(&["--node-id=alpha"]).unwrap().pools.is_empty());
    let error = check(&["--node-id=alpha", "--pool=fast=vg0"]).unwrap_err()[0].to_string();
    assert!(error.contains("--pool: in a cluster, StoragePool objects define"), "{error}");
}
