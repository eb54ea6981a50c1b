//! The one table of what is measured; `docs/src/reference/metrics.md` is compared with it.

use prometheus_client::registry::{Metric, Registry};

/// One metric: its name with the unit, its type, its labels, and its help text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Figure {
    /// The name as Prometheus stores it.
    pub name: &'static str,
    /// Type of the metric.
    pub kind: MetricType,
    /// The labels in order.
    pub labels: &'static [&'static str],
    /// A sentence without a full stop.
    pub help: &'static str,
}

/// Type of a metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MetricType {
    /// Only grows, from 0 at the start.
    Counter,
    /// Goes up and down.
    Gauge,
    /// Counts by how long something took; adds `_bucket`, `_count` and `_sum`.
    Histogram,
    /// Only grows, from 0 at the start, and has no `_total`: a standard named it before there was that
    /// rule, and the format calls it unknown.
    Unknown,
}

impl MetricType {
    /// The word for it.
    pub const fn as_str(self) -> &'static str {
        match self {
            MetricType::Counter => "counter",
            MetricType::Gauge => "gauge",
            MetricType::Histogram => "histogram",
            MetricType::Unknown => "unknown",
        }
    }
}

impl Figure {
    /// Registers it; the format itself appends `_total` to a counter's name and a full stop to the
    /// help.
    pub(super) fn put(&self, registry: &mut Registry, metric: impl Metric) {
        registry.register(self.name.trim_end_matches("_total"), self.help, metric);
    }
}

macro_rules! table {
    ($($row:ident = $kind:ident $name:literal $labels:expr, $help:literal;)*) => {
        $(pub(super) const $row: Figure = Figure {
            name: $name,
            kind: MetricType::$kind,
            labels: &$labels,
            help: $help,
        };)*

        /// All rows.
        pub const TABLE: &[Figure] = &[$($row),*];
    };
}

table! {
    BUILD_INFO = Gauge "pliant_build_info" ["version", "revision"],
        "Always 1; the labels have the version of the program and the commit that it is built from";
    RPC_DURATION = Histogram "pliant_rpc_duration_seconds" ["method"],
        "Duration of CSI calls in seconds";
    RPC_ERRORS = Counter "pliant_rpc_errors_total" ["method", "code"],
        "CSI calls whose gRPC status code was not OK";
    LVM_DURATION = Histogram "pliant_lvm_command_duration_seconds" ["command"],
        "Duration of LVM commands in seconds";
    LVM_ERRORS = Counter "pliant_lvm_command_errors_total" ["command", "code"],
        "LVM commands that failed, by how they failed";
    EXPANSIONS = Counter "pliant_expansions_total" ["result"],
        "Volume expansions that have ended: full, volume_only if NodeExpandVolume expands the file system, or error";
    WIPED = Counter "pliant_wiped_bytes_total" [],
        "Bytes of volumes that were wiped before use or before deletion";
    POOL_SIZE = Gauge "pliant_pool_capacity_bytes" ["pool"],
        "Capacity of the pool in bytes: all extents of its volume groups";
    POOL_FREE = Gauge "pliant_pool_available_bytes" ["pool"],
        "Free space of the pool in bytes, with its reserve: the free extents of its volume groups";
    POOL_LARGEST = Gauge "pliant_pool_maximum_volume_size_bytes" ["pool"],
        "Size in bytes of the largest volume that can be created in the pool now";
    POOL_UP = Gauge "pliant_pool_up" ["pool"],
        "1 if all volume groups of the pool can be read, else 0";
    POOL_SCAN = Gauge "pliant_pool_last_scan_timestamp_seconds" ["pool"],
        "Unix time of the last successful scan of the pool; absent if there was none since the start";
    GROUP_SIZE = Gauge "pliant_volume_group_size_bytes" ["volume_group", "pool"],
        "Size of the LVM volume group in bytes; absent if it was never read";
    GROUP_FREE = Gauge "pliant_volume_group_free_bytes" ["volume_group", "pool"],
        "Free space of the LVM volume group in bytes; absent if it was never read";
    THIN_SIZE = Gauge "pliant_thin_pool_size_bytes" ["volume_group", "pool"],
        "Size of the data of the thin pool in bytes";
    THIN_MAXIMUM = Gauge "pliant_thin_pool_maximum_size_bytes" ["volume_group", "pool"],
        "Size in bytes to which the data of the thin pool can be expanded now";
    THIN_USED = Gauge "pliant_thin_pool_used_bytes" ["volume_group", "pool"],
        "Used data of the thin pool in bytes; absent while it is inactive";
    THIN_METADATA = Gauge "pliant_thin_pool_metadata_size_bytes" ["volume_group", "pool"],
        "Size of the metadata of the thin pool in bytes";
    THIN_METADATA_MAXIMUM = Gauge "pliant_thin_pool_maximum_metadata_size_bytes" ["volume_group", "pool"],
        "Size in bytes to which the metadata of the thin pool can be expanded now";
    THIN_METADATA_USED = Gauge "pliant_thin_pool_metadata_used_bytes" ["volume_group", "pool"],
        "Used metadata of the thin pool in bytes; absent while it is inactive";
    THIN_PROVISIONED = Gauge "pliant_thin_pool_provisioned_bytes" ["volume_group", "pool"],
        "Total size in bytes of all volumes and snapshots in the thin pool";
    THIN_PROVISIONED_MAXIMUM = Gauge "pliant_thin_pool_maximum_provisioned_bytes" ["volume_group", "pool"],
        "Maximum total size in bytes of all volumes and snapshots in the thin pool, from maxOvercommitPercent";
    DISK_STATE = Gauge "pliant_disk_state" ["disk", "state"],
        "1 for the state of the disk in its pool: used, standby, rejected or missing";
    VOLUME_SIZE = Gauge "pliant_volume_size_bytes" ["volume", "name", "pool"],
        "Size of the logical volume in bytes";
    VOLUME_REQUESTED = Gauge "pliant_volume_requested_bytes" ["volume"],
        "Size in bytes that was requested when the volume was created; an expansion does not change it";
    VOLUME_STATE = Gauge "pliant_volume_state" ["volume", "state"],
        "1 for the state of the volume: creating, ready, resizing, resized or deleting";
    VOLUME_WIPED = Gauge "pliant_volume_wiped_bytes" ["volume"],
        "Bytes wiped so far of a volume that is being deleted; absent for others";
    FS_SIZE = Gauge "pliant_volume_filesystem_size_bytes" ["volume"],
        "Size of the mounted file system in bytes; absent if it did not respond";
    FS_USED = Gauge "pliant_volume_filesystem_used_bytes" ["volume"],
        "Used space of the mounted file system in bytes; absent if it did not respond";
    FS_AVAILABLE = Gauge "pliant_volume_filesystem_available_bytes" ["volume"],
        "Space in bytes that unprivileged users can still write to the mounted file system; absent if it did not respond";
    FS_INODES = Gauge "pliant_volume_filesystem_inodes" ["volume"],
        "Inodes of the mounted file system; absent if it does not count them";
    FS_INODES_USED = Gauge "pliant_volume_filesystem_inodes_used" ["volume"],
        "Used inodes of the mounted file system; absent if it does not count them";
    REQUESTS = Gauge "pliant_volume_requests" ["operation", "phase"],
        "VolumeRequests by operation and phase";
    REQUEST_OLDEST = Gauge "pliant_volume_request_oldest_creation_timestamp_seconds" ["operation"],
        "Unix time at which the oldest unfinished VolumeRequest was created; absent without one";
    NODES = Gauge "pliant_nodes" ["health"],
        "Nodes by their health: healthy, degraded while one pool is usable, or unavailable";
    NODE_PLUGIN_UP = Gauge "pliant_node_plugin_up" ["nodestorage"],
        "1 if the node plugin accepts VolumeRequests, 0 if one has waited for more than a minute";
    ORPHANED = Gauge "pliant_orphaned_volumes" ["nodestorage"],
        "Volumes of the node that have had no PersistentVolume for five minutes";
    MISSING = Gauge "pliant_missing_volumes" ["nodestorage"],
        "PersistentVolumes whose volume has been missing on its node for five minutes";
    RELEASED = Gauge "pliant_released_volumes" ["nodestorage"],
        "PersistentVolumes of the node that are Released and retained: the claim is deleted, the data is not";
    CLUSTER_SIZE = Gauge "pliant_cluster_pool_capacity_bytes" ["pool"],
        "Capacity of the pool on all nodes in bytes";
    CLUSTER_FREE = Gauge "pliant_cluster_pool_available_bytes" ["pool"],
        "Free space of the pool on all nodes in bytes";
    VALIDATIONS = Unknown "volume_data_source_validator_operation_count" ["result"],
        "Validated claims by result: empty, pvc, snapshot, populator, invalid, unknown or error";
    FILL_SECONDS = Histogram "volume_populator_operation_seconds" ["result"],
        "Duration of volume population in seconds: success, error if it was aborted, retry if one attempt failed";
    FILLS = Unknown "volume_populator_operation_count" ["result"],
        "Volume populations that have ended: success, error if it was aborted, retry if one attempt failed";
    SWAP_DOWNTIME = Histogram "pliant_pvc_swap_downtime_seconds" [],
        "Seconds from the stop of a pod for a PVC swap until its successor was ready";
    WEBHOOK_EXPIRATION = Gauge "pliant_webhook_certificate_expiration_timestamp_seconds" [],
        "Unix time at which the certificate of the webhook expires; absent without one";
    INVALID = Gauge "pliant_invalid_objects" ["kind"],
        "API objects that cannot be decoded, by kind";
    PANICS = Counter "pliant_reconcile_panics_total" ["resource"],
        "Panics while one object was reconciled, by resource";
    LOG_DROPPED = Counter "pliant_log_lines_dropped_total" [],
        "Log lines that could not be formatted or written to standard error";
    HOST_OPERATIONS = Counter "pliant_host_operations_total" ["operation"],
        "Operations on the host by kind: processes started, LVM commands, fsyncs and others";
    CPU = Counter "process_cpu_seconds_total" [],
        "Total user and system CPU time spent in seconds";
    START_TIME = Gauge "process_start_time_seconds" [],
        "Unix time at which the process started";
    RESIDENT = Gauge "process_resident_memory_bytes" [],
        "Resident memory size in bytes";
    VIRTUAL = Gauge "process_virtual_memory_bytes" [],
        "Virtual memory size in bytes";
    OPEN_FDS = Gauge "process_open_fds" [],
        "Number of open file descriptors";
    MAX_FDS = Gauge "process_max_fds" [],
        "Maximum number of open file descriptors";
}
