//! Events on claims that are populated.

use crate::cluster::writes::OPERATOR;
use crate::cluster::{OnceEvent, Record};
use crate::populators::PopulatorReason;

/// Writes events on claims, each once.
pub(super) struct Events {
    pub client: kube::Client,
}

impl Events {
    /// Emits an event on a claim; the same one of the same subject is written once, by any writer.
    pub async fn emit(
        &self,
        claim: &impl Record,
        reason: PopulatorReason,
        subject: &str,
        text: &str,
    ) -> Result<(), kube::Error> {
        let event = OnceEvent::of(claim, (reason, reason.is_warning()), subject, text);
        event.write(&self.client, OPERATOR).await.map(drop)
    }
}
