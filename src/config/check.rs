//! Merges the sources of settings: precedence, defaults, and errors that show only in all of them
//! together.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

use super::{
    ConfigError, Flags, Layer, NewDiskSetting, Placed, PoolFlag, PoolLayer, PoolSettings,
    PoolSource, PoolsFrom, SettingSource, Settings, WantedDisk, file,
};
use crate::volume::{FsKind, PoolName};

impl Settings {
    /// The file system where neither request nor class names one.
    pub const DEFAULT_FSTYPE: FsKind = FsKind::Ext4;
    /// Default path of the socket.
    pub const DEFAULT_ENDPOINT: &'static str = "unix:///run/pliant/csi.sock";
    /// Default directory for lvm.conf, device links and locks of this driver.
    pub const DEFAULT_STATE_DIR: &'static str = "/run/pliant";
    /// How long a call waits for a wipe.
    pub const DEFAULT_WIPE_TIMEOUT: Duration = Duration::from_secs(20);

    /// Reads the settings file, if one is named, lay the flags over it, and check the whole.
    ///
    /// # Errors
    /// Everything that is wrong, not only the first.
    pub fn read(
        flags: Flags,
        path: Option<&Path>,
        pools: PoolsFrom,
    ) -> Result<Settings, Vec<ConfigError>> {
        let Some(path) = path else {
            return Settings::check(flags, Layer::default(), pools);
        };
        let text = std::fs::read_to_string(path).map_err(|error| {
            let place = SettingSource::File(path.display().to_string());
            vec![ConfigError { place, reason: format!("cannot be read: {error}") }]
        })?;
        Settings::check(flags, file::parse(path, &text)?, pools)
    }

    /// Lays the flags over the file's settings and the defaults below both.
    ///
    /// # Errors
    /// Everything that is wrong, not only the first.
    pub fn check(flags: Flags, file: Layer, from: PoolsFrom) -> Result<Settings, Vec<ConfigError>> {
        let mut errors = Vec::new();
        let over = flags.values.clone();
        let node = over.node_id.or(file.node_id).or_else(|| {
            errors.push(missing("node-id", "give the node's name with --node-id NAME"));
            None
        });
        let pools = pools(flags, file.pools, from, &mut errors);
        let (Some(node), true) = (node, errors.is_empty()) else {
            return Err(errors);
        };
        Ok(Settings {
            node,
            pools,
            endpoint: pick(over.endpoint, file.endpoint, "endpoint", Self::DEFAULT_ENDPOINT)?,
            state_dir: pick(over.state_dir, file.state_dir, "state-dir", Self::DEFAULT_STATE_DIR)?,
            filesystem_expansion: over
                .filesystem_expansion
                .or(file.filesystem_expansion)
                .unwrap_or_default(),
            default_fstype: over
                .default_fstype
                .or(file.default_fstype)
                .unwrap_or(Self::DEFAULT_FSTYPE),
            max_volumes_per_node: over
                .max_volumes_per_node
                .or(file.max_volumes_per_node)
                .unwrap_or_default(),
            metrics_address: over.metrics_address.or(file.metrics_address).map(|at| at.0),
            copy_rate: over.copy_rate.or(file.copy_rate).map(|rate| rate.0),
            wipe_rate: over.wipe_rate.or(file.wipe_rate).map(|rate| rate.0),
            wipe_timeout: over
                .wipe_timeout
                .or(file.wipe_timeout)
                .map_or(Self::DEFAULT_WIPE_TIMEOUT, |span| span.0),
            log_format: over.log_format.or(file.log_format).unwrap_or_default(),
            log_level: over.log_level.or(file.log_level).unwrap_or_default(),
        })
    }
}

/// The flag's value, else the file's, else the default's text read like any other.
fn pick<T: std::str::FromStr<Err = String>>(
    flag: Option<T>,
    file: Option<T>,
    key: &'static str,
    default: &str,
) -> Result<T, Vec<ConfigError>> {
    flag.or(file)
        .map_or_else(|| default.parse(), Ok)
        .map_err(|reason| vec![ConfigError { place: SettingSource::Missing(key), reason }])
}

fn missing(key: &'static str, what: &str) -> ConfigError {
    ConfigError { place: SettingSource::Missing(key), reason: format!("is missing: {what}") }
}

fn pools(
    flags: Flags,
    from_file: Vec<PoolLayer>,
    from: PoolsFrom,
    errors: &mut Vec<ConfigError>,
) -> BTreeMap<PoolName, PoolSettings> {
    let mut pools = if flags.pools.is_empty() { from_file } else { pools_of(flags.pools) };
    for standby in flags.standby_disks {
        let place = SettingSource::Flag("--standby-disk");
        match pools.iter_mut().find(|pool| pool.name == standby.name) {
            Some(pool) => pool.standby_disks.push(unwiped(Placed { value: standby.disk, place })),
            None => errors.push(ConfigError {
                place,
                reason: format!("pool `{}` does not exist; define it with --pool", standby.name),
            }),
        }
    }
    for disk in flags.allow_wipe_disks {
        let mut named = pools
            .iter_mut()
            .flat_map(|pool| pool.disks.iter_mut().chain(&mut pool.standby_disks))
            .filter(|wanted| wanted.path.value == disk)
            .peekable();
        if named.peek().is_none() {
            errors.push(ConfigError {
                place: SettingSource::Flag("--allow-wipe-disk"),
                reason: format!(
                    "`{disk}` is neither a disk of a --pool NAME=create:… nor a \
                                 --standby-disk"
                ),
            });
        }
        named.for_each(|wanted| wanted.wipe = true);
    }
    find_doubles(&pools, errors);
    match (from, pools.first()) {
        (PoolsFrom::Settings, None) => {
            errors.push(missing("pools", "name at least one with --pool NAME=VG"));
        }
        (PoolsFrom::Cluster, Some(pool)) => {
            let reason =
                "in a cluster, StoragePool objects define the pools: remove it here, and see \
                 `kubectl explain storagepool.spec`"
                    .to_owned();
            errors.push(ConfigError { place: pool.place.clone(), reason });
        }
        _ => {}
    }
    pools.into_iter().map(settled).collect()
}

/// Flags that name the same pool add up to one.
fn pools_of(flags: Vec<PoolFlag>) -> Vec<PoolLayer> {
    let mut pools: Vec<PoolLayer> = Vec::new();
    for flag in flags {
        let place = SettingSource::Flag("--pool");
        let at = pools.iter().position(|pool| pool.name == flag.name).unwrap_or_else(|| {
            pools.push(PoolLayer {
                name: flag.name,
                place: place.clone(),
                groups: Vec::new(),
                disks: Vec::new(),
                standby_disks: Vec::new(),
                thin: None,
            });
            pools.len() - 1
        });
        match flag.source {
            PoolSource::Group(value) => pools[at].groups.push(Placed { value, place }),
            PoolSource::Create(disks) => pools[at].disks.extend(
                disks.into_iter().map(|value| unwiped(Placed { value, place: place.clone() })),
            ),
        }
    }
    pools
}

fn unwiped(path: Placed<super::DiskPath>) -> WantedDisk {
    WantedDisk { path, wipe: false }
}

/// A group or disk in two places would be counted, and could be initialised, twice.
fn find_doubles(pools: &[PoolLayer], errors: &mut Vec<ConfigError>) {
    let mut names = BTreeSet::new();
    let mut taken = BTreeMap::new();
    for pool in pools {
        let mut fail = |place: &SettingSource, reason| {
            errors.push(ConfigError { place: place.clone(), reason });
        };
        if !names.insert(&pool.name) {
            fail(&pool.place, format!("pool `{}` is defined twice", pool.name));
        }
        if pool.groups.is_empty() && pool.disks.is_empty() {
            let what = "it has neither volume groups nor disks to create them on: add \
                        `volume-groups` or `disks`";
            fail(&pool.place, format!("pool `{}` is empty: {what}", pool.name));
        }
        let groups =
            pool.groups.iter().map(|group| ("group", group.value.to_string(), &group.place));
        let disks = pool.disks.iter().chain(&pool.standby_disks);
        let disks = disks.map(|disk| ("disk", disk.path.value.to_string(), &disk.path.place));
        for (kind, name, place) in groups.chain(disks) {
            if let Some(other) = taken.insert((kind, name.clone()), &pool.name) {
                fail(place, format!("{kind} `{name}` is already in pool `{other}`"));
            }
        }
    }
}

fn settled(pool: PoolLayer) -> (PoolName, PoolSettings) {
    let disks = |disks: Vec<WantedDisk>| {
        disks
            .into_iter()
            .map(|disk| NewDiskSetting { path: disk.path.value, wipe: disk.wipe })
            .collect()
    };
    let settings = PoolSettings {
        groups: pool.groups.into_iter().map(|group| group.value).collect(),
        disks: disks(pool.disks),
        standby_disks: disks(pool.standby_disks),
        thin: pool.thin,
    };
    (pool.name, settings)
}
