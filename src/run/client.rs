//! The way to the API server.

use std::error::Error;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use kube::config::{InferConfigError, KubeConfigOptions, Kubeconfig, KubeconfigError};
use kube::{Client, Config};

use crate::cli::ClusterFlags;
use crate::error_chain;

/// How long the API server may say nothing: longer than a watch lasts, which it ends after 290 s. Without
/// a limit a call whose answer was lost could be waited for without an end.
const SILENCE: Duration = Duration::from_secs(300);

/// Creates a client of the API server, with the configuration of the pod or the KUBECONFIG of this
/// process.
pub async fn client() -> Result<Client> {
    made(Config::infer().await.map_err(|error| unreachable(&error))?)
}

/// Speak with the API server that a person named, as whom they named.
pub async fn client_of(flags: &ClusterFlags) -> Result<Client> {
    let mut config = if flags.kubeconfig.is_some() || flags.context.is_some() {
        named(flags).await.map_err(|error| anyhow!("{}", words(&error)))?
    } else {
        Config::infer().await.map_err(|error| unreachable(&error))?
    };
    if let Some(user) = &flags.as_user {
        let whom = &mut config.auth_info;
        // All of whom the kubeconfig acts as, or nothing: not the groups of one beside the name of another.
        whom.impersonate = Some(user.clone());
        whom.impersonate_groups = Some(flags.as_groups.clone()).filter(|groups| !groups.is_empty());
        whom.impersonate_uid = None;
        whom.impersonate_user_extra = None;
    }
    made(config)
}

async fn named(flags: &ClusterFlags) -> Result<Config, KubeconfigError> {
    let kubeconfig = match &flags.kubeconfig {
        Some(path) => Kubeconfig::read_from(path)?,
        None => Kubeconfig::read()?,
    };
    let options =
        KubeConfigOptions { context: flags.context.clone(), ..KubeConfigOptions::default() };
    Config::from_custom_kubeconfig(kubeconfig, &options).await
}

fn made(mut config: Config) -> Result<Client> {
    config.read_timeout = Some(SILENCE);
    // Whoever asks knows what to do about an answer, and when to ask again. The library would ask
    // fifteen times, as late as it is asked to: a pod that may not be evicted would hold up all
    // others for minutes.
    config.default_retry = false;
    config.reset_reader_on_write = true;
    Client::try_from(config).context("the kubeconfig is not usable")
}

/// In one line: where a way to the API server was looked for, and what to set.
fn unreachable(error: &InferConfigError) -> anyhow::Error {
    let kubeconfig = error.source().and_then(|cause| cause.downcast_ref::<KubeconfigError>());
    let looked = kubeconfig.map_or_else(|| one_line(&error_chain::in_full(error)), words);
    anyhow!(
        "no configuration for the API server was found: {looked}; set KUBECONFIG to a kubeconfig, \
         or run this in a pod with a service account"
    )
}

/// What is wrong with a kubeconfig, in one line.
fn words(error: &KubeconfigError) -> String {
    one_line(&match error {
        KubeconfigError::ReadConfig(why, path) => format!("{}: {why}", path.display()),
        KubeconfigError::FindPath => "the home directory is unknown".to_owned(),
        KubeconfigError::LoadContext(name) => {
            format!(
                "the kubeconfig has no context {name}; `kubectl config get-contexts` lists them"
            )
        }
        other => error_chain::in_full(other),
    })
}

/// YAML's errors show lines of the file.
fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
