//! The one table of what is measured; `docs/src/reference/metrics.md` is compared with it.

use prometheus_client::registry::{Metric, Registry};

/// One row: a name with its unit in it, its kind, its labels, and what it says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Figure {
    /// The name as Prometheus stores it.
    pub name: &'static str,
    /// How to read its numbers.
    pub kind: Kind,
    /// The labels in order.
    pub labels: &'static [&'static str],
    /// A sentence without a full stop.
    pub help: &'static str,
}

/// How the numbers of a figure behave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
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

impl Kind {
    /// The word for it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
            Kind::Unknown => "unknown",
        }
    }
}

impl Figure {
    /// Add it to what is told; the format itself appends `_total` to a counter's name and a full
    /// stop to the help.
    pub(super) fn put(&self, registry: &mut Registry, metric: impl Metric) {
        registry.register(self.name.trim_end_matches("_total"), self.help, metric);
    }
}

macro_rules! table {
    ($($row:ident = $kind:ident $name:literal $labels:expr, $help:literal;)*) => {
        $(pub(super) const $row: Figure = Figure {
            name: $name,
            kind: Kind::$kind,
            labels: &$labels,
            help: $help,
        };)*

        /// All rows.
        pub const TABLE: &[Figure] = &[$($row),*];
    };
}

table! {
    BUILD_INFO = Gauge "pliant_build_info" ["version"],
        "Always 1; its label is the version of the program";
    RPC_DURATION = Histogram "pliant_rpc_duration_seconds" ["method"],
        "How long calls of the CSI protocol took";
    RPC_ERRORS = Counter "pliant_rpc_errors_total" ["method", "code"],
        "Calls of the CSI protocol that were not answered OK";
    LVM_DURATION = Histogram "pliant_lvm_command_duration_seconds" ["command"],
        "How long LVM commands took, by their first word";
    LVM_ERRORS = Counter "pliant_lvm_command_errors_total" ["command", "code"],
        "LVM commands that failed, by their first word and how";
    EXPANSIONS = Counter "pliant_expansions_total" ["outcome"],
        "Growths by outcome: whole, volume-only where the file system is left to the node, failed";
    WIPED = Counter "pliant_wiped_bytes_total" [],
        "Bytes that were wiped before use or at delete";
    POOL_SIZE = Gauge "pliant_pool_size_bytes" ["pool"],
        "Size of a pool: all extents of its groups";
    POOL_FREE = Gauge "pliant_pool_free_bytes" ["pool"],
        "Free extents of a pool";
    POOL_LARGEST = Gauge "pliant_pool_largest_volume_bytes" ["pool"],
        "The largest volume that could be made in a pool now";
    POOL_AVAILABLE = Gauge "pliant_pool_available" ["pool"],
        "1 if all groups of a pool answer, else 0";
    POOL_READING = Gauge "pliant_pool_last_reading_age_seconds" ["pool"],
        "How long ago a pool was last read without an error; absent if never since the start";
    GROUP_SIZE = Gauge "pliant_group_size_bytes" ["group", "pool"],
        "Size of a volume group: all of its extents; absent if it was never read";
    GROUP_FREE = Gauge "pliant_group_free_bytes" ["group", "pool"],
        "Free extents of a volume group, which no volume leaves; absent if it was never read";
    DISK_STATE = Gauge "pliant_disk_state" ["disk", "state"],
        "1 for what a disk is to the pools: used, spare, refused or missing";
    VOLUME_SIZE = Gauge "pliant_volume_size_bytes" ["volume", "name", "pool"],
        "Size of a volume: whole extents";
    VOLUME_REQUESTED = Gauge "pliant_volume_requested_bytes" ["volume"],
        "Size that was asked for when a volume was made";
    VOLUME_STATE = Gauge "pliant_volume_state" ["volume", "state"],
        "1 for the state in which a volume is: creating, ready, resizing, resized or deleting";
    VOLUME_WIPED = Gauge "pliant_volume_wiped_bytes" ["volume"],
        "How much of a volume that is being deleted is wiped; absent for others";
    FS_SIZE = Gauge "pliant_volume_filesystem_size_bytes" ["volume"],
        "Bytes that files can have in a mounted file system; absent where it did not answer";
    FS_USED = Gauge "pliant_volume_filesystem_used_bytes" ["volume"],
        "Bytes that files have in a mounted file system; absent where it did not answer";
    FS_AVAILABLE = Gauge "pliant_volume_filesystem_available_bytes" ["volume"],
        "Bytes that an ordinary user can still write to a mounted file system; absent where it did not answer";
    FS_INODES = Gauge "pliant_volume_filesystem_inodes" ["volume"],
        "Inodes of a mounted file system; absent where they are not counted";
    FS_INODES_USED = Gauge "pliant_volume_filesystem_inodes_used" ["volume"],
        "Inodes of a mounted file system that are in use; absent where they are not counted";
    REQUESTS = Gauge "pliant_requests" ["work", "phase"],
        "Requests for the nodes by their work and how far they are";
    REQUEST_AGE = Gauge "pliant_request_oldest_age_seconds" ["work"],
        "Age of the oldest request that has not ended, by its work; absent without one";
    NODES = Gauge "pliant_nodes" ["health"],
        "Nodes by the worst of their pools: ok, degraded or unavailable";
    AGENT_AWAY = Gauge "pliant_agent_away" ["nodestorage"],
        "1 for a node whose agent has let work wait for more than a minute, else 0";
    WITHOUT_PV = Gauge "pliant_volumes_without_pv" ["nodestorage"],
        "Volumes of a node that no PersistentVolume has named for five minutes";
    WITHOUT_VOLUME = Gauge "pliant_pvs_without_volume" ["nodestorage"],
        "PersistentVolumes whose volume their node has not had for five minutes";
    RELEASED = Gauge "pliant_pvs_released" ["nodestorage"],
        "PersistentVolumes of a node that are Released and retained: their claims are gone, their data stays";
    CLUSTER_SIZE = Gauge "pliant_cluster_pool_size_bytes" ["pool"],
        "Size of a pool on all nodes";
    CLUSTER_FREE = Gauge "pliant_cluster_pool_free_bytes" ["pool"],
        "Free extents of a pool on all nodes";
    VALIDATIONS = Unknown "volume_data_source_validator_operation_count" ["result"],
        "Claims that were validated: empty, pvc, snapshot, populator, invalid, unknown where a VolumePopulator cannot be decoded, and error for a try to tell that failed";
    FILL_SECONDS = Histogram "volume_populator_operation_seconds" ["result"],
        "How long claims were filled: success, error for those given up, retry for a try that failed";
    FILLS = Unknown "volume_populator_operation_count" ["result"],
        "Fillings of claims that have ended: success, error for those given up, retry for a try that failed";
    SWAP_PAUSE = Histogram "pliant_swap_pause_seconds" [],
        "How long pods were away to get another claim, until the next one was ready";
    WEBHOOK_EXPIRY = Gauge "pliant_webhook_certificate_expiry_seconds" [],
        "When the certificate of the webhook ends, in seconds since 1970; absent without one";
    UNREADABLE = Gauge "pliant_unreadable_objects" ["kind"],
        "Objects of the API server that this process cannot decode, by their kind";
    PANICS = Counter "pliant_reconcile_panics_total" ["resource"],
        "Panics in the work for one object, by what the work was for";
    LOG_LOST = Counter "pliant_log_lines_lost_total" [],
        "Lines of the log that could not be written to standard error, or could not be formatted";
    HOST_CALLS = Counter "pliant_host_calls_total" ["call"],
        "Calls of the machine by kind: processes that were started, LVM commands, fsyncs and others";
    RESIDENT = Gauge "pliant_resident_memory_bytes" [],
        "Memory of the driver's own process that is resident";
}
