//! Prints the settings as the equivalent TOML file.

use std::fmt;

use super::{NewDiskSetting, Rate, Settings, TimeSpan};
use crate::volume::ThinSettings;

impl fmt::Display for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        text(f, "node-id", &self.node)?;
        text(f, "endpoint", &self.endpoint)?;
        text(f, "filesystem-expansion", &self.filesystem_expansion)?;
        text(f, "default-fstype", &self.default_fstype)?;
        writeln!(f, "max-volumes-per-node = {}", self.max_volumes_per_node)?;
        text(f, "state-dir", &self.state_dir)?;
        if let Some(address) = self.metrics_address {
            text(f, "metrics-address", &address)?;
        }
        for (key, rate) in [("copy-rate", self.copy_rate), ("wipe-rate", self.wipe_rate)] {
            if let Some(rate) = rate {
                text(f, key, &Rate(rate))?;
            }
        }
        text(f, "wipe-timeout", &TimeSpan(self.wipe_timeout))?;
        text(f, "log-format", &self.log_format)?;
        text(f, "log-level", &self.log_level)?;
        for (name, pool) in &self.pools {
            writeln!(f, "\n[[pools]]")?;
            text(f, "name", name)?;
            let groups: Vec<String> = pool.groups.iter().map(quoted).collect();
            list(f, "volume-groups", &groups)?;
            list(f, "disks", &pool.disks.iter().map(disk).collect::<Vec<_>>())?;
            list(f, "standby-disks", &pool.standby_disks.iter().map(disk).collect::<Vec<_>>())?;
            if let Some(made) = &pool.thin {
                thin(f, made)?;
            }
        }
        Ok(())
    }
}

fn quoted(value: &impl ToString) -> String {
    toml::Value::String(value.to_string()).to_string()
}

fn text(f: &mut fmt::Formatter<'_>, key: &str, value: &impl ToString) -> fmt::Result {
    writeln!(f, "{key} = {}", quoted(value))
}

fn list(f: &mut fmt::Formatter<'_>, key: &str, items: &[String]) -> fmt::Result {
    if items.is_empty() {
        return Ok(());
    }
    writeln!(f, "{key} = [{}]", items.join(", "))
}

fn thin(f: &mut fmt::Formatter<'_>, thin: &ThinSettings) -> fmt::Result {
    writeln!(f, "\n[pools.thin]")?;
    text(f, "size", &thin.size)?;
    writeln!(f, "max-overcommit-percent = {}", thin.max_overcommit)?;
    writeln!(f, "grow-at-percent = {}", thin.grow_at)?;
    writeln!(f, "metadata-grow-at-percent = {}", thin.metadata_grow_at)?;
    text(f, "reserve", &thin.reserve)?;
    text(f, "when-full", &thin.when_full.as_str())?;
    text(f, "discards", &thin.discards.as_str())?;
    match thin.chunk {
        Some(chunk) => text(f, "chunk-size", &chunk.exact()),
        None => Ok(()),
    }
}

fn disk(disk: &NewDiskSetting) -> String {
    let path = quoted(&disk.path);
    if disk.wipe {
        format!("{{ device = {path}, wipe-existing = true }}")
    } else {
        format!("{{ device = {path} }}")
    }
}
