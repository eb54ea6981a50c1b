//! The parameters of a StorageClass, parsed once. The table in `docs/` is made of these comments.

use std::collections::BTreeMap;

use crate::{FsKind, Layout, MkfsOptions, PoolName, TrimInterval, either, nearest};

/// Parameters of a StorageClass.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Class {
    /// `pool`: the pool to take the volume from. Default: of the pools that have a volume group on the node, the
    /// one named `default`, else the oldest.
    pub pool: Option<PoolName>,
    /// `layout`: layout of the volume on its disks. Default: `linear`.
    pub layout: Layout,
    /// `wipe`: how the bytes of a deleted volume are made unreadable. Default: `Zero`.
    pub wipe: Wipe,
    /// `resizeSnapshot`: whether a snapshot is taken before an unmounted file system is checked and
    /// resized. Default: `BestEffort`.
    pub safety: Safety,
    /// `mkfsOptions`: options for making the file system, from an allow-list.
    pub mkfs_options: MkfsOptions,
    /// `trimInterval`: how often the mounted file system is trimmed, as with `fstrim`: `1h` to `8760h`. Default: never.
    pub trim: Option<TrimInterval>,
    /// `csi.storage.k8s.io/fstype`: the file system where the request itself names none. Default: the driver's.
    pub fs: Option<FsKind>,
}

/// Method to make the bytes of a deleted volume unreadable.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Wipe {
    /// Zeroes are written over all of it before its space is given back.
    #[default]
    Zero,
    /// The disk discards them. Only for disks that promise zeroes after a discard.
    Discard,
    /// Nothing at delete. What a later volume gets is wiped before its first use all the same.
    None,
}

/// Whether a snapshot is taken before an unmounted file system is checked and resized.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Safety {
    /// Without enough space for the snapshot the file system is not resized.
    Required,
    /// With enough space a snapshot is taken, without it the resize continues.
    #[default]
    BestEffort,
    /// No snapshot.
    Off,
}

impl Wipe {
    /// All of them.
    pub const ALL: [Wipe; 3] = [Wipe::Zero, Wipe::Discard, Wipe::None];

    /// Value of the class parameter.
    pub const fn as_str(self) -> &'static str {
        match self {
            Wipe::Zero => "Zero",
            Wipe::Discard => "Discard",
            Wipe::None => "None",
        }
    }

    /// Value of the tag on the logical volume.
    pub const fn tag_value(self) -> &'static str {
        match self {
            Wipe::Zero => "zero",
            Wipe::Discard => "discard",
            Wipe::None => "none",
        }
    }
}

impl Safety {
    /// All of them.
    pub const ALL: [Safety; 3] = [Safety::Required, Safety::BestEffort, Safety::Off];

    /// Value of the class parameter.
    pub const fn as_str(self) -> &'static str {
        match self {
            Safety::Required => "Required",
            Safety::BestEffort => "BestEffort",
            Safety::Off => "Off",
        }
    }

    /// Value of the tag on the logical volume.
    pub const fn tag_value(self) -> &'static str {
        match self {
            Safety::Required => "required",
            Safety::BestEffort => "best-effort",
            Safety::Off => "off",
        }
    }
}

/// A class parameter that cannot be taken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("class parameter {key}: {reason}")]
pub struct ClassError {
    /// The key.
    pub key: String,
    /// What is wrong, and what is valid.
    pub reason: String,
}

/// The keys of a class.
const KEYS: [&str; 7] =
    ["pool", "layout", "wipe", "resizeSnapshot", "mkfsOptions", "trimInterval", FS_TYPE];

/// The key of the file system, as external-provisioner reads it and then passes it in the capability.
const FS_TYPE: &str = "csi.storage.k8s.io/fstype";

/// Keys with this prefix belong to the sidecars: the PVC, the secrets, the file system.
const CALLERS: &str = "csi.storage.k8s.io/";

impl Class {
    /// Parses the parameters of a class; `csi.storage.k8s.io/*` keys are accepted; of these only the file system is read.
    ///
    /// `named` is the file system that the request itself names, `default` the driver's own: with
    /// them it is known whose options `mkfsOptions` are.
    ///
    /// # Errors
    /// [`ClassError`] for an unknown key (it names the nearest known one) or a bad value.
    pub fn parse(
        parameters: &BTreeMap<String, String>,
        named: Option<FsKind>,
        default: FsKind,
    ) -> Result<Class, ClassError> {
        let own = |key: &&String| !key.starts_with(CALLERS);
        if let Some(key) = parameters.keys().filter(own).find(|key| !KEYS.contains(&key.as_str())) {
            return Err(ClassError::unknown(key));
        }
        let mut class = Class {
            pool: value(parameters, "pool", str::parse)?,
            layout: value(parameters, "layout", one_of(&Layout::ALL, Layout::as_str))?
                .unwrap_or_default(),
            wipe: value(parameters, "wipe", one_of(&Wipe::ALL, Wipe::as_str))?.unwrap_or_default(),
            safety: value(parameters, "resizeSnapshot", one_of(&Safety::ALL, Safety::as_str))?
                .unwrap_or_default(),
            mkfs_options: MkfsOptions::default(),
            trim: value(parameters, "trimInterval", str::parse)?,
            fs: value(parameters, FS_TYPE, str::parse)?,
        };
        let fs = class.file_system(named, default);
        let options = |text: &str| MkfsOptions::parse(fs, text);
        class.mkfs_options = value(parameters, "mkfsOptions", options)?.unwrap_or_default();
        Ok(class)
    }

    /// The file system that these parameters name, for one who asks without a request, as for capacity.
    pub fn named_in(parameters: &BTreeMap<String, String>) -> Option<FsKind> {
        parameters.get(FS_TYPE).and_then(|text| text.parse().ok())
    }

    /// Returns the equivalent parameters: what [`Class::parse`] reads, for an object.
    pub fn parameters(&self) -> BTreeMap<String, String> {
        let mkfs = self.mkfs_options.words().join(" ");
        let said = [
            ("pool", self.pool.as_ref().map(PoolName::to_string)),
            ("layout", Some(self.layout.as_str().to_owned())),
            ("wipe", Some(self.wipe.as_str().to_owned())),
            ("resizeSnapshot", Some(self.safety.as_str().to_owned())),
            ("mkfsOptions", (!mkfs.is_empty()).then_some(mkfs)),
            ("trimInterval", self.trim.map(|trim| trim.to_string())),
            (FS_TYPE, self.fs.map(|fs| fs.to_string())),
        ];
        said.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?))).collect()
    }

    /// The file system of a mounted volume: the request's, else the class's, else the driver's.
    pub fn file_system(&self, named: Option<FsKind>, default: FsKind) -> FsKind {
        named.or(self.fs).unwrap_or(default)
    }
}

impl ClassError {
    fn unknown(key: &str) -> Self {
        let key: String = key.chars().take(64).collect();
        let all = KEYS.join(", ");
        let plain = |key: &&'static str| key.rsplit('/').next().unwrap_or(key);
        let names: Vec<&str> = KEYS.iter().map(plain).collect();
        let nearest = nearest(&key, &names);
        let nearest = nearest.and_then(|nearest| KEYS.iter().find(|key| plain(key) == nearest));
        let reason = match nearest {
            Some(nearest) => format!("unknown; did you mean {nearest}? Known parameters are {all}"),
            None => format!("unknown; known parameters are {all}"),
        };
        ClassError { key, reason }
    }
}

fn value<T>(
    parameters: &BTreeMap<String, String>,
    key: &str,
    parse: impl Fn(&str) -> Result<T, String>,
) -> Result<Option<T>, ClassError> {
    let bad = |reason| ClassError { key: key.to_owned(), reason };
    parameters.get(key).map(|text| parse(text).map_err(bad)).transpose()
}

/// Parses one of the words that stand for these values.
fn one_of<T: Copy>(all: &[T], word: fn(T) -> &'static str) -> impl Fn(&str) -> Result<T, String> {
    move |text| {
        all.iter().copied().find(|value| word(*value) == text).ok_or_else(|| {
            let words: Vec<&str> = all.iter().map(|value| word(*value)).collect();
            format!("unknown value `{text}`: use {}", either(&words))
        })
    }
}

#[cfg(test)]
mod tests;
