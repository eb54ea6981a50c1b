//! How the growths since the start ended, counted.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use crate::volume::{Grown, VolumeError};

/// Results of the growths since the start.
#[derive(Debug, Default)]
pub(super) struct Outcomes(Mutex<BTreeMap<&'static str, u64>>);

impl Outcomes {
    /// Counts one, if it has ended.
    pub fn count(&self, grown: &Result<Grown, VolumeError>) {
        let outcome = match grown {
            Ok(Grown { node_expansion_required: false, .. }) => "full",
            Ok(Grown { node_expansion_required: true, .. }) => "volume_only",
            Err(VolumeError::InProgress { .. }) => return,
            Err(_) => "error",
        };
        *self.0.lock().unwrap_or_else(PoisonError::into_inner).entry(outcome).or_default() += 1;
    }

    /// Returns the counts by result.
    pub fn counts(&self) -> BTreeMap<&'static str, u64> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bytes::Bytes;

    #[test]
    fn growths_are_counted_by_how_they_ended() {
        let outcomes = Outcomes::default();
        let grown = |more| Ok(Grown { size: Bytes::gib(1), node_expansion_required: more });
        let working = VolumeError::InProgress { what: "wiping".into(), progress: "1 %".into() };
        let failed = || Err(VolumeError::NotFound { id: "v".into() });
        for end in [grown(true), grown(false), failed(), Err(working), grown(true), failed()] {
            outcomes.count(&end);
        }
        assert_eq!(
            outcomes.counts(),
            BTreeMap::from([("full", 1), ("volume_only", 2), ("error", 2)])
        );
    }
}
