//! Plans for people.

use std::fmt::Write;

use kube::ResourceExt;

use super::{Plan, PodRow, Procedure};
use crate::api::{AutoscalerMode, PvcAutoscaler};
use crate::commands::columns::{TableOptions, columns};
use crate::commands::{cannot_decode, may_not_read, resource_name};
use crate::doctor::{WIDTH, wrapped};
use crate::volume::few;

/// Prints plans for people; `in_full` adds all details of each pod.
pub fn print(plans: &[Plan], in_full: bool, headers: bool) -> String {
    let mut text = String::new();
    for plan in plans {
        if !text.is_empty() {
            text += "\n";
        }
        text += &head(plan);
        text += &table_of(plan, headers);
        text += &progress_of(plan);
        if in_full {
            text += &plan.pods.iter().map(details).collect::<String>();
        } else {
            text += &decided(plan);
        }
    }
    if let Some(plan) = plans.first() {
        text += &may_not_read(&plan.unseen);
        text += &cannot_decode(&plan.unreadable);
    }
    text
}

/// The names of the PvcAutoscalers, as `kubectl get --output name` prints them.
pub fn resource_names(plans: &[Plan]) -> String {
    plans.iter().map(|plan| resource_name::<PvcAutoscaler>(&plan.name)).collect()
}

/// Headline of a plan: the workload and the phase.
fn head(plan: &Plan) -> String {
    // Of an edit that was not seen yet it is not known how many are.
    let claims = if plan.is_observed && plan.claim_count > 0 {
        format!(", {}/{} up to date", plan.ready_claim_count, plan.claim_count)
    } else {
        String::new()
    };
    let mut head = format!(
        "{}/{} manages the claims of {}: {:?}{claims}.",
        plan.namespace, plan.name, plan.workload, plan.phase
    );
    if plan.mode == AutoscalerMode::DryRun {
        head += " Its mode is DryRun: only claims that are missing are made.";
    }
    if let Some(policy) = &plan.policy {
        let _ = write!(head, " Each of them automatically {policy}.");
    }
    if !plan.is_observed {
        head += " The operator has not seen its last edit yet.";
    }
    wrapped(&head, "", WIDTH)
}

/// A line for each pod.
pub(in crate::commands) fn table(plan: &Plan) -> String {
    table_of(plan, true)
}

fn table_of(plan: &Plan, headers: bool) -> String {
    let mut rows = vec![["POD", "CLAIM", "CURRENT", "DESIRED", "ACTION"].map(str::to_owned)];
    rows.extend(plan.pods.iter().map(row));
    if plan.pods.is_empty() {
        return "  No claim exists yet.\n".to_owned();
    }
    let mut text = String::new();
    for line in columns(&rows, [false; 5], headers).lines() {
        let _ = writeln!(text, "  {line}");
    }
    text
}

fn of_class(size: String, class: Option<&String>) -> String {
    match class {
        Some(class) => format!("{size} {class}"),
        None => size,
    }
}

fn row(pod: &PodRow) -> [String; 5] {
    let has = pod.has.map_or_else(|| "–".to_owned(), |has| has.to_string());
    let by = match (&pod.swap, pod.by) {
        (Some(swap), Procedure::Abort) => format!("swap: {:?}, to be aborted", swap.phase),
        (None, Procedure::Abort) => "abort".to_owned(),
        (Some(swap), _) => format!("swap: {:?}", swap.phase),
        (None, Procedure::Nothing) => "–".to_owned(),
        (None, Procedure::Make) => "create".to_owned(),
        (None, Procedure::Recreate) => "create again, once you have deleted it".to_owned(),
        (None, Procedure::Grow) => "expand".to_owned(),
        (None, Procedure::Shrink) => "shrink".to_owned(),
        (None, Procedure::Swap) => "swap".to_owned(),
        (None, Procedure::RollBack) => "roll back".to_owned(),
        (None, Procedure::Unseen) => "not known: you may not read its claim".to_owned(),
        (None, Procedure::Unreadable) => {
            format!("not decided: {}", pod.change.as_deref().unwrap_or_default())
        }
        (None, Procedure::Impossible) => "not possible: another volumeMode".to_owned(),
    };
    let held = pod.held.as_ref().map(|held| format!(", not yet: {held}")).unwrap_or_default();
    [
        pod.pod.clone(),
        pod.claim.clone(),
        of_class(has, pod.class.as_ref()),
        of_class(pod.wanted.to_string(), pod.wanted_class.as_ref().or(pod.class.as_ref())),
        by + &held,
    ]
}

/// Progress, next action and blocking reason of a plan.
fn progress_of(plan: &Plan) -> String {
    let waits = plan.message.as_ref().map(|message| {
        let reason = plan.reason.as_ref().map(|reason| format!("{reason}: ")).unwrap_or_default();
        reason + message
    });
    // What is planned follows what it waits for: it is not next.
    let planned = if waits.is_some() { "After that:" } else { "Planned:" };
    let parts =
        [("Progress:", &plan.progress), ("Blocked by:", &waits), (planned, &plan.planned_action)];
    let mut text = String::new();
    for (what, said) in parts.into_iter().filter_map(|(what, said)| Some((what, said.as_ref()?))) {
        let _ = write!(text, "{what}\n{}", wrapped(said, "  ", WIDTH));
    }
    text
}

/// Last sizing decisions: one line for all pods with the same decision.
fn decided(plan: &Plan) -> String {
    let mut groups: Vec<(&String, Vec<&String>)> = Vec::new();
    for (pod, why) in plan.pods.iter().filter_map(|pod| Some((&pod.pod, pod.decision.as_ref()?))) {
        match groups.iter_mut().find(|(said, _)| *said == why) {
            Some((_, pods)) => pods.push(pod),
            None => groups.push((why, vec![pod])),
        }
    }
    if groups.is_empty() {
        return String::new();
    }
    let lines =
        groups.iter().map(|(why, pods)| wrapped(&format!("{}: {why}", few(pods)), "  ", WIDTH));
    format!("Decided:\n{}", lines.collect::<String>())
}

/// All details of one pod.
fn details(pod: &PodRow) -> String {
    let mut said = Vec::new();
    if let Some(swap) = &pod.swap {
        let begun = format!("{:?} to claim {}: {}", swap.phase, swap.claim, swap.summary);
        let told = [&swap.progress, &swap.message].into_iter().flatten().cloned();
        said.push(std::iter::once(begun).chain(told).collect::<Vec<_>>().join("; "));
    } else if let Some(change) = &pod.change {
        said.push(format!("gets another claim: {change}"));
    }
    said.extend(pod.decision.clone());
    for old in &pod.retained {
        let until =
            old.until(pod.retention).map(|until| format!("is retained at least until {until}"));
        let until = until
            .unwrap_or_else(|| "is retained until the pod is ready, and after that".to_owned());
        said.push(format!("claim {} {until}", old.name));
    }
    if said.is_empty() {
        return String::new();
    }
    let lines: String = said.iter().map(|one| wrapped(one, "  ", WIDTH)).collect();
    format!("{}:\n{lines}", pod.pod)
}

/// Prints a line for each PvcAutoscaler, or nothing; `wide` adds the template, the mode and the policy.
pub fn claims_of(
    autoscalers: &[PvcAutoscaler],
    TableOptions { wide, headers }: TableOptions,
) -> String {
    if autoscalers.is_empty() {
        return String::new();
    }
    let head = [
        "NAMESPACE",
        "PVCAUTOSCALER",
        "WORKLOAD",
        "CLAIMS",
        "TEMPLATE",
        "MODE",
        "POLICY",
        "PHASE",
        "MESSAGE",
    ];
    let mut rows = vec![head.map(str::to_owned)];
    rows.extend(autoscalers.iter().map(|one| {
        let status = one.status.clone().unwrap_or_default();
        let counted = status.ready_claims();
        let decided = decision(one);
        let says = status.message.or(status.progress).or(status.planned_action).or(decided);
        let template = &one.spec.volume_claim_template.spec;
        let policy = one.spec.autoscale.as_ref().map(ToString::to_string);
        [
            one.namespace().unwrap_or_default(),
            one.name_any(),
            one.spec.workload().to_string(),
            counted,
            of_class(
                template.resources.requests.storage.to_string(),
                template.storage_class_name.as_ref(),
            ),
            format!("{:?}", one.spec.mode),
            policy.unwrap_or_else(|| "–".to_owned()),
            format!("{:?}", status.phase),
            says.unwrap_or_else(|| "–".to_owned()),
        ]
    }));
    let to_the_right = [false, false, false, true, false, false, false, false, false];
    let table = if wide {
        columns(&rows, to_the_right, headers)
    } else {
        let usual = |row: &[String; 9]| without_wide(row.clone());
        columns(&rows.iter().map(usual).collect::<Vec<_>>(), without_wide(to_the_right), headers)
    };
    format!("\n{table}")
}

/// The columns that are always shown.
fn without_wide<T>(row: [T; 9]) -> [T; 6] {
    let [namespace, name, workload, claims, _, _, _, phase, says] = row;
    [namespace, name, workload, claims, phase, says]
}

/// Last sizing decision for the first claim, with the number of claims that have another one.
fn decision(autoscaler: &PvcAutoscaler) -> Option<String> {
    let ordinals = &autoscaler.status.as_ref()?.ordinals;
    let mut decisions =
        ordinals.iter().filter_map(|one| Some((one.ordinal, one.last_decision.as_ref()?)));
    let (first, why) = decisions.next()?;
    let pod = autoscaler.pod_called(first);
    let others = decisions.filter(|(_, other)| *other != why).count();
    Some(match others {
        0 => why.clone(),
        more => format!("{pod}: {why}; other decisions for {more} more"),
    })
}
