//! The commands for people: run, and print the result.

use std::io::{self, BufRead, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use kube::Client;
use serde::Serialize;
use tokio::time::sleep;

use crate::cli::{
    AbortArgs, Crds, DoctorArgs, EditArgs, ExpandArgs, Explain, ListOutput, Migrate, OutputFormat,
    PlanArgs, Recover, ReportArgs, RollbackArgs, ShrinkArgs, StatusArgs, VersionArgs,
};
use crate::commands::changes::ChangeWatch;
use crate::commands::edit::{EditDecision, RequestedChange, Whose};
use crate::doctor::{self, Finding, FindingSeverity, harmless};
use crate::run::client::client_of;
use crate::run::log;
use crate::run::print::{print, print_to_listener};
use crate::{cli, commands};

/// Prints a result in this format; `text` formats it for people, with colours or without.
pub fn show<T: Serialize>(
    output: OutputFormat,
    result: &T,
    text: impl FnOnce(bool) -> String,
) -> Result<ExitCode> {
    print(&written(output, result, text)?)
}

/// Formats a result.
fn written<T: Serialize>(
    output: OutputFormat,
    result: &T,
    text: impl FnOnce(bool) -> String,
) -> Result<String> {
    Ok(match output {
        OutputFormat::Table => text(cli::styled(&io::stdout())),
        OutputFormat::Json => serde_json::to_string_pretty(result)? + "\n",
        OutputFormat::Yaml => serde_saphyr::to_string(result)?,
    })
}

/// Formats a list; `names` returns only the names.
fn listed<T: Serialize>(
    output: ListOutput,
    result: &T,
    names: impl FnOnce() -> String,
    text: impl FnOnce() -> String,
) -> Result<String> {
    match output {
        ListOutput::Name => Ok(names()),
        ListOutput::Table | ListOutput::Wide => Ok(text()),
        ListOutput::Json => written(OutputFormat::Json, result, |_| String::new()),
        ListOutput::Yaml => written(OutputFormat::Yaml, result, |_| String::new()),
    }
}

fn line(text: &str) -> Result<ExitCode> {
    print(&format!("{text}\n"))
}

/// `pliant crds --apply`.
pub async fn apply_definitions(args: &Crds) -> Result<ExitCode> {
    for name in commands::apply_definitions(&client_of(&args.cluster).await?).await? {
        line(&format!("{name} applied"))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// How long to wait for further changes after the first, such as those of one reconcile.
const TOGETHER: Duration = Duration::from_millis(500);

/// Prints the output of `look`; with `changes`, again whenever it differs, until the reader closes the
/// output.
async fn show_again(
    mut changes: Option<ChangeWatch>,
    look: impl AsyncFn() -> Result<String>,
) -> Result<ExitCode> {
    let mut shown = String::new();
    loop {
        let text = match look().await {
            // Watches outlast a restart of the API server, so this does.
            Err(error) if !shown.is_empty() => {
                log::complain(&format_args!("{}: {error:#}", cli::program()));
                shown.clone()
            }
            other => other?,
        };
        if text != shown {
            let gap = if shown.is_empty() { "" } else { "\n" };
            if !print_to_listener(&format!("{gap}{text}"))? {
                return Ok(ExitCode::SUCCESS);
            }
            shown = text;
        }
        let Some(changes) = &mut changes else { return Ok(ExitCode::SUCCESS) };
        changes.next().await;
        sleep(TOGETHER).await;
        changes.forget();
    }
}

/// `pliant status`.
pub async fn status(args: &StatusArgs) -> Result<ExitCode> {
    let client = client_of(&args.cluster).await?;
    let (list, namespace) = (&args.list, args.cluster.namespace.as_deref());
    let changes = list.watch.then(|| ChangeWatch::of_status(&client, namespace));
    show_again(changes, async || {
        let status = commands::status(&client, namespace).await?;
        let names = || status.resource_names();
        listed(list.output, &status.records(), names, || status.text(list.table()))
    })
    .await
}

/// `pliant explain`.
pub async fn explain(args: &Explain) -> Result<ExitCode> {
    let client = client_of(&args.cluster).await?;
    let namespace = args.cluster.namespace.as_deref();
    let told = commands::explain::answer(&client, cli::program(), namespace, &args.subject).await?;
    show(args.output, &told, |styled| commands::explain::print_answer(&told, styled))
}

/// `pliant expand`; a managed claim expands by its template, which would otherwise revert it.
pub async fn expand(args: &ExpandArgs) -> Result<ExitCode> {
    let client = client_of(&args.edit.cluster).await?;
    let (program, namespace) = (cli::program(), args.edit.cluster.namespace.as_deref());
    if let Whose::Claim(claim) = &args.whose
        && !commands::edit::is_kept(&client, namespace, claim).await?
    {
        commands::grow(&client, program, namespace, claim, args.size, tell_line).await?;
        if args.edit.wait {
            let limit = args.edit.timeout.map(|time| time.0);
            commands::await_growth(&client, namespace, claim, args.size, limit, tell_line).await?;
        } else {
            let namespace = namespace.unwrap_or(client.default_namespace());
            tell_line(&format!(
                "see         {program} explain pvc/{claim} --namespace {namespace}"
            ));
        }
        return Ok(ExitCode::SUCCESS);
    }
    edit(&client, &args.whose, &RequestedChange::Grow(args.size), &args.edit).await
}

/// `pliant shrink`.
pub async fn shrink(args: &ShrinkArgs) -> Result<ExitCode> {
    let client = client_of(&args.edit.cluster).await?;
    edit(&client, &args.whose, &RequestedChange::Shrink(args.size), &args.edit).await
}

/// `pliant migrate`.
pub async fn migrate(args: &Migrate) -> Result<ExitCode> {
    let client = client_of(&args.edit.cluster).await?;
    edit(&client, &args.whose, &RequestedChange::Move(args.storage_class.clone()), &args.edit).await
}

/// `pliant rollback`.
pub async fn rollback(args: &RollbackArgs) -> Result<ExitCode> {
    let client = client_of(&args.edit.cluster).await?;
    edit(&client, &args.whose, &RequestedChange::RollBack, &args.edit).await
}

/// `pliant abort`.
pub async fn abort(args: &AbortArgs) -> Result<ExitCode> {
    let client = client_of(&args.edit.cluster).await?;
    edit(&client, &args.whose, &RequestedChange::Abort, &args.edit).await
}

/// Previews an edit of a PvcAutoscaler, and applies it if confirmed.
async fn edit(
    client: &Client,
    whose: &Whose,
    wish: &RequestedChange,
    how: &EditArgs,
) -> Result<ExitCode> {
    let program = cli::program();
    let seen = commands::edit::observe(client, program, how.cluster.namespace.as_deref()).await?;
    let edit = match commands::edit::judge(&seen, whose, wish)? {
        EditDecision::Edit(edit) => edit,
        EditDecision::Unkept(unkept) => {
            print(&unkept.objects.iter().map(document).collect::<Result<String>>()?)?;
            bail!(unkept.why);
        }
    };
    print(&edit.in_words(wish))?;
    if !how.yes && !is_confirmed()? {
        return line("Nothing was changed. Run again with --yes to apply.");
    }
    let edited = commands::edit::apply(client, &edit).await?;
    tell_line(match wish {
        RequestedChange::RollBack => "rollback    requested",
        RequestedChange::Abort => "abort       requested",
        RequestedChange::Grow(_) | RequestedChange::Shrink(_) | RequestedChange::Move(_) => {
            "template    edited"
        }
    });
    if how.wait {
        let limit = how.timeout.map(|time| time.0);
        commands::edit::follow(client, program, &edited, limit, tell_line).await?;
    } else {
        let (name, namespace) = (&edit.plan.name, &edit.plan.namespace);
        tell_line(&format!("see         {program} plan {name} --namespace {namespace}"));
    }
    Ok(ExitCode::SUCCESS)
}

/// Asks at a terminal whether to apply the change; false without a terminal.
fn is_confirmed() -> Result<bool> {
    if !(io::stdin().is_terminal() && io::stderr().is_terminal()) {
        return Ok(false);
    }
    let mut errors = io::stderr();
    write!(errors, "Apply this change? [y/N] ")?;
    errors.flush()?;
    let mut answer = String::new();
    io::stdin().lock().read_line(&mut answer)?;
    if !answer.ends_with('\n') {
        writeln!(errors)?;
    }
    Ok(is_yes(&answer))
}

fn is_yes(answer: &str) -> bool {
    ["y", "yes"].contains(&answer.trim().to_lowercase().as_str())
}

/// Prints a line; the operation continues even if the output is closed.
fn tell_line(text: &str) {
    let _ = line(&harmless(text));
}

/// `pliant plan`.
pub async fn plan(args: &PlanArgs) -> Result<ExitCode> {
    let client = client_of(&args.cluster).await?;
    let (list, namespace) = (&args.list, args.cluster.namespace.as_deref());
    let watched = (!list.all_namespaces).then(|| namespace.unwrap_or(client.default_namespace()));
    let changes = list.watch.then(|| ChangeWatch::of_plans(&client, watched));
    show_again(changes, async || {
        let plans = if list.all_namespaces {
            commands::plan::plan_of_all(&client).await?
        } else {
            commands::plan::plan(&client, namespace, args.subject.as_ref()).await?
        };
        let place = if list.all_namespaces { "any" } else { "this" };
        let table = list.table();
        let in_full = args.subject.is_some() || table.wide;
        let names = || commands::plan::resource_names(&plans);
        listed(list.output, &plans, names, || match plans.as_slice() {
            [] => format!("No PvcAutoscaler exists in {place} namespace.\n"),
            plans => commands::plan::print(plans, in_full, table.headers),
        })
    })
    .await
}

/// `pliant version`; prints the version of this program even if the cluster does not respond.
pub async fn version(args: &VersionArgs) -> Result<ExitCode> {
    let show = |versions: &commands::Versions| show(args.output, versions, |_| versions.text());
    if args.client {
        return show(&commands::Versions::of_client());
    }
    let asked = async {
        Ok::<_, anyhow::Error>(commands::versions(&client_of(&args.cluster).await?).await?)
    };
    match asked.await {
        Ok(versions) => show(&versions),
        Err(error) => {
            show(&commands::Versions::of_client())?;
            Err(error)
        }
    }
}

/// `pliant recover`; the exit status reports whether all selected volumes are recovered.
pub async fn recover(args: Recover) -> Result<ExitCode> {
    let client = client_of(&args.cluster).await?;
    let seen = commands::adopt::observe(&client).await?;
    let namespace = args.cluster.namespace;
    let wish = commands::adopt::RecoveryOptions {
        namespace,
        claim: args.claim,
        class: args.storage_class,
    };
    let ids = args.volume.map_or_else(|| commands::adopt::all(&seen), |id| vec![id]);
    if ids.is_empty() {
        line("no volume is orphaned: each has its PersistentVolume")?;
    }
    let mut left = 0;
    for id in &ids {
        let adoption = match commands::adopt::plan(&seen, id, &wish) {
            Ok(adoption) => adoption,
            Err(why) if args.all => {
                log::complain(&format_args!("{}: {why}", cli::program()));
                left += 1;
                continue;
            }
            Err(why) => bail!(why),
        };
        if args.dry_run {
            print(&documents(&adoption)?)?;
        } else {
            commands::adopt::adopt(&client, &adoption).await?;
            line(&adoption.in_words())?;
        }
    }
    Ok(if left == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The objects of a recovery, as `kubectl apply --filename -` reads them.
fn documents(adoption: &commands::adopt::Adoption) -> Result<String> {
    let claim = adoption.claim.as_ref().map(document).transpose()?;
    Ok(document(&adoption.volume)? + &claim.unwrap_or_default())
}

/// One document of a stream of YAML.
pub fn document<T: Serialize>(object: &T) -> Result<String> {
    let yaml = serde_saphyr::to_string(object).context("failed to serialize an object as YAML")?;
    Ok(format!("---\n{yaml}"))
}

/// `pliant man`.
pub fn manual(dir: &Path) -> Result<ExitCode> {
    let written = std::fs::create_dir_all(dir).and_then(|()| cli::manual(dir));
    written.with_context(|| format!("failed to write manual pages to {}", dir.display()))?;
    Ok(ExitCode::SUCCESS)
}

/// True if `pliant doctor` checks a cluster; called by kubectl, it never checks this host.
pub fn is_about_a_cluster(args: &DoctorArgs) -> bool {
    args.cluster || args.node.is_some() || args.which.are_given() || cli::program() != "pliant"
}

/// `pliant doctor` for a cluster.
pub async fn check_up(args: &DoctorArgs) -> Result<ExitCode> {
    let seen = commands::checkup::observe(&client_of(&args.which).await?).await?;
    let findings = commands::checkup::judge(&seen, cli::program(), args.node.as_deref())?;
    print_findings(args.output, &findings)
}

/// Prints findings; the exit status reports whether there are errors.
pub fn print_findings(output: OutputFormat, findings: &[Finding]) -> Result<ExitCode> {
    show(output, &findings, |styled| doctor::print(findings, styled))?;
    let bad = findings.iter().any(|finding| finding.severity == FindingSeverity::Error);
    Ok(if bad { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// `pliant report`.
pub async fn report(args: &ReportArgs) -> Result<ExitCode> {
    let parts =
        commands::report::report(&client_of(&args.cluster).await?, cli::program(), args.tail)
            .await?;
    let text = parts.iter().map(document).collect::<Result<String>>()?;
    let is_file = |file: &&PathBuf| file.as_os_str() != "-";
    let Some(file) = args.output_file.as_ref().filter(is_file) else { return print(&text) };
    let written = std::fs::write(file, &text);
    written.with_context(|| format!("failed to write {}", file.display()))?;
    line(&format!("{}: {} parts; read it before you send it", file.display(), parts.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_yes_is_a_yes() {
        for answer in ["y\n", "Y", "yes\n", " YES \r\n"] {
            assert!(is_yes(answer), "{answer:?}");
        }
        for answer in ["", "\n", "n\n", "no\n", "yy\n", "y n\n"] {
            assert!(!is_yes(answer), "{answer:?}");
        }
    }

    #[test]
    fn lines_of_a_log_stay_lines() {
        let (what, found) = ("log".to_owned(), "WARN a: b\nINFO c\n".into());
        let part = commands::report::ReportSection { what, found };
        assert_eq!(
            document(&part).unwrap(),
            "---\nsection: log\ncontent: |\n  WARN a: b\n  INFO c\n"
        );
    }
}
