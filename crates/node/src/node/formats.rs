//! The options that mkfs of this host accepts, and that its kernel can mount.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use tokio::sync::OnceCell;

use crate::bytes::Bytes;
use crate::fs::{self, Switch, Tried};
use crate::host::Host;
use crate::volume::{FsKind, MkfsOptions, VolumeError};

/// Of how many options and sizes is known what mkfs says of them.
const MOST_KNOWN: usize = 256;

/// What is tried: these options for a file system of this size.
type Trial = (FsKind, Vec<String>, Bytes);

/// Results of tests since the start.
#[derive(Debug, Default)]
pub(super) struct Formats {
    known: Mutex<HashMap<Trial, Tried>>,
    switches: [OnceCell<Vec<Switch>>; FsKind::ALL.len()],
}

impl Formats {
    /// Returns the features that mkfs has to switch off, so that the kernel of this host mounts the
    /// result.
    pub(super) async fn switches(&self, host: &dyn Host, kind: FsKind) -> &[Switch] {
        let at = FsKind::ALL.iter().position(|one| *one == kind).unwrap_or_default();
        let found = self.switches[at]
            .get_or_try_init(|| fs::known_of(host, kind, fs::switches(kind, &host.kernel())));
        match found.await {
            Ok(found) => found,
            Err(error) => {
                // It is tried again the next time: this one may have features that are too new.
                tracing::warn!(%kind, %error, "failed to detect which features mkfs must leave out");
                &[]
            }
        }
    }

    /// # Errors
    /// [`VolumeError::InvalidArgument`] for options that mkfs does not take for a file system of this size, or with which it makes
    /// one that the kernel does not mount. What could not be tried is not refused.
    pub(super) async fn refuse_bad(
        &self,
        host: &dyn Host,
        kind: FsKind,
        options: &MkfsOptions,
        size: Bytes,
    ) -> Result<(), VolumeError> {
        if options.words().is_empty() {
            return Ok(());
        }
        if let Some(why) = fs::refusal(kind, options, &host.kernel()) {
            return Err(invalid(why));
        }
        match self.tried(host, kind, options, size).await {
            Some(Tried::Refused(why)) => Err(invalid(format!("mkfs.{kind} for {size}: {why}"))),
            Some(Tried::Taken) | None => Ok(()),
        }
    }

    async fn tried(
        &self,
        host: &dyn Host,
        kind: FsKind,
        options: &MkfsOptions,
        size: Bytes,
    ) -> Option<Tried> {
        let trial = (kind, options.words().to_vec(), size);
        if let Some(known) = self.known().get(&trial) {
            return Some(known.clone());
        }
        let switches = self.switches(host, kind).await;
        let tried = match fs::tried(host, kind, options, switches, size).await {
            Ok(Tried::Refused(why)) => {
                fs::taken_without(host, kind, switches, size).await.map(|()| Tried::Refused(why))
            }
            other => other,
        };
        match tried {
            Ok(tried) => {
                let mut known = self.known();
                if known.len() >= MOST_KNOWN {
                    known.clear();
                }
                known.insert(trial, tried.clone());
                Some(tried)
            }
            Err(error) => {
                tracing::warn!(%kind, %error, "failed to test mkfs options");
                None
            }
        }
    }

    fn known(&self) -> std::sync::MutexGuard<'_, HashMap<Trial, Tried>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn invalid(reason: String) -> VolumeError {
    VolumeError::InvalidArgument { field: "parameters.mkfsOptions".to_owned(), reason }
}
