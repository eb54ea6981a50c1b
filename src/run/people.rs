//! The commands for people: ask, and print what was answered.

use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use kube::Client;
use serde::Serialize;
use tokio::time::sleep;

use crate::ask::changes::Changes;
use crate::ask::edit::{Answer, Whose, Wish};
use crate::cli::{
    Abort, Adopt, Crds, Doctor, Edit, Explain, Grow, Move, Output, Plan, Report, Rollback, Shrink,
    Status, Version,
};
use crate::doctor::{self, Finding, Level, harmless};
use crate::run::client::client_of;
use crate::run::{log, print, print_to_listener};
use crate::{ask, cli};

/// Print a result as it was asked for; `text` makes the text for people, with colours or without.
pub fn show<T: Serialize>(
    output: Output,
    result: &T,
    text: impl FnOnce(bool) -> String,
) -> Result<ExitCode> {
    print(&written(output, result, text)?)
}

/// A result as it was asked for.
fn written<T: Serialize>(
    output: Output,
    result: &T,
    text: impl FnOnce(bool) -> String,
) -> Result<String> {
    Ok(match output {
        Output::Text => text(cli::styled(&io::stdout())),
        Output::Json => serde_json::to_string_pretty(result)? + "\n",
        Output::Yaml => serde_saphyr::to_string(result)?,
    })
}

fn line(text: &str) -> Result<ExitCode> {
    print(&format!("{text}\n"))
}

/// `pliant crds --apply`.
pub async fn apply_definitions(args: &Crds) -> Result<ExitCode> {
    for name in ask::apply_definitions(&client_of(&args.cluster).await?).await? {
        line(&format!("{name} applied"))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// How long changes are waited for that come with one that has come, such as those of one reconcile.
const TOGETHER: Duration = Duration::from_millis(500);

/// Print what `look` finds; with `changes` again after each of them that changes what it finds, until nobody listens.
async fn show_again(
    mut changes: Option<Changes>,
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
pub async fn status(args: &Status) -> Result<ExitCode> {
    let client = client_of(&args.cluster).await?;
    let namespace = args.namespace.as_deref();
    let changes = args.watch.then(|| Changes::of_status(&client, namespace));
    show_again(changes, async || {
        let status = ask::status(&client, namespace).await?;
        let wide = args.output.is_wide();
        written(args.output.into(), &status.records(), |_| status.text(wide))
    })
    .await
}

/// `pliant explain`.
pub async fn explain(args: &Explain) -> Result<ExitCode> {
    let client = client_of(&args.cluster).await?;
    let namespace = args.namespace.as_deref();
    let told = ask::explain(&client, cli::program(), namespace, &args.subject).await?;
    show(args.output, &told, |styled| ask::explain::print(&told, styled))
}

/// `pliant grow`; a claim that a PvcAutoscaler keeps grows by its template, which else would undo it.
pub async fn grow(args: &Grow) -> Result<ExitCode> {
    let client = client_of(&args.cluster).await?;
    let namespace = args.namespace.as_deref();
    if let Whose::Claim(claim) = &args.whose
        && !ask::edit::is_kept(&client, namespace, claim).await?
    {
        let (program, wait) = (cli::program(), args.wait.0);
        ask::grow(&client, program, namespace, claim, args.size, wait, tell_line).await?;
        return Ok(ExitCode::SUCCESS);
    }
    let seen = ask::edit::observe(&client, cli::program(), namespace).await?;
    let how = Edit { yes: args.yes, wait: Some(args.wait), ..Edit::default() };
    edit(&client, &seen, &args.whose, &Wish::Grow(args.size), &how).await
}

/// `pliant shrink`.
pub async fn shrink(args: &Shrink) -> Result<ExitCode> {
    let client = client_of(&args.edit.cluster).await?;
    let seen = ask::edit::observe(&client, cli::program(), args.edit.namespace.as_deref()).await?;
    edit(&client, &seen, &args.whose, &Wish::Shrink(args.size), &args.edit).await
}

/// `pliant move`.
pub async fn move_claims(args: &Move) -> Result<ExitCode> {
    let client = client_of(&args.edit.cluster).await?;
    let seen = ask::edit::observe(&client, cli::program(), args.edit.namespace.as_deref()).await?;
    edit(&client, &seen, &args.whose, &Wish::Move(args.class.clone()), &args.edit).await
}

/// `pliant rollback`.
pub async fn rollback(args: &Rollback) -> Result<ExitCode> {
    let client = client_of(&args.edit.cluster).await?;
    let seen = ask::edit::observe(&client, cli::program(), args.edit.namespace.as_deref()).await?;
    edit(&client, &seen, &args.whose, &Wish::RollBack, &args.edit).await
}

/// `pliant abort`.
pub async fn abort(args: &Abort) -> Result<ExitCode> {
    let client = client_of(&args.edit.cluster).await?;
    let seen = ask::edit::observe(&client, cli::program(), args.edit.namespace.as_deref()).await?;
    edit(&client, &seen, &args.whose, &Wish::Abort, &args.edit).await
}

/// Edit a PvcAutoscaler, or print what would be done; the status says whether what was asked for is begun.
async fn edit(
    client: &Client,
    seen: &ask::edit::Seen,
    whose: &Whose,
    wish: &Wish,
    how: &Edit,
) -> Result<ExitCode> {
    let edit = match ask::edit::judge(seen, whose, wish)? {
        Answer::Edit(edit) => edit,
        Answer::Unkept(unkept) => {
            print(&unkept.objects.iter().map(document).collect::<Result<String>>()?)?;
            bail!(unkept.why);
        }
    };
    print(&edit.in_words(wish))?;
    if !how.yes {
        bail!("nothing is changed yet: write --yes behind it to have it done");
    }
    let edited = ask::edit::apply(client, &edit).await?;
    tell_line(match wish {
        Wish::RollBack => "rollBack    written",
        Wish::Abort => "abort       written",
        Wish::Grow(_) | Wish::Shrink(_) | Wish::Move(_) => "template    edited",
    });
    match how.wait {
        Some(wait) => ask::edit::follow(client, &edited, wait.0, tell_line).await?,
        None => tell_line(&format!(
            "see         {} plan {} --namespace {}",
            cli::program(),
            edit.plan.name,
            edit.plan.namespace
        )),
    }
    Ok(ExitCode::SUCCESS)
}

/// Print a line; what it tells of goes on, whoever listens.
fn tell_line(text: &str) {
    let _ = line(&harmless(text));
}

/// `pliant plan`.
pub async fn plan(args: &Plan) -> Result<ExitCode> {
    let client = client_of(&args.cluster).await?;
    let (namespace, name) = (args.namespace.as_deref(), args.name.as_deref());
    let watched = (!args.all_namespaces).then(|| namespace.unwrap_or(client.default_namespace()));
    let changes = args.watch.then(|| Changes::of_plans(&client, watched));
    show_again(changes, async || {
        let plans = if args.all_namespaces {
            ask::plan::plan_of_all(&client).await?
        } else {
            ask::plan::plan(&client, namespace, name).await?
        };
        let place = if args.all_namespaces { "any" } else { "this" };
        let in_full = name.is_some() || args.output.is_wide();
        written(args.output.into(), &plans, |_| match plans.as_slice() {
            [] => format!("No PvcAutoscaler keeps claims in {place} namespace.\n"),
            plans => ask::plan::print(plans, in_full),
        })
    })
    .await
}

/// `pliant version`.
pub async fn version(args: &Version) -> Result<ExitCode> {
    let versions = if args.client {
        ask::Versions::of_client()
    } else {
        ask::versions(&client_of(&args.cluster).await?).await?
    };
    show(args.output, &versions, |_| versions.text())
}

/// `pliant adopt`; the status says whether all that was asked for is adopted.
pub async fn adopt(args: Adopt) -> Result<ExitCode> {
    let client = client_of(&args.cluster).await?;
    let seen = ask::adopt::observe(&client).await?;
    let wish = ask::adopt::Wish { namespace: args.namespace, claim: args.claim, class: args.class };
    let ids = args.volume.map_or_else(|| ask::adopt::all(&seen), |id| vec![id]);
    if ids.is_empty() {
        line("every volume has its PersistentVolume")?;
    }
    let mut left = 0;
    for id in &ids {
        let adoption = match ask::adopt::plan(&seen, id, &wish) {
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
            ask::adopt::adopt(&client, &adoption).await?;
            line(&adoption.in_words())?;
        }
    }
    Ok(if left == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The objects of an adoption, as `kubectl apply --filename -` takes them.
fn documents(adoption: &ask::adopt::Adoption) -> Result<String> {
    let claim = adoption.claim.as_ref().map(document).transpose()?;
    Ok(document(&adoption.volume)? + &claim.unwrap_or_default())
}

/// One document of a stream of YAML.
pub fn document<T: Serialize>(object: &T) -> Result<String> {
    let yaml = serde_saphyr::to_string(object).context("an object could not be written")?;
    Ok(format!("---\n{yaml}"))
}

/// `pliant man`.
pub fn manual(dir: &Path) -> Result<ExitCode> {
    let written = std::fs::create_dir_all(dir).and_then(|()| cli::manual(dir));
    written.with_context(|| format!("no pages could be written to {}", dir.display()))?;
    Ok(ExitCode::SUCCESS)
}

/// Whether `pliant doctor` is to look at a cluster: kubectl is never about this machine.
pub fn is_about_a_cluster(args: &Doctor) -> bool {
    args.cluster || args.node.is_some() || args.which.are_given() || cli::program() != "pliant"
}

/// `pliant doctor` for a cluster.
pub async fn check_up(args: &Doctor) -> Result<ExitCode> {
    let seen = ask::checkup::observe(&client_of(&args.which).await?).await?;
    let findings = ask::checkup::judge(&seen, cli::program(), args.node.as_deref())?;
    tell(args.output, &findings)
}

/// Print findings; the status says whether something has to be put right.
pub fn tell(output: Output, findings: &[Finding]) -> Result<ExitCode> {
    show(output, &findings, |styled| doctor::print(findings, styled))?;
    let bad = findings.iter().any(|finding| finding.level == Level::Bad);
    Ok(if bad { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// `pliant report`.
pub async fn report(args: &Report) -> Result<ExitCode> {
    let parts =
        ask::report::report(&client_of(&args.cluster).await?, cli::program(), args.lines).await?;
    let text = parts.iter().map(document).collect::<Result<String>>()?;
    let is_file = |file: &&PathBuf| file.as_os_str() != "-";
    let Some(file) = args.output.as_ref().filter(is_file) else { return print(&text) };
    let written = std::fs::write(file, &text);
    written.with_context(|| format!("{} could not be written", file.display()))?;
    line(&format!("{}: {} parts; read it before you send it", file.display(), parts.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_a_log_stay_lines() {
        let (what, found) = ("log".to_owned(), "WARN a: b\nINFO c\n".into());
        let part = ask::report::Part { what, found };
        assert_eq!(document(&part).unwrap(), "---\nwhat: log\nfound: |\n  WARN a: b\n  INFO c\n");
    }
}
