//! Reports claims without a populator, as in KEP-1495: their `dataSourceRef` names a kind that no
//! populator has registered. A cluster needs one such validator; this one yields to another one.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::events::v1::Event;
use kube::api::ListParams;
use kube::{Api, Client};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use crate::api::{SourceKind, VolumePopulator};
use crate::cluster::{
    Binding, Change, Changed, ClaimSummary, DataSource, Timers, Watched, Works, begun_again,
    caught_in_time, list, reconcile, until,
};
use crate::error_chain;
use crate::panics::caught_now;
use crate::populators::events::Events;
use crate::populators::{PopulationMetrics, PopulatorReason};
use crate::volume::DRIVER;

/// Name for panics and spans.
const LOOP: &str = "validations";

/// Time for another validator to report a claim first.
const GRACE: Duration = Duration::from_secs(10);

/// Delay after the API server did not respond.
const AGAIN: Duration = Duration::from_secs(10);

/// Mode of the reports about unregistered kinds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ReportMode {
    /// Report, unless another validator has already done so.
    #[default]
    Auto,
    /// Report at once.
    On,
    /// Do not report.
    Off,
}

impl FromStr for ReportMode {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "auto" => Ok(ReportMode::Auto),
            "on" => Ok(ReportMode::On),
            "off" => Ok(ReportMode::Off),
            _ => Err(format!("`{text}` is not a mode of validation: use auto, on or off")),
        }
    }
}

impl fmt::Display for ReportMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ReportMode::Auto => "auto",
            ReportMode::On => "on",
            ReportMode::Off => "off",
        })
    }
}

/// Data source of a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DataSourceVerdict {
    Empty,
    Pvc,
    Snapshot,
    Populator,
    /// A VolumePopulator that cannot be decoded may have registered its kind.
    Unknown,
    Invalid,
}

impl DataSourceVerdict {
    /// The word for it in a metric, as the KEP has it.
    const fn as_str(self) -> &'static str {
        match self {
            DataSourceVerdict::Empty => "empty",
            DataSourceVerdict::Pvc => "pvc",
            DataSourceVerdict::Snapshot => "snapshot",
            DataSourceVerdict::Populator => "populator",
            DataSourceVerdict::Unknown => "unknown",
            DataSourceVerdict::Invalid => "invalid",
        }
    }

    fn of(claim: &ClaimSummary, known: &RegisteredKinds) -> DataSourceVerdict {
        let Some(named) = &claim.source else { return DataSourceVerdict::Empty };
        let kind = (named.group.to_string(), named.kind.to_string());
        match (kind.0.as_str(), kind.1.as_str()) {
            ("", "PersistentVolumeClaim") => DataSourceVerdict::Pvc,
            ("snapshot.storage.k8s.io", "VolumeSnapshot") => DataSourceVerdict::Snapshot,
            _ if known.kinds.contains(&kind) => DataSourceVerdict::Populator,
            _ if known.has_unknown => DataSourceVerdict::Unknown,
            _ => DataSourceVerdict::Invalid,
        }
    }
}

/// The kinds that are registered.
#[derive(Debug, Default, PartialEq, Eq)]
struct RegisteredKinds {
    kinds: HashSet<(String, String)>,
    /// True if there may be others: a VolumePopulator cannot be decoded.
    has_unknown: bool,
}

impl RegisteredKinds {
    fn of(populators: &Watched<VolumePopulator>) -> RegisteredKinds {
        let kinds = populators.all().into_iter().map(|one| {
            let SourceKind { group, kind } = one.source_kind.clone();
            (group, kind)
        });
        RegisteredKinds { kinds: kinds.collect(), has_unknown: !populators.decodes_all_of("") }
    }
}

/// All claims, by their uid.
#[derive(Debug, Default)]
struct JudgedClaims {
    verdicts: HashMap<Arc<str>, DataSourceVerdict>,
    /// Claims without a populator, reported or to be reported.
    invalid: HashMap<Arc<str>, Arc<ClaimSummary>>,
    /// Times of the reports.
    later: Timers<Arc<str>>,
}

/// Next actions.
#[derive(Debug, Default)]
struct ValidatorPlan {
    /// Found since the look before.
    found: Vec<DataSourceVerdict>,
    /// Claims without a populator that are to be reported now.
    tell: Vec<Arc<ClaimSummary>>,
}

impl JudgedClaims {
    /// Validates changed claims: each is counted once per change, and reported unless it is bound.
    fn plan(
        &mut self,
        changed: Changed<ClaimSummary>,
        known: &RegisteredKinds,
        grace: Duration,
        now: Instant,
    ) -> ValidatorPlan {
        let mut plan = ValidatorPlan::default();
        match changed {
            Changed::Everything(all) => {
                let there: HashSet<&str> = all.iter().map(|claim| &*claim.names.uid).collect();
                let gone = self.verdicts.keys().filter(|uid| !there.contains(&***uid));
                let gone: Vec<Arc<str>> = gone.cloned().collect();
                for uid in &gone {
                    self.forget(uid);
                }
                let found = all.into_iter().filter_map(|one| self.judge(one, known, now + grace));
                plan.found.extend(found);
            }
            Changed::These(these) => {
                for Change { before, now: then, .. } in these {
                    let id = |claim: &Arc<ClaimSummary>| claim.names.uid.clone();
                    let is_there =
                        |before: &Arc<str>| then.as_ref().map(id).as_ref() == Some(before);
                    if let Some(gone) = before.as_ref().map(id).filter(|one| !is_there(one)) {
                        self.forget(&gone);
                    }
                    let found = then.and_then(|claim| self.judge(claim, known, now + grace));
                    plan.found.extend(found);
                }
            }
        }
        while let Some((uid, _)) = self.later.take_due(now) {
            plan.tell.extend(self.invalid.get(&uid).cloned());
        }
        plan
    }

    /// Validates a claim, and schedules a report if it is new or the verdict has changed.
    fn judge(
        &mut self,
        claim: Arc<ClaimSummary>,
        known: &RegisteredKinds,
        at: Instant,
    ) -> Option<DataSourceVerdict> {
        let id = claim.names.uid.clone();
        let verdict = match caught_now(LOOP, || DataSourceVerdict::of(&claim, known)) {
            Ok(verdict) => verdict,
            Err(panicked) => {
                tracing::error!(claim = &*claim.names.name, %panicked, "failed to validate a claim");
                return None;
            }
        };
        let is_told = verdict == DataSourceVerdict::Invalid && claim.binding == Binding::Pending;
        let is_new = self.verdicts.insert(id.clone(), verdict) != Some(verdict);
        if is_told && is_new {
            self.later.set(id.clone(), at);
        }
        if is_told {
            self.invalid.insert(id, claim);
        } else {
            self.later.remove(&id);
            self.invalid.remove(&id);
        }
        is_new.then_some(verdict)
    }

    fn forget(&mut self, uid: &Arc<str>) {
        self.verdicts.remove(uid);
        self.invalid.remove(uid);
        self.later.remove(uid);
    }

    /// Schedules another report of a claim, if it still has no populator.
    fn tell_again(&mut self, uid: Arc<str>, at: Instant) {
        if self.invalid.contains_key(&uid) {
            self.later.set(uid, at);
        }
    }
}

/// Judge the claims, and again when a kind is registered or no longer is, until `stop`.
pub async fn run(
    client: &Client,
    mode: ReportMode,
    claims: &Watched<ClaimSummary>,
    populators: &Watched<VolumePopulator>,
    tally: &Arc<dyn PopulationMetrics>,
    stop: CancellationToken,
) {
    let grace = match mode {
        ReportMode::Off => return,
        ReportMode::On => Duration::ZERO,
        ReportMode::Auto => GRACE,
    };
    let validated = begun_again(LOOP, async || {
        claims.known().await;
        populators.known().await;
        let (mut news, mut registered) = (claims.subscribe(), populators.changes());
        let (mut judged, mut known) = (JudgedClaims::default(), RegisteredKinds::default());
        let mut works = Works::default();
        loop {
            registered.mark_unchanged();
            let (now_known, mut changed) = (RegisteredKinds::of(populators), news.take());
            if now_known != known {
                (known, changed) = (now_known, Changed::Everything(claims.all()));
            }
            let plan = judged.plan(changed, &known, grace, Instant::now());
            for verdict in &plan.found {
                tally.validated(verdict.as_str());
            }
            for claim in plan.tell {
                works.add(&claim.names.uid, &claim.names.namespace, Instant::now());
            }
            works.begin(|uid| {
                let claim = judged.invalid.get(uid)?.clone();
                Some(tell_in_time(client.clone(), mode, claim))
            });
            let again = judged.later.next();
            tokio::select! {
                () = news.changed() => {}
                _ = registered.changed() => {}
                () = until(again) => {}
                (uid, is_told) = works.ended() => {
                    if !is_told {
                        tally.validated("error");
                        judged.tell_again(uid, Instant::now() + AGAIN);
                    }
                }
            }
        }
    });
    stop.run_until_cancelled(validated).await;
}

/// Reports a claim without a populator within a timeout; returns true if that was done.
async fn tell_in_time(client: Client, mode: ReportMode, claim: Arc<ClaimSummary>) -> bool {
    let (namespace, name) = claim.names.place();
    let span = reconcile(LOOP, format_args!("{namespace}/{name}"));
    let told = async {
        let error = match caught_in_time(LOOP, report(&client, mode, &claim)).await {
            Ok(Ok(())) => return true,
            Ok(Err(error)) => error_chain::in_full(&error),
            Err(why) => why.to_string(),
        };
        tracing::warn!(error, "failed to report a claim without a populator");
        false
    };
    told.instrument(span).await
}

/// Reports a claim without a populator, unless another validator has.
async fn report(
    client: &Client,
    mode: ReportMode,
    claim: &ClaimSummary,
) -> Result<(), kube::Error> {
    if mode == ReportMode::Auto && is_told_by_another(client, claim).await? {
        return Ok(());
    }
    let DataSource { group, kind, .. } = claim.source.as_deref().cloned().unwrap_or_default();
    let text = format!(
        "no populator has registered the kind {kind} of group {group:?} in dataSourceRef, so this claim is not \
         populated: correct a typo by creating the claim again, or install the populator (`kubectl get \
         volumepopulators` lists the installed ones)"
    );
    let reason = PopulatorReason::UnrecognizedDataSourceKind;
    let events = Events { client: client.clone() };
    events.emit(claim, reason, &format!("{group}/{kind}"), &text).await
}

/// Returns true if another writer's event of this reason exists.
async fn is_told_by_another(client: &Client, claim: &ClaimSummary) -> Result<bool, kube::Error> {
    let api: Api<Event> = Api::namespaced(client.clone(), &claim.names.namespace);
    let reason = PopulatorReason::UnrecognizedDataSourceKind;
    let fields = format!("reason={reason},regarding.uid={}", claim.names.uid);
    let told = list(&api, &ListParams::default().fields(&fields)).await?;
    Ok(told.items.iter().any(|event| event.reporting_controller.as_deref() != Some(DRIVER)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::Record;
    use serde_json::{Value, json};

    fn claim(uid: &str, from: &Value, phase: &str) -> Arc<ClaimSummary> {
        let claim = json!({"metadata": {"name": uid, "namespace": "shop", "uid": uid},
                           "spec": {"dataSourceRef": from}, "status": {"phase": phase}});
        Arc::new(ClaimSummary::of(serde_json::from_value(claim).unwrap()))
    }

    fn of(group: &str, kind: &str) -> Value {
        json!({"apiGroup": group, "kind": kind, "name": "x"})
    }

    fn registered(kinds: &[(&str, &str)]) -> RegisteredKinds {
        let kinds = kinds.iter().map(|(group, kind)| ((*group).to_owned(), (*kind).to_owned()));
        RegisteredKinds { kinds: kinds.collect(), has_unknown: false }
    }

    #[test]
    fn each_source_has_its_verdict() {
        let kinds = registered(&[("pliant.io", "ArchivePopulator")]);
        for (from, verdict) in [
            (Value::Null, "empty"),
            (json!({"kind": "PersistentVolumeClaim", "name": "x"}), "pvc"),
            (of("", "PersistentVolumeClaim"), "pvc"),
            (of("snapshot.storage.k8s.io", "VolumeSnapshot"), "snapshot"),
            (of("pliant.io", "ArchivePopulator"), "populator"),
            (of("pliant.io", "archivepopulator"), "invalid"),
            (of("example.com", "ArchivePopulator"), "invalid"),
        ] {
            let judged = DataSourceVerdict::of(&claim("u", &from, "Pending"), &kinds);
            assert_eq!(judged.as_str(), verdict, "{from}");
        }
    }

    #[test]
    fn a_claim_is_counted_once_and_told_after_the_grace() {
        let (mut judged, start) = (JudgedClaims::default(), Instant::now());
        let (none, some) = (registered(&[]), registered(&[("a", "B")]));
        let mut look = |after: u64, phase: &str, known: &RegisteredKinds| {
            let claims = vec![claim("u", &of("a", "B"), phase)];
            let now = start + Duration::from_secs(after);
            let plan = judged.plan(Changed::Everything(claims), known, GRACE, now);
            let next = judged.later.next().map(|next| (next - start).as_secs());
            (plan.found.len(), plan.tell.len(), next)
        };
        for (after, phase, kinds, expected) in [
            (0, "Pending", &none, (1, 0, Some(10))),
            (9, "Pending", &none, (0, 0, Some(10))),
            (10, "Pending", &none, (0, 1, None)),
            (11, "Pending", &none, (0, 0, None)),
            // Registered, and no longer: it is looked at again each time.
            (12, "Pending", &some, (1, 0, None)),
            (13, "Pending", &none, (1, 0, Some(23))),
            (14, "Pending", &some, (1, 0, None)),
            (15, "Bound", &none, (1, 0, None)),
        ] {
            assert_eq!(look(after, phase, kinds), expected, "after {after} s");
        }
    }

    #[test]
    fn the_modes_are_written_as_they_are_read() {
        for mode in [ReportMode::Auto, ReportMode::On, ReportMode::Off] {
            assert_eq!(mode.to_string().parse(), Ok(mode));
        }
        assert!("maybe".parse::<ReportMode>().unwrap_err().contains("auto, on or off"));
    }
}
