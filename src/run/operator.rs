//! `pliant operator`: the loops that populate and migrate claims, and the webhook that gives pods
//! their claims, beside the driver and not in it.

use std::fs;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Error, Result, bail};
use async_trait::async_trait;
use kube::{Api, Client};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::api::{ArchivePopulator, PvcSourcePopulator};
use crate::archive::{Bundle, Proxies};
use crate::claims;
use crate::cli::{OperatorRole, ProxyFlags, WebhookFlags};
use crate::cluster::{Asks, LeaseCandidate, Watched, every, unreadable_by_kind};
use crate::controllers::resync::wake_resizer;
use crate::controllers::topology;
use crate::metrics::{FigureSource, Figures, Metrics};
use crate::panics::panics;
use crate::populators::validator::ReportMode;
use crate::populators::{
    PopulationMetrics, PopulationSettings, Populator, Watches, registry, validator,
};
use crate::run::client::client;
use crate::run::{heap, log, machine};
use crate::webhook::{self, CertificatesController, Naming, Service, Shown, StatefulSetRef};

/// The Lease of the replica that runs the loops.
const LEASE: &str = "pliant-operator";

/// Another one for each who reads it.
const RANDOM_ID: &str = "/proc/sys/kernel/random/uuid";

/// Runs the loops until SIGTERM or SIGINT. What is under way is taken up by another replica, or by the
/// next start.
pub async fn serve(role: OperatorRole) -> Result<()> {
    let stop = CancellationToken::new();
    let stopped = machine::stop_on_signals(stop.clone())?;
    let client = client().await?;
    let metrics = Metrics::default();
    metrics.expect_fillings();
    let address = role.tell.metrics_address.map(|address| address.0);
    let shown = Shown::default();
    let figures = Arc::new(Certificate(shown.clone()));
    machine::tell_figures(address, &metrics, figures, &stop).await?;
    let settings = PopulationSettings {
        image: role.populator_image,
        namespace: role.populator_namespace,
        pull_secrets: role.populator_image_pull_secrets,
        pod: role.populator_pod.unwrap_or_default(),
        fetching: fetching(&role.proxies, role.populator_ca_bundle.as_ref())?,
        allowed: role.allowed_archive_cidrs.iter().map(ToString::to_string).collect(),
        allowed_hosts: role.allowed_archive_hosts.iter().map(ToString::to_string).collect(),
    };
    let counts = Arc::new(OperatorCounters(metrics));
    let tally: Arc<dyn PopulationMetrics> = counts.clone();
    let watches = Arc::new(Watches::start(&client, &stop));
    let asks = Asks::start(&client, &stop);
    let archives: Arc<Populator<ArchivePopulator>> =
        Populator::start(&client, &settings, &watches, &asks, &tally, &stop);
    let copies: Arc<Populator<PvcSourcePopulator>> =
        Populator::start(&client, &settings, &watches, &asks, &tally, &stop);
    let service = role.webhook.webhook_service.clone();
    let webhook = Arc::new(Covered { client: client.clone(), service });
    let claims = claims::ClaimsController::start(&client, &watches, &asks, webhook, counts, &stop);
    let loops = |stop: CancellationToken| {
        let (client, watches, tally) = (&client, &watches, &tally);
        let claims = claims.clone().run(stop.clone());
        let archives = archives.clone().run(stop.clone());
        let copies = copies.clone().run(stop.clone());
        async move {
            tokio::join!(
                claims,
                archives,
                copies,
                registered(client, role.data_source_validator, watches, tally, &stop),
                wake_resizer(client, watches.claims(), stop.clone()),
                topology::report(client, watches.claims(), stop.clone()),
            );
        }
    };
    let led = async {
        match &role.leader_election_namespace {
            Some(namespace) => {
                let lease = LeaseCandidate::new(&client, namespace, LEASE, &identity()?);
                Box::pin(lease.lead(&stop, loops)).await;
            }
            None => loops(stop.clone()).await,
        }
        anyhow::Ok(())
    };
    let stopping = async {
        stopped.await;
        stop.cancel();
    };
    let small = stop.run_until_cancelled(heap::keep_small());
    let admitted = admit(role.webhook, &client, shown, &claims, &stop);
    let (led, _, (), admitted) = tokio::join!(led, small, stopping, admitted);
    led.and(admitted)
}

/// What no other process has: the name of the pod, for people, and what is new at each start.
fn identity() -> Result<String> {
    let host = nix::unistd::gethostname().context("failed to read the host's name")?;
    let random =
        fs::read_to_string(RANDOM_ID).with_context(|| format!("failed to read {RANDOM_ID}"))?;
    Ok(format!("{}_{}", host.to_string_lossy(), random.trim()))
}

/// The variables of pods that fetch archives. Whoever may read pods of a namespace reads them too.
fn fetching(flags: &ProxyFlags, bundle: Option<&Bundle>) -> Result<Vec<(String, String)>> {
    let ProxyFlags { populator_http_proxy, populator_https_proxy, populator_no_proxy } = flags;
    let given = [populator_http_proxy, populator_https_proxy, populator_no_proxy];
    let given = Proxies::VARIABLES.into_iter().zip(given);
    let given = given.filter_map(|(name, value)| Some((name.to_owned(), value.clone()?)));
    let mut variables: Vec<(String, String)> = given.collect();
    let proxies = Proxies::read(|name| {
        let found = variables.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.clone())
    });
    if proxies.map_err(Error::msg)?.holds_password() {
        bail!(
            "the proxy for archives has a password, which would be visible in pods of all \
             namespaces; use a proxy without one"
        )
    }
    variables.extend(bundle.map(|bundle| (Bundle::VARIABLE.to_owned(), bundle.pem().to_owned())));
    Ok(variables)
}

/// Gives pods their claims, if that is wanted, until `stop`; a webhook that cannot be served stops the
/// rest.
async fn admit(
    flags: WebhookFlags,
    client: &Client,
    shown: Shown,
    claims: &claims::ClaimsController,
    stop: &CancellationToken,
) -> Result<()> {
    let WebhookFlags { webhook_address, webhook_service, webhook_certificate_secret } = flags;
    let (Some(address), Some(service)) = (webhook_address, webhook_service) else { return Ok(()) };
    let rest = stop.clone().drop_guard();
    let listener = TcpListener::bind(address.0).await.with_context(|| {
        let address = address.0;
        format!(
            "failed to serve the webhook on {address}; see `ss -ltnp`, or choose another \
             --webhook-address"
        )
    })?;
    let autoscalers: Watched<Naming> = Watched::start(Api::all(client.clone()), every(), stop);
    let keeper = CertificatesController::new(client.clone(), service, shown.clone())
        .with_given(webhook_certificate_secret);
    let served = async {
        let _rest = rest;
        webhook::serve(listener, client.clone(), shown, stop.clone()).await
    };
    let (served, ()) =
        tokio::join!(served, keeper.run(&autoscalers, claims.stateful_sets(), stop.clone()));
    served.context("failed to continue serving the webhook")
}

/// Registers our kinds, and tell claims of those that are not registered.
async fn registered(
    client: &Client,
    mode: ReportMode,
    watches: &Watches,
    tally: &Arc<dyn PopulationMetrics>,
    stop: &CancellationToken,
) {
    let known = registry::watch(client, stop);
    let Some(known) = stop.run_until_cancelled(known).await else { return };
    tokio::join!(
        registry::run(client, &known, stop.clone()),
        validator::run(client, mode, watches.claims(), &known, tally, stop.clone()),
    );
}

/// Looks whether pods get their claims from us.
struct Covered {
    client: Client,
    /// `None` is a webhook that is switched off.
    service: Option<Service>,
}

#[async_trait]
impl claims::Webhook for Covered {
    async fn coverage(
        &self,
        namespace: &str,
        stateful_set: &str,
    ) -> Result<claims::WorkloadCoverage, kube::Error> {
        let workload = StatefulSetRef::parse(namespace, stateful_set);
        let (Some(service), Some(workload)) = (&self.service, workload) else {
            return Ok(claims::WorkloadCoverage::NotNamed);
        };
        Ok(match webhook::coverage(&self.client, service, &workload).await? {
            webhook::Coverage::Covered => claims::WorkloadCoverage::Covered,
            webhook::Coverage::NotNamed => claims::WorkloadCoverage::NotNamed,
            webhook::Coverage::ShareIsFull(full) => {
                claims::WorkloadCoverage::ShareIsFull(full.to_string())
            }
        })
    }
}

/// Tells when the certificate of the webhook ends; all else is counted as it happens.
struct Certificate(Shown);

#[async_trait]
impl FigureSource for Certificate {
    async fn figures(&self) -> Figures {
        let (certificate_expiry, unreadable) = (self.0.expires(), unreadable_by_kind());
        Figures {
            certificate_expiry,
            unreadable,
            panics: panics(),
            lost_log_lines: log::lost(),
            ..Figures::default()
        }
    }
}

/// Counts for whoever scrapes.
struct OperatorCounters(Metrics);

impl PopulationMetrics for OperatorCounters {
    fn validated(&self, result: &'static str) {
        self.0.validated(result);
    }

    fn filled(&self, result: &'static str, took: Duration) {
        self.0.filled(result, took);
    }
}

impl claims::ClaimsMetrics for OperatorCounters {
    fn paused(&self, away: Duration) {
        self.0.paused(away);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pods_that_fetch_get_the_proxies_that_are_given_and_no_password() {
        let flags = |https: Option<&str>| ProxyFlags {
            populator_http_proxy: None,
            populator_https_proxy: https.map(str::to_owned),
            populator_no_proxy: Some(".svc,10.0.0.0/8".to_owned()),
        };
        let given = fetching(&flags(Some("http://p:3128")), None).unwrap();
        let of = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let expected = [of("HTTPS_PROXY", "http://p:3128"), of("NO_PROXY", ".svc,10.0.0.0/8")];
        assert_eq!(given, expected);
        for (wrong, why) in [
            ("http://u:secret@p", "has a password"),
            ("socks5://p", "HTTPS_PROXY is not the URL of a proxy"),
        ] {
            let error = fetching(&flags(Some(wrong)), None).unwrap_err().to_string();
            assert!(error.contains(why) && !error.contains("secret"), "{error}");
        }
    }
}
