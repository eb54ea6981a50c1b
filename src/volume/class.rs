//! The parameters of a StorageClass, parsed once. The table in `docs/` is made of these comments.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::volume::{FsKind, Layout, PoolName};

/// What a StorageClass asks for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Class {
    /// `pool`: the pool to take the volume from. Default: the only pool, or the one named `default`.
    pub pool: Option<PoolName>,
    /// `layout`: how the volume lies on its disks. Default: `linear`.
    pub layout: Layout,
    /// `wipe`: how the bytes of a deleted volume are made unreadable. Default: `zero`.
    pub wipe: Wipe,
    /// `safety`: whether a snapshot is taken before an unmounted file system is checked and
    /// resized. Default: `best-effort`.
    pub safety: Safety,
    /// `mkfs-options`: options for making the file system, from an allow-list.
    pub mkfs_options: MkfsOptions,
    /// `fs-type`: the file system where the request itself names none. Default: the driver's.
    pub fs: Option<FsKind>,
}

/// How the bytes of a deleted volume are made unreadable.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Wipe {
    /// Zeroes are written over all of it before its space is given back.
    #[default]
    Zero,
    /// The disk is told to discard it. Only for disks that promise zeroes after a discard.
    Discard,
    /// Nothing at delete. What a later volume gets is wiped before its first use all the same.
    None,
}

/// Whether a safety snapshot is taken before an unmounted file system is checked and resized.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Safety {
    /// Without room for the snapshot the file system is not resized.
    Required,
    /// With room a snapshot is taken, without it the resize goes on.
    #[default]
    BestEffort,
    /// No snapshot.
    Off,
}

/// Options for `mkfs`, checked against the allow-list of their file system.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MkfsOptions(pub(crate) Vec<String>);

impl MkfsOptions {
    /// The words for the command line, in order.
    pub fn words(&self) -> &[String] {
        &self.0
    }
}

/// A class parameter that cannot be taken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("class parameter {key}: {reason}")]
pub struct ClassError {
    /// The key.
    pub key: String,
    /// What is wrong and what would be right.
    pub reason: String,
}

impl Class {
    /// Parse the parameters of a class; `csi.storage.k8s.io/*` keys are accepted and not kept.
    ///
    /// # Errors
    /// [`ClassError`] for an unknown key (it names the nearest known one) or a bad value.
    pub fn parse(_parameters: &BTreeMap<String, String>) -> Result<Class, ClassError> {
        todo!("helper: csi")
    }
}
