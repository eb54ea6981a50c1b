//! The directory of the kubelet, as the kubelet names it and as it is on this host.
//!
//! Mounts are compared by their paths, and the kernel reports the path of a mount without symbolic
//! links. So a link of the administrator to the kubelet's directory is resolved once, at the start;
//! links below it never are.

use std::ffi::OsStr;
use std::path::{Component, Path, PathBuf};

use crate::parse::ParseError;

/// The directory of the kubelet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KubeletDir {
    named: PathBuf,
    real: PathBuf,
}

impl KubeletDir {
    /// The directory in which a socket is by which the kubelet finds a driver, or speaks to it:
    /// `DIR/plugins_registry/NAME` or `DIR/plugins/DRIVER/NAME`. `None` of any other socket.
    pub fn of_socket(socket: &Path) -> Option<&Path> {
        let above = socket.parent()?;
        if above.file_name() == Some(OsStr::new("plugins_registry")) {
            return above.parent();
        }
        let above = above.parent()?;
        above.parent().filter(|_| above.file_name() == Some(OsStr::new("plugins")))
    }

    /// The directory by the name that the kubelet has for it, and where that leads.
    pub fn new(named: PathBuf, real: PathBuf) -> KubeletDir {
        KubeletDir { named, real }
    }

    /// Converts a path of the kubelet to one on this host.
    pub(super) fn here(&self, field: &str, path: PathBuf) -> Result<PathBuf, ParseError> {
        if let Ok(rest) = path.strip_prefix(&self.named) {
            return Ok(self.real.join(rest));
        }
        if path.starts_with(&self.real) {
            return Ok(path);
        }
        let root = root_of(&path).map(|root| {
            format!(
                "; the kubelet of this node uses {}: set the chart value kubeletDir to it",
                root.display()
            )
        });
        Err(ParseError::NotOfKubelet {
            field: field.to_owned(),
            path,
            dir: self.named.clone(),
            todo: root.unwrap_or_default(),
        })
    }
}

/// The directory of a kubelet that names such a path: `DIR/plugins/kubernetes.io/…` or `DIR/pods/…`.
fn root_of(path: &Path) -> Option<PathBuf> {
    let parts: Vec<Component> = path.components().collect();
    let is = |at: usize, name: &str| {
        parts.get(at).is_some_and(|part| part.as_os_str() == OsStr::new(name))
    };
    let begins = |at: &usize| is(*at, "plugins") && is(at + 1, "kubernetes.io") || is(*at, "pods");
    let at = (1..parts.len()).find(begins)?;
    Some(parts[..at].iter().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_directory_is_known_by_either_socket() {
        for (socket, dir) in [
            ("/var/lib/kubelet/plugins_registry/node@x-reg.sock", Some("/var/lib/kubelet")),
            (
                "/var/lib/k0s/kubelet/plugins/lvm.csi.pliant.io/csi.sock",
                Some("/var/lib/k0s/kubelet"),
            ),
            ("/run/pliant/csi.sock", None),
            ("/csi.sock", None),
        ] {
            assert_eq!(KubeletDir::of_socket(Path::new(socket)), dir.map(Path::new), "{socket}");
        }
    }

    #[test]
    fn a_path_is_where_the_directory_leads_and_one_elsewhere_is_refused_with_what_to_set() {
        let dir = KubeletDir::new("/var/lib/kubelet".into(), "/data/kubelet".into());
        let here = |path: &str| dir.here("target_path", path.into());
        let below = "pods/u/volumes/kubernetes.io~csi/v/mount";
        let real = PathBuf::from(format!("/data/kubelet/{below}"));
        assert_eq!(here(&format!("/var/lib/kubelet/{below}")), Ok(real.clone()));
        assert_eq!(here(&format!("/data/kubelet/{below}")), Ok(real));
        let block = "plugins/kubernetes.io/csi/volumeDevices/publish/v/u";
        for below in [below, block, "plugins/kubernetes.io/csi/lvm.csi.pliant.io/h/globalmount"] {
            for root in ["/var/snap/microk8s/common/var/lib/kubelet", "/var/lib/kubelet2"] {
                let told = here(&format!("{root}/{below}")).unwrap_err().to_string();
                let expected = format!(
                    "target_path: {root}/{below} is not below /var/lib/kubelet, the expected \
                     directory of the kubelet; the kubelet of this node uses {root}: set the chart \
                     value kubeletDir to it"
                );
                assert_eq!(told, expected);
            }
        }
        let told = here("/tmp/x").unwrap_err().to_string();
        assert!(told.ends_with("the expected directory of the kubelet"), "{told}");
    }
}
