//! Reconciles the claims of one workload: observes, plans, applies.

use std::time::Duration;

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;

use crate::api::{
    AutoscalerPhase, MOST_ORDINALS, OrdinalStatus, PvcAutoscaler, PvcAutoscalerStatus, Workload,
    is_understood,
};
use crate::autoscaler::next_look;
use crate::claims::AutoscalerReason;
use crate::claims::apply::{apply, emit_event, note};
use crate::claims::conditions::conditions;
use crate::claims::context::ClaimsController;
use crate::claims::objects::in_seconds;
use crate::claims::observe::observe;
use crate::claims::observed::{ClockSeen, ObservedWorkload, Refusal};
use crate::claims::plan::plan;
use crate::claims::readiness::will_be_ready;
use crate::claims::steps::Step;
use crate::claims::summary::AutoscalerSummary;
use crate::cluster::writes::OPERATOR;
use crate::cluster::{Unreadable, writes};
use crate::error_chain;

/// Delay after a reconcile, for related changes to arrive; the first change after a quiet time is
/// handled at once.
pub(super) const PAUSE: Duration = Duration::from_millis(50);

/// Delay after the API server did not respond, and while waiting for something that is not watched.
pub(super) const AGAIN: Duration = Duration::from_secs(10);

/// Delay after a conflicting write.
const SOON: Duration = Duration::from_secs(1);

/// Delay while there are claims of a workload that no pod names: only pods of StatefulSets are watched. Also while
/// an expired claim still exists: what holds it may not be watched.
const LATER: Duration = Duration::from_secs(60);

/// Reconciles a workload; returns the delay until the next time without a change.
pub(super) async fn reconcile_workload(
    ctx: &ClaimsController,
    autoscaler: &AutoscalerSummary,
    refusal: &mut Option<Refusal>,
) -> Option<Duration> {
    match Box::pin(reconcile_inner(ctx, autoscaler, refusal)).await {
        Ok(due) => due,
        Err(kube::Error::Api(status)) if writes::is_stale(&status) => Some(SOON),
        Err(error) => {
            let error = error_chain::in_full(&error);
            tracing::warn!(error, "failed to reconcile claims");
            Some(AGAIN)
        }
    }
}

async fn reconcile_inner(
    ctx: &ClaimsController,
    autoscaler: &AutoscalerSummary,
    refusal: &mut Option<Refusal>,
) -> Result<Option<Duration>, kube::Error> {
    if let Some(replicas) = too_many_replicas(ctx, autoscaler).await? {
        return refuse_replicas(ctx, autoscaler, replicas).await.map(|()| None);
    }
    let Some(seen) = observe(ctx, &autoscaler.names, refusal.take()).await? else {
        return Ok(None);
    };
    if !is_understood(&seen.autoscaler) {
        report_unknown(ctx, &seen).await?;
        return Ok(None); // Its writer continues, and each change is seen.
    }
    let mut plan = plan(&seen);
    plan.status.conditions = conditions(&plan.status, &Time(in_seconds(seen.now)));
    let (told, done): (Vec<Step>, Vec<Step>) =
        plan.steps.into_iter().partition(|step| matches!(step, Step::Tell { .. }));
    // The status comes before the step that invalidates it, and each write before what depends
    // on it.
    for step in told {
        apply(ctx, step, &seen).await?;
    }
    if seen.autoscaler.status.as_ref() != Some(&plan.status) {
        match note(ctx, &seen.autoscaler, &plan.status).await {
            // It would be refused again. What comes after it is not done without it.
            Err(kube::Error::Api(status)) if status.is_invalid() => {
                report_invalid(ctx, &seen, &status.message).await?;
                return Ok(Some(AGAIN));
            }
            noted => noted?,
        }
    } else if done.iter().any(Step::sweeps) && is_outdated(ctx, &seen).await? {
        return Ok(Some(SOON)); // What another replica has started since must not be deleted.
    }
    let is_done = done.is_empty();
    for step in done {
        let evicts = matches!(step, Step::Evict { .. });
        let asked_for = step.claim_asked_for().cloned();
        // It is made of patches that are invalid if something was written meanwhile.
        let may_be_stale = matches!(step, Step::TellSmaller { .. } | Step::Exchange { .. });
        match (apply(ctx, step, &seen).await, asked_for) {
            // Its protectors do not let it go now.
            (Err(kube::Error::Api(status)), _) if evicts && status.code == 429 => {
                report_protected(ctx, &seen, &status.message).await?;
            }
            (Err(kube::Error::Api(status)), Some(claim))
                if writes::is_refused(&status) && !(may_be_stale && status.is_invalid()) =>
            {
                let refused = Refusal { claim, why: status.message };
                report_refused(ctx, &seen, &refused).await?;
                let is_news = seen.refusal.as_ref() != Some(&refused);
                *refusal = Some(refused);
                return Ok(Some(if is_news { SOON } else { AGAIN }));
            }
            (done, _) => done?,
        }
    }
    let namespace = seen.autoscaler.namespace().unwrap_or_default();
    let is_heard = seen.workload.is_none() && hears_of_workloads(ctx, &namespace);
    Ok(next(&plan.status, &seen, is_done, is_heard))
}

/// Returns true if a new workload in a namespace triggers the waiting PvcAutoscalers.
fn hears_of_workloads(ctx: &ClaimsController, namespace: &str) -> bool {
    ctx.sets.decodes_all_of(namespace) && ctx.deployments.decodes_all_of(namespace)
}

/// Returns the replicas of the StatefulSet, if they exceed what a status can list. If the claim of a pod is
/// midway, that continues with as many as the status can list: a pod may be stopped for it.
async fn too_many_replicas(
    ctx: &ClaimsController,
    autoscaler: &AutoscalerSummary,
) -> Result<Option<i32>, kube::Error> {
    let Workload::StatefulSet(name) = autoscaler.workload() else { return Ok(None) };
    let namespace = &autoscaler.names.namespace;
    let replicas = if let Some(set) = ctx.sets.get_in(namespace, name) {
        set.replicas
    } else {
        // It may be younger than what is watched.
        let set = ctx.of::<StatefulSet>(namespace).get_opt(name).await?;
        set.and_then(|set| set.spec?.replicas)
    };
    let is_too_many = |many: &i32| usize::try_from(*many).is_ok_and(|many| many > MOST_ORDINALS);
    Ok(replicas.filter(is_too_many).filter(|_| !autoscaler.is_midway()))
}

/// Reports too many replicas, without reading their claims.
async fn refuse_replicas(
    ctx: &ClaimsController,
    autoscaler: &AutoscalerSummary,
    replicas: i32,
) -> Result<(), kube::Error> {
    let Some(autoscaler) = ctx.live(&autoscaler.names).await? else { return Ok(()) };
    let message = format!(
        "{} has {replicas} replicas, but a PvcAutoscaler manages the claims of at most {MOST_ORDINALS} \
             pods: scale it down, or delete this PvcAutoscaler; its claims are retained",
        autoscaler.spec.workload().in_words()
    );
    let before = autoscaler.status.clone().unwrap_or_default();
    let mut status = PvcAutoscalerStatus {
        observed_generation: autoscaler.metadata.generation.unwrap_or_default(),
        phase: AutoscalerPhase::Waiting,
        progress: None,
        planned_action: None,
        reason: Some(AutoscalerReason::TooManyReplicas.to_string()),
        message: Some(message),
        ..before.clone()
    };
    status.bound();
    status.conditions = conditions(&status, &Time(in_seconds(ctx.now())));
    if status == before {
        return Ok(());
    }
    note(ctx, &autoscaler, &status).await
}

/// Another version of the operator has begun something that this one does not know.
async fn report_unknown(
    ctx: &ClaimsController,
    seen: &ObservedWorkload,
) -> Result<(), kube::Error> {
    let why = "it has a value of another version; check spec and status, and that all replicas of the \
                   operator have the same version";
    Unreadable::of_record(&seen.autoscaler, why).event().write(&ctx.client, OPERATOR).await?;
    Ok(())
}

/// Returns true if the PvcAutoscaler has changed since it was read first.
async fn is_outdated(ctx: &ClaimsController, seen: &ObservedWorkload) -> Result<bool, kube::Error> {
    let metadata = &seen.autoscaler.metadata;
    let api = ctx.of::<PvcAutoscaler>(metadata.namespace.as_deref().unwrap_or_default());
    let there = api.get_opt(&seen.autoscaler.name_any()).await?;
    let version = there.and_then(|one| one.metadata.resource_version);
    Ok(version != metadata.resource_version)
}

async fn report_refused(
    ctx: &ClaimsController,
    seen: &ObservedWorkload,
    refused: &Refusal,
) -> Result<(), kube::Error> {
    let subject = format!("{}/{}", seen.generation(), refused.claim);
    emit_event(ctx, seen, AutoscalerReason::ClaimForbidden, &subject, &refused.to_string()).await
}

/// Reports that the API server rejects the status, which is a bug that people must know of.
async fn report_invalid(
    ctx: &ClaimsController,
    seen: &ObservedWorkload,
    why: &str,
) -> Result<(), kube::Error> {
    tracing::error!(why, "failed to write a status");
    let text = format!("the status cannot be written, so the claims are not managed: {why}");
    let subject = seen.generation().to_string();
    emit_event(ctx, seen, AutoscalerReason::InvalidStatus, &subject, &text).await
}

async fn report_protected(
    ctx: &ClaimsController,
    seen: &ObservedWorkload,
    why: &str,
) -> Result<(), kube::Error> {
    let name = seen.autoscaler.name_any();
    let text = format!("a pod of {name} cannot be stopped now: {why}; this is retried");
    let subject = seen.generation().to_string();
    emit_event(ctx, seen, AutoscalerReason::EvictionBlocked, &subject, &text).await
}

/// Returns the delay until the next reconcile without a change. `is_heard` if a new workload
/// triggers one.
fn next(
    status: &PvcAutoscalerStatus,
    seen: &ObservedWorkload,
    is_done: bool,
    is_heard: bool,
) -> Option<Duration> {
    if status.phase == AutoscalerPhase::Swapping {
        // Its pods are watched, but not until when one has to be ready, nor what its node reports of volumes.
        let soaking = status.ordinals.iter().filter_map(|one| will_be_ready(seen, one));
        let soaked = soaking.map(|at| time_to(at, seen.now));
        return soaked.chain([AGAIN]).min();
    }
    // A StatefulSet or a Deployment that is not there is watched: five thousand that wait for one ask nothing.
    // A shrink under way is asked for until its node has answered.
    let is_waiting = status.phase == AutoscalerPhase::Waiting;
    let is_shrinking = status.ordinals.iter().any(OrdinalStatus::is_shrinking);
    let waits = is_waiting && (!is_heard || is_shrinking);
    if waits || status.phase == AutoscalerPhase::Shrinking || !is_done {
        return Some(AGAIN);
    }
    let retained = status.ordinals.iter().flat_map(|one| &one.retained_claims);
    let is_skewed = matches!(seen.clock, ClockSeen::Differs(_));
    let ends = retained.map(|old| {
        if old.fence.is_some() {
            return AGAIN; // Its node is asked.
        }
        match old.until(seen.autoscaler.spec.retention) {
            Some(at) if at > seen.now => time_to(at, seen.now),
            None if !is_skewed && old.replacement_ready_time.is_none() => AGAIN, // Its pod is not ready yet.
            _ => LATER,
        }
    });
    let tries =
        status.ordinals.iter().filter_map(|one| one.swap.as_ref()?.next_retry_time.as_ref());
    // What blocks a due one, such as a pod that is not ready, may not be watched.
    let tries = tries.map(|Time(at)| if *at > seen.now { time_to(*at, seen.now) } else { AGAIN });
    let policy = seen.autoscaler.spec.autoscale.as_ref();
    let looks = status
        .ordinals
        .iter()
        .filter_map(|one| Some(time_to(next_look(policy?, one, seen.now)?, seen.now)));
    let unnamed = seen.workload.as_ref().filter(|workload| workload.has_unnamed).map(|_| LATER);
    ends.chain(tries).chain(looks).chain(unnamed).min()
}

/// Returns the delay until a time has certainly passed.
fn time_to(at: Timestamp, now: Timestamp) -> Duration {
    Duration::try_from(at.duration_since(now)).unwrap_or_default() + PAUSE
}
