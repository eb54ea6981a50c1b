//! Names and paths in the settings: each text is checked where it is read and cannot be wrong
//! afterwards.

use std::fmt;
use std::path::{Component, Path, PathBuf};
use std::str::FromStr;

/// The node's name in the cluster: 1 to 63 of `[A-Za-z0-9._-]`, a letter or digit at both ends.
///
/// It is `node_id` and the value of the topology key, whose shape it has to have (CSI,
/// `NodeGetInfoResponse`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeName(String);

/// The name of a volume group, as LVM takes it and short enough for our logical volumes in it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct GroupName(String);

/// The path of a disk: below `/dev`, no `..`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct DiskPath(PathBuf);

/// The path of the socket to serve: absolute, at most 107 bytes, the kernel's limit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SocketPath(PathBuf);

/// A directory of our own: absolute, of `[A-Za-z0-9._/-]`, because its name goes into `lvm.conf`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StateDir(PathBuf);

/// The name of a group with its hyphens doubled and of our longest hidden layer in it must fit the
/// 127 characters of a device-mapper name (`libdm`, `DM_NAME_LEN`).
const GROUP_NAME_IN_DM: usize = 80;

impl NodeName {
    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for NodeName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let plain = |b: u8| b.is_ascii_alphanumeric();
        let ends = text.bytes().next().is_some_and(plain) && text.bytes().last().is_some_and(plain);
        if ends && text.len() <= 63 && text.bytes().all(|b| plain(b) || b"._-".contains(&b)) {
            Ok(NodeName(text.to_owned()))
        } else {
            Err(format!(
                "`{text}` is not a node name: use 1 to 63 of A-Z, a-z, 0-9, ., _ and -, with a \
                 letter or digit at both ends"
            ))
        }
    }
}

impl GroupName {
    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for GroupName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let known = |b: u8| b.is_ascii_alphanumeric() || b"._+-".contains(&b);
        let dots = matches!(text, "" | "." | "..");
        if dots || text.starts_with('-') || !text.bytes().all(known) {
            return Err(format!(
                "`{text}` is not a volume group name: LVM allows A-Z, a-z, 0-9, ., _, + and -, not \
                 beginning with -; `vgs` lists the volume groups"
            ));
        }
        if text.len() + text.matches('-').count() > GROUP_NAME_IN_DM {
            return Err(format!(
                "the volume group name `{text}` is too long: with each hyphen counted twice, at \
                 most {GROUP_NAME_IN_DM} characters are allowed, so that the names of volumes fit; \
                 `vgrename` changes it"
            ));
        }
        Ok(GroupName(text.to_owned()))
    }
}

impl DiskPath {
    /// The path.
    pub fn as_path(&self) -> &Path {
        &self.0
    }
}

impl FromStr for DiskPath {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let path = Path::new(text);
        let known = |b: u8| b.is_ascii_alphanumeric() || b"._+-/:@".contains(&b);
        if path.starts_with("/dev")
            && path != Path::new("/dev")
            && clean(path)
            && text.bytes().all(known)
        {
            Ok(DiskPath(path.to_owned()))
        } else {
            Err(format!(
                "`{text}` is not the path of a disk: write a path below /dev, such as /dev/sdb or \
                 /dev/disk/by-id/…"
            ))
        }
    }
}

impl SocketPath {
    /// The path in the file system, without `unix://`.
    pub fn as_path(&self) -> &Path {
        &self.0
    }
}

impl FromStr for SocketPath {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let path = Path::new(text.strip_prefix("unix://").unwrap_or(text));
        if !clean(path) || path.file_name().is_none() {
            return Err(format!(
                "`{text}` is not a socket: write unix:// and an absolute path, such as \
                 unix:///run/pliant/csi.sock"
            ));
        }
        if path.as_os_str().len() > 107 {
            return Err(format!(
                "`{text}` is too long for a socket: the kernel allows paths of at most 107 bytes"
            ));
        }
        Ok(SocketPath(path.to_owned()))
    }
}

impl StateDir {
    /// The path.
    pub fn as_path(&self) -> &Path {
        &self.0
    }
}

impl FromStr for StateDir {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let known = |b: u8| b.is_ascii_alphanumeric() || b"._/-".contains(&b);
        let path = Path::new(text);
        if clean(path) && path.file_name().is_some() && text.bytes().all(known) {
            Ok(StateDir(path.to_owned()))
        } else {
            Err(format!(
                "`{text}` cannot be the state directory: write an absolute path of A-Z, a-z, 0-9, \
                 ., _ and -, such as /run/pliant"
            ))
        }
    }
}

/// Returns whether a path is absolute and goes nowhere but down.
fn clean(path: &Path) -> bool {
    path.is_absolute()
        && path.components().all(|part| matches!(part, Component::RootDir | Component::Normal(_)))
}

macro_rules! prints_as_text {
    ($($type:ty: $self:ident => $text:expr),* $(,)?) => {$(
        impl fmt::Display for $type {
            fn fmt(&$self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&$text, f)
            }
        }
    )*};
}

prints_as_text! {
    NodeName: self => self.0,
    GroupName: self => self.0,
    DiskPath: self => self.0.display(),
    StateDir: self => self.0.display(),
    SocketPath: self => format_args!("unix://{}", self.0.display()),
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn names_that_lvm_or_the_kernel_refuse_are_refused() {
        let hyphens = |count| format!("a{}", "-a".repeat(count));
        assert!(hyphens(26).parse::<GroupName>().is_ok(), "79 with each hyphen twice");
        for text in ["-f", ".", "..", "a b", "a/b", "", &"a".repeat(81), &hyphens(27)] {
            assert!(text.parse::<GroupName>().is_err(), "{text:?}");
        }
        for text in ["sdb", "/dev", "/dev/../etc/passwd", "/etc/passwd", "/dev/s db", "/devil"] {
            assert!(text.parse::<DiskPath>().is_err(), "{text:?}");
        }
        let long = |length: usize| format!("/{}", "a".repeat(length - 1));
        assert!(long(107).parse::<SocketPath>().is_ok());
        for text in ["", &*long(108), "csi.sock", "unix://csi.sock", "unix:///", "tcp://1.2.3.4:5"]
        {
            assert!(text.parse::<SocketPath>().is_err(), "{text:?}");
        }
        for text in ["-a", "a-", "", "a/b", &"a".repeat(64)] {
            assert!(text.parse::<NodeName>().is_err(), "{text:?}");
        }
        for text in ["run", "/", "/run/a\"b", "/run/../etc"] {
            assert!(text.parse::<StateDir>().is_err(), "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn what_is_taken_comes_back(text in "[ -~]{0,90}") {
            if let Ok(name) = text.parse::<GroupName>() {
                prop_assert_eq!(name.to_string(), text.clone());
            }
            if let Ok(path) = text.parse::<SocketPath>() {
                prop_assert_eq!(path.to_string().parse(), Ok(path));
            }
        }
    }
}
