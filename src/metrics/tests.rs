use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;

use super::*;
use crate::volume::{Fence, FsUsage, Mode, NodeKey, Volume, VolumeId, VolumeKey};

fn id() -> VolumeId {
    VolumeId::new(NodeKey::of("alpha"), VolumeKey::of("pvc-1"))
}

fn usage() -> FsUsage {
    FsUsage {
        total: Bytes::mib(900),
        used: Bytes::mib(100),
        available: Bytes::mib(750),
        inodes: 1000,
        inodes_free: 990,
    }
}

/// Three runs, of which one took longer than any step.
fn lvcreate() -> CommandFigure {
    let (step, more) = (Duration::from_millis(5), Duration::from_millis(50));
    let (steps, failed) = (vec![(step, 2), (more, 0)], BTreeMap::from([("failed", 1)]));
    CommandFigure { runs: 3, time: Duration::from_millis(500), steps, failed }
}

fn figures() -> Figures {
    Figures {
        pools: vec![PoolSummary {
            name: "fast".parse().unwrap(),
            size: Bytes::gib(2),
            free: Bytes::gib(1),
            largest: Bytes::mib(512),
            available: true,
            last_reading: Some(Duration::from_millis(1500)),
        }],
        groups: vec![
            GroupFigure {
                group: "vg0".to_owned(),
                pool: "fast".to_owned(),
                room: Some((Bytes::kib(8), Bytes::ZERO)),
                thin_pool: Some(ThinPoolFigure {
                    data: (Bytes::new(1), Bytes::new(2)),
                    metadata: (Bytes::new(3), Bytes::new(4)),
                    provisioned: (Bytes::new(5), Bytes::new(6)),
                    used: Some((Bytes::new(7), Bytes::new(8))),
                }),
            },
            GroupFigure {
                group: "vg1".to_owned(),
                pool: "fast".to_owned(),
                room: None,
                thin_pool: None,
            },
        ],
        disks: vec![DiskFigure { disk: "/dev/sdb".to_owned(), state: "missing" }],
        volumes: vec![VolumeStatus {
            volume: Volume {
                id: id(),
                name: "pvc-1".to_owned(),
                pool: "fast".parse().unwrap(),
                node: "alpha".to_owned(),
                size: Bytes::gib(1),
                requested: Bytes::mib(1023),
                mode: Mode::Block,
            },
            state: State::Deleting { wiped: Bytes::mib(1) },
            published: false,
            fence: Fence::default(),
            limit: None,
            ailments: Vec::new(),
        }],
        usages: BTreeMap::from([(id(), usage())]),
        growths: BTreeMap::from([("full", 1)]),
        host_calls: BTreeMap::from([("processes", 3)]),
        lvm_commands: BTreeMap::from([("lvcreate", lvcreate())]),
        wiped: Bytes::kib(4),
        unreadable: BTreeMap::from([("StoragePool".to_owned(), 2)]),
        panics: BTreeMap::from([("claims", 1)]),
        lost_log_lines: 7,
        cluster: ClusterFigures {
            requests: BTreeMap::from([(("expand", "running"), 2)]),
            oldest: BTreeMap::from([("expand", Duration::from_secs(90))]),
            nodes: BTreeMap::from([("healthy", 3)]),
            each: BTreeMap::from([(
                "alpha".to_owned(),
                NodeFigure { is_away: true, without_pv: 4, without_volume: 5, released: 6 },
            )]),
            pools: BTreeMap::from([("fast".to_owned(), (Bytes::kib(2), Bytes::kib(1)))]),
        },
        certificate_expiry: Some(Duration::from_secs(1_800_000_000)),
    }
}

fn text() -> String {
    let metrics = Metrics::default();
    metrics.observe("Controller/CreateVolume", "OK", Duration::from_millis(3));
    metrics.observe("Controller/CreateVolume", "ABORTED", Duration::from_secs(20));
    metrics.validated("populator");
    metrics.filled("success", Duration::from_secs(61));
    metrics.paused(Duration::from_secs(12));
    metrics.text(&figures(), Duration::from_secs(1_800_000_000)).unwrap()
}

#[test]
fn every_figure_is_told_as_it_is() {
    let text = text();
    let told: Vec<&str> = text
        .lines()
        .filter(|line| !line.starts_with('#') && !line.contains("_bucket{"))
        .filter(|line| !line.starts_with("process_") && !line.starts_with("pliant_build_info"))
        .collect();
    let id = id().to_string();
    assert_eq!(
        told.iter().map(|line| line.replace(&id, "ID")).collect::<Vec<_>>(),
        [
            r#"pliant_rpc_duration_seconds_sum{method="Controller/CreateVolume"} 20.003"#,
            r#"pliant_rpc_duration_seconds_count{method="Controller/CreateVolume"} 2"#,
            r#"pliant_rpc_errors_total{method="Controller/CreateVolume",code="ABORTED"} 1"#,
            r#"pliant_pool_capacity_bytes{pool="fast"} 2147483648.0"#,
            r#"pliant_pool_available_bytes{pool="fast"} 1073741824.0"#,
            r#"pliant_pool_maximum_volume_size_bytes{pool="fast"} 536870912.0"#,
            r#"pliant_pool_up{pool="fast"} 1.0"#,
            r#"pliant_pool_last_scan_timestamp_seconds{pool="fast"} 1799999998.5"#,
            r#"pliant_volume_group_size_bytes{volume_group="vg0",pool="fast"} 8192.0"#,
            r#"pliant_volume_group_free_bytes{volume_group="vg0",pool="fast"} 0.0"#,
            r#"pliant_thin_pool_size_bytes{volume_group="vg0",pool="fast"} 1.0"#,
            r#"pliant_thin_pool_maximum_size_bytes{volume_group="vg0",pool="fast"} 2.0"#,
            r#"pliant_thin_pool_used_bytes{volume_group="vg0",pool="fast"} 7.0"#,
            r#"pliant_thin_pool_metadata_size_bytes{volume_group="vg0",pool="fast"} 3.0"#,
            r#"pliant_thin_pool_maximum_metadata_size_bytes{volume_group="vg0",pool="fast"} 4.0"#,
            r#"pliant_thin_pool_metadata_used_bytes{volume_group="vg0",pool="fast"} 8.0"#,
            r#"pliant_thin_pool_provisioned_bytes{volume_group="vg0",pool="fast"} 5.0"#,
            r#"pliant_thin_pool_maximum_provisioned_bytes{volume_group="vg0",pool="fast"} 6.0"#,
            r#"pliant_disk_state{disk="/dev/sdb",state="missing"} 1.0"#,
            r#"pliant_volume_size_bytes{volume="ID",name="pvc-1",pool="fast"} 1073741824.0"#,
            r#"pliant_volume_requested_bytes{volume="ID"} 1072693248.0"#,
            r#"pliant_volume_state{volume="ID",state="deleting"} 1.0"#,
            r#"pliant_volume_wiped_bytes{volume="ID"} 1048576.0"#,
            r#"pliant_volume_filesystem_size_bytes{volume="ID"} 943718400.0"#,
            r#"pliant_volume_filesystem_used_bytes{volume="ID"} 104857600.0"#,
            r#"pliant_volume_filesystem_available_bytes{volume="ID"} 786432000.0"#,
            r#"pliant_volume_filesystem_inodes{volume="ID"} 1000.0"#,
            r#"pliant_volume_filesystem_inodes_used{volume="ID"} 10.0"#,
            r#"pliant_volume_requests{operation="expand",phase="running"} 2.0"#,
            r#"pliant_volume_request_oldest_creation_timestamp_seconds{operation="expand"} 90.0"#,
            r#"pliant_nodes{health="healthy"} 3.0"#,
            r#"pliant_node_plugin_up{nodestorage="alpha"} 0.0"#,
            r#"pliant_orphaned_volumes{nodestorage="alpha"} 4.0"#,
            r#"pliant_missing_volumes{nodestorage="alpha"} 5.0"#,
            r#"pliant_released_volumes{nodestorage="alpha"} 6.0"#,
            r#"pliant_cluster_pool_capacity_bytes{pool="fast"} 2048.0"#,
            r#"pliant_cluster_pool_available_bytes{pool="fast"} 1024.0"#,
            r#"volume_data_source_validator_operation_count{result="populator"} 1"#,
            r#"volume_populator_operation_seconds_sum{result="success"} 61.0"#,
            r#"volume_populator_operation_seconds_count{result="success"} 1"#,
            r#"volume_populator_operation_count{result="success"} 1"#,
            "pliant_pvc_swap_downtime_seconds_sum 12.0",
            "pliant_pvc_swap_downtime_seconds_count 1",
            "pliant_webhook_certificate_expiration_timestamp_seconds{} 1800000000.0",
            r#"pliant_invalid_objects{kind="StoragePool"} 2.0"#,
            r#"pliant_reconcile_panics_total{resource="claims"} 1"#,
            "pliant_log_lines_dropped_total 7",
            r#"pliant_expansions_total{result="full"} 1"#,
            r#"pliant_lvm_command_duration_seconds_sum{command="lvcreate"} 0.5"#,
            r#"pliant_lvm_command_duration_seconds_count{command="lvcreate"} 3"#,
            r#"pliant_lvm_command_errors_total{command="lvcreate",code="failed"} 1"#,
            "pliant_wiped_bytes_total 4096",
            r#"pliant_host_operations_total{operation="processes"} 3"#,
        ]
    );
    assert!(text.ends_with("# EOF\n"));
}

#[test]
fn the_version_and_the_commit_of_the_program_are_labels() {
    let (version, revision) = (env!("CARGO_PKG_VERSION"), env!("PLIANT_REVISION"));
    let line = format!("pliant_build_info{{version=\"{version}\",revision=\"{revision}\"}} 1.0\n");
    assert!(text().contains(&line));
}

#[test]
fn runs_of_a_command_add_up_from_step_to_step() {
    let text = text();
    let name = "pliant_lvm_command_duration_seconds_bucket";
    let told: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix(name)).collect();
    assert_eq!(
        told,
        [
            r#"{le="0.005",command="lvcreate"} 2"#,
            r#"{le="0.05",command="lvcreate"} 2"#,
            r#"{le="+Inf",command="lvcreate"} 3"#,
        ]
    );
}

#[test]
fn every_row_of_the_table_is_told_with_its_help_and_kind() {
    let text = text();
    for row in TABLE {
        let base = row.name.trim_end_matches("_total");
        assert!(text.contains(&format!("# HELP {base} {}.\n", row.help)), "{row:?}");
        assert!(text.contains(&format!("# TYPE {base} {}\n", row.kind.as_str())), "{row:?}");
        assert_eq!(row.kind == MetricType::Counter, row.name.ends_with("_total"), "{row:?}");
        let told = text.lines().find(|line| line.starts_with(row.name)).unwrap();
        for label in row.labels {
            assert!(told.contains(&format!("{label}=\"")), "{told}");
        }
    }
    assert_eq!(text.matches("# TYPE ").count(), TABLE.len());
}

struct Now;

#[async_trait]
impl FigureSource for Now {
    async fn figures(&self) -> Figures {
        figures()
    }
}

async fn get(address: std::net::SocketAddr, path: &str) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}

#[tokio::test]
async fn prometheus_can_read_it() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let stop = CancellationToken::new();
    let server = tokio::spawn(serve(listener, Metrics::default(), Arc::new(Now), stop.clone()));

    let answer = get(address, "/metrics").await;
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    let kind = "content-type: application/openmetrics-text; version=1.0.0; charset=utf-8\r\n";
    assert!(answer.contains(kind), "{answer}");
    assert!(
        answer.contains("pliant_pool_capacity_bytes{pool=\"fast\"} 2147483648.0\n"),
        "{answer}"
    );
    assert!(get(address, "/healthz").await.ends_with("\r\n\r\nok\n"));

    stop.cancel();
    server.await.unwrap().unwrap();
}

#[test]
fn the_process_is_measured_by_what_the_kernel_reports() {
    let text = text().replace("{}", "");
    let of = |name: &str| -> f64 {
        let line = text.lines().find(|line| line.starts_with(&format!("{name} "))).unwrap();
        line[name.len()..].trim().parse().unwrap()
    };
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs_f64();
    let started = of("process_start_time_seconds");
    // The kernel counts in hundredths from a whole second.
    assert!(started < now + 1.5 && started > now - 86_400.0, "started at {started}, now {now}");
    assert!(of("process_cpu_seconds_total") <= (now - started + 1.5) * 1_024.0);
    let resident = of("process_resident_memory_bytes");
    assert!((1e6..of("process_virtual_memory_bytes")).contains(&resident), "{resident}");
    let limits = std::fs::read_to_string("/proc/self/limits").unwrap();
    let most = limits.lines().find_map(|line| line.strip_prefix("Max open files")).unwrap();
    let most = most.split_whitespace().next().unwrap();
    assert_eq!(of("process_max_fds").to_string(), most);
    assert!((3.0..=of("process_max_fds")).contains(&of("process_open_fds")));
}
