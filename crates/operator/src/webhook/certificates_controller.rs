//! Reconciles the certificates and the MutatingWebhookConfiguration.

use std::collections::BTreeSet;
use std::fmt;
use std::iter;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::{MutatingWebhook, MutatingWebhookConfiguration};
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt};
use serde_json::json;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use super::configuration::named;
use super::names::{NamedStatefulSets, share};
use super::{
    CertificatePair, LIFE, Naming, Pairs, Service, Shown, StatefulSetRef, WRITER, webhooks,
};
use crate::api::StatefulSetName;
use crate::cluster::{
    Changed, PendingChanges, Record, StatefulSetVersion, Watched, begun_again, caught_in_time,
    every, pages, reconcile, writes,
};
use crate::error_chain;
use crate::panics::caught_now;

/// Name for panics and spans.
const LOOP: &str = "webhook";

/// The key of the Secret under which the certificates are.
const KEY: &str = "certificates.json";

/// Keys of a Secret that another program manages: its authority, its certificate and the private key. They are
/// those of the type `kubernetes.io/tls`, plus `ca.crt`, as cert-manager writes them.
const GIVEN_KEYS: [&str; 3] = ["ca.crt", "tls.crt", "tls.key"];

/// Delay after the API server rejected a request or did not respond.
const AGAIN: Duration = Duration::from_secs(10);

/// Delay between two rounds of writes, so that two writers do not compete without a break.
const PAUSE: Duration = Duration::from_secs(1);

/// Maximum interval between two checks of the clock: it may be set, and a sleep does not see that.
const LOOK: Duration = Duration::from_secs(3600);

/// Page size for lists of StatefulSets.
const PAGE: u32 = 100;

/// Writes that may follow from each other: certificates, and then their authority.
const ROUNDS: usize = 3;

/// Returns the time since 1970 by the clock of the host, which may be set: clients check certificates by
/// it.
pub type HostClock = Arc<dyn Fn() -> Duration + Send + Sync>;

/// Reconciles the certificates and the configuration; each replica has one.
#[derive(Clone)]
pub struct CertificatesController {
    client: Client,
    service: Service,
    /// Secret of another program with the certificates; without it they are created here.
    given: Option<String>,
    shown: Shown,
    life: Duration,
    clock: HostClock,
}

impl fmt::Debug for CertificatesController {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CertificatesController")
            .field("service", &self.service)
            .finish_non_exhaustive()
    }
}

/// Observed state.
#[derive(Debug, Default)]
struct ObservedWebhook {
    secret: Option<Secret>,
    configuration: Option<MutatingWebhookConfiguration>,
    shares: NamedStatefulSets,
}

/// Next action.
#[derive(Debug, PartialEq)]
enum WebhookStep {
    /// Make a certificate and put it before those of the Secret.
    Renew,
    /// Let the API server ask by these webhooks.
    Ask(Vec<MutatingWebhook>),
}

/// Error of an action.
#[derive(Debug, thiserror::Error)]
enum KeepError {
    #[error("failed to create a certificate")]
    Make(#[from] rcgen::Error),
    #[error("failed to write the certificates")]
    Text(#[from] serde_json::Error),
    #[error("the API server rejects the request or does not respond")]
    Api(#[from] kube::Error),
}

/// Inputs for the list of names: the StatefulSets that PvcAutoscalers name, and those that exist. Other
/// changes of them do not matter.
struct NameInputs {
    autoscalers: PendingChanges<Naming>,
    sets: PendingChanges<StatefulSetVersion>,
}

impl NameInputs {
    /// Takes the changes; returns true if the names may have changed.
    fn take(&mut self) -> bool {
        let named = |one: &Arc<Naming>| one.stateful_set.clone();
        let are_named_otherwise = match self.autoscalers.take() {
            Changed::Everything(_) => true,
            Changed::These(all) => all.iter().any(|change| {
                change.before.as_ref().and_then(named) != change.now.as_ref().and_then(named)
            }),
        };
        let are_others = match self.sets.take() {
            Changed::Everything(_) => true,
            Changed::These(all) => {
                all.iter().any(|change| change.before.is_some() != change.now.is_some())
            }
        };
        are_named_otherwise || are_others
    }

    /// Waits until names may have changed.
    async fn changed(&mut self) {
        loop {
            tokio::select! {
                () = self.autoscalers.changed() => {}
                () = self.sets.changed() => {}
            }
            if self.take() {
                return;
            }
        }
    }
}

impl CertificatesController {
    /// Creates a controller for the webhook of this Service, which serves its certificates through
    /// `shown`.
    pub fn new(client: Client, service: Service, shown: Shown) -> Self {
        let since_1970 = || SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let clock: HostClock = Arc::new(move || since_1970().unwrap_or_default());
        CertificatesController { client, service, given: None, shown, life: LIFE, clock }
    }

    /// Uses the certificates of this Secret in the namespace of the Service, which another program manages.
    pub fn with_given(self, secret: Option<String>) -> Self {
        CertificatesController { given: secret, ..self }
    }

    /// Uses certificates of another lifetime and another clock.
    pub fn with_lives(self, life: Duration, clock: HostClock) -> Self {
        CertificatesController { life, clock, ..self }
    }

    /// Reconciles until `stop`: after each change, and when a certificate is due for renewal.
    pub async fn run(
        &self,
        autoscalers: &Watched<Naming>,
        sets: &Watched<StatefulSetVersion>,
        stop: CancellationToken,
    ) {
        let only = |name: &str| every().fields(&format!("metadata.name={name}"));
        let secrets: Watched<Secret> =
            Watched::start(self.secrets(), only(self.secret_name()), &stop);
        let configurations: Watched<MutatingWebhookConfiguration> =
            Watched::start(self.configurations(), only(&self.service.name), &stop);
        let kept = begun_again(LOOP, async || {
            tokio::join!(
                secrets.known(),
                configurations.known(),
                autoscalers.known(),
                sets.known()
            );
            let mut changes = [secrets.changes(), configurations.changes()];
            let mut names =
                NameInputs { autoscalers: autoscalers.subscribe(), sets: sets.subscribe() };
            loop {
                changes.iter_mut().for_each(watch::Receiver::mark_unchanged);
                names.take();
                let configuration = configurations.all().first().map(|one| (**one).clone());
                let wanted = autoscalers.all().iter().filter_map(|one| workload(one)).collect();
                let exists = |one: &StatefulSetRef| {
                    sets.get_in(one.namespace.as_str(), one.name.as_str()).is_some()
                };
                let seen = ObservedWebhook {
                    secret: secrets.all().first().map(|secret| (**secret).clone()),
                    shares: share(wanted, &named(configuration.as_ref()), exists),
                    configuration,
                };
                let pause = self.keep(&seen).await;
                let [of_secrets, of_configurations] = &mut changes;
                tokio::select! {
                    _ = of_secrets.changed() => {}
                    _ = of_configurations.changed() => {}
                    () = names.changed() => {}
                    () = tokio::time::sleep(pause) => {}
                }
            }
        });
        stop.run_until_cancelled(kept).await;
    }

    /// Serves the certificate and writes what differs; returns the time until the next check without
    /// a change.
    async fn keep(&self, seen: &ObservedWebhook) -> Duration {
        self.show(seen);
        if self.plan(seen).is_none() {
            return self.pairs(seen).next((self.clock)()).unwrap_or(LOOK).min(LOOK);
        }
        let write = Box::pin(caught_in_time(LOOP, self.write()));
        let written = write.instrument(reconcile(LOOP, &self.service)).await;
        tokio::time::sleep(PAUSE).await;
        let error = match written {
            Ok(Ok(())) => return Duration::ZERO,
            Ok(Err(error)) => error_chain::in_full(&error),
            Err(why) => why.to_string(),
        };
        tracing::warn!(webhook = %self.service, error, "failed to reconcile the webhook");
        AGAIN
    }

    /// Writes until nothing differs. Watched objects may be outdated, so they are read again, the
    /// configuration first: a writer of a new one knows everything that it was decided from.
    async fn write(&self) -> Result<(), KeepError> {
        for _ in 0..ROUNDS {
            let (configurations, secrets) = (self.configurations(), self.secrets());
            let configuration = configurations.get_opt(&self.service.name).await?;
            let secret = secrets.get_opt(self.secret_name()).await?;
            let (wanted, sets) = (self.named_workloads().await?, self.stateful_sets().await?);
            let exists = |one: &StatefulSetRef| sets.contains(one);
            let shares = share(wanted, &named(configuration.as_ref()), exists);
            if let Some(first) = shares.left_out.first() {
                let (count, first) = (shares.left_out.len(), first.to_string());
                tracing::warn!(
                    count,
                    first,
                    "the webhook leaves out StatefulSets: their namespaces exceed their share"
                );
            }
            let seen = ObservedWebhook { secret, configuration, shares };
            self.show(&seen);
            match self.plan(&seen) {
                Some(step) => self.apply(step, &seen).await?,
                None => break,
            }
        }
        Ok(())
    }

    fn show(&self, seen: &ObservedWebhook) {
        let asks = seen.configuration.iter().flat_map(|one| one.webhooks.iter().flatten());
        let bundles = asks.filter_map(|one| one.client_config.ca_bundle.as_ref());
        let bundles: Vec<_> = bundles.map(|bundle| String::from_utf8_lossy(&bundle.0)).collect();
        let trusts = |authority: &str| bundles.iter().all(|bundle| bundle.contains(authority));
        let pairs = self.pairs(seen);
        if let (true, Some(secret)) = (pairs.is_empty(), &self.given) {
            let keys = GIVEN_KEYS.join(", ");
            tracing::warn!(webhook = %self.service, secret, keys, "the Secret has no certificate yet");
        }
        let Some(pair) = pairs.shown(trusts, (self.clock)()) else { return };
        if let Err(error) = self.shown.show(pair) {
            let error = error_chain::in_full(&error);
            tracing::warn!(webhook = %self.service, error, "failed to load the certificate");
        }
    }

    /// The next step, if one is needed.
    fn plan(&self, seen: &ObservedWebhook) -> Option<WebhookStep> {
        let pairs = self.pairs(seen);
        if self.given.is_some() && pairs.is_empty() {
            return None; // Without an authority nothing would be trusted: what is trusted now stays.
        }
        if self.given.is_none() && pairs.are_due((self.clock)()) {
            return Some(WebhookStep::Renew);
        }
        let wanted = webhooks(&self.service, &seen.shares.named, &pairs.authorities());
        let there = seen.configuration.as_ref().and_then(|one| one.webhooks.as_deref());
        (there.unwrap_or_default() != wanted).then_some(WebhookStep::Ask(wanted))
    }

    async fn apply(&self, step: WebhookStep, seen: &ObservedWebhook) -> Result<(), KeepError> {
        match step {
            WebhookStep::Renew => self.renew(seen).await,
            WebhookStep::Ask(webhooks) => Ok(self.ask(webhooks, seen).await?),
        }
    }

    /// Puts a new certificate before the observed ones, unless another replica has done so.
    async fn renew(&self, seen: &ObservedWebhook) -> Result<(), KeepError> {
        let now = (self.clock)();
        let new = CertificatePair::make(&self.service.host(), self.life, now)?;
        let text = serde_json::to_vec(&self.pairs(seen).with(new, now))?;
        let mut secret = seen.secret.clone().unwrap_or_default();
        secret.metadata.managed_fields = None;
        secret.data.get_or_insert_default().insert(KEY.to_owned(), ByteString(text));
        let params = PostParams { field_manager: Some(WRITER.to_owned()), ..PostParams::default() };
        let name = &self.service.name;
        let written = if seen.secret.is_some() {
            self.secrets().replace(name, &params, &secret).await
        } else {
            secret.metadata.name = Some(name.clone());
            self.secrets().create(&params, &secret).await
        };
        match written {
            Err(kube::Error::Api(answer)) if answer.code == 409 => Ok(()),
            written => Ok(written.map(drop)?),
        }
    }

    /// All StatefulSets that PvcAutoscalers name now.
    async fn named_workloads(&self) -> Result<BTreeSet<StatefulSetRef>, kube::Error> {
        let all: Api<StatefulSetName> = Api::all(self.client.clone());
        let mut named = BTreeSet::new();
        let name = |one: StatefulSetName| workload(&Naming::of(one));
        pages(&all, &ListParams::default(), |one| named.extend(one.ok().and_then(name))).await?;
        Ok(named)
    }

    /// All StatefulSets that there are now.
    async fn stateful_sets(&self) -> Result<BTreeSet<StatefulSetRef>, kube::Error> {
        let all: Api<StatefulSet> = Api::all(self.client.clone());
        let (mut sets, mut page) = (BTreeSet::new(), ListParams::default().limit(PAGE));
        loop {
            let list = all.list_metadata(&page).await?;
            let read = list.items.iter().filter_map(|one| {
                StatefulSetRef::parse(
                    one.metadata.namespace.as_deref()?,
                    one.metadata.name.as_deref()?,
                )
            });
            sets.extend(read);
            let Some(next) = list.metadata.continue_.filter(|next| !next.is_empty()) else {
                return Ok(sets);
            };
            page = page.continue_token(&next);
        }
    }

    /// Writes these webhooks, unless the configuration has changed since it was read. If the API server rejects
    /// the names, it still gets the authorities: otherwise it would trust no certificate in the end, and no pod
    /// would be created.
    async fn ask(
        &self,
        webhooks: Vec<MutatingWebhook>,
        seen: &ObservedWebhook,
    ) -> Result<(), kube::Error> {
        let mut wanted = MutatingWebhookConfiguration::default();
        wanted.metadata.name = Some(self.service.name.clone());
        wanted.metadata.resource_version =
            seen.configuration.as_ref().and_then(ResourceExt::resource_version);
        wanted.webhooks = Some(webhooks);
        let params = PatchParams::apply(WRITER).force();
        let name = &self.service.name;
        match self.configurations().patch(name, &params, &Patch::Apply(&wanted)).await {
            Err(kube::Error::Api(answer)) if answer.code == 409 => Ok(()),
            Err(refusal @ kube::Error::Api(_)) => {
                self.trust(wanted.webhooks.as_deref().unwrap_or_default(), seen).await?;
                Err(refusal)
            }
            written => written.map(drop),
        }
    }

    /// Updates only the authorities of the existing webhooks.
    async fn trust(
        &self,
        wanted: &[MutatingWebhook],
        seen: &ObservedWebhook,
    ) -> Result<(), kube::Error> {
        let bundle = wanted.iter().find_map(|one| one.client_config.ca_bundle.as_ref());
        let (Some(bundle), Some(there)) = (bundle, &seen.configuration) else { return Ok(()) };
        let webhooks = there.webhooks.iter().flatten().enumerate();
        let old = webhooks.filter(|(_, one)| one.client_config.ca_bundle.as_ref() != Some(bundle));
        let changes = old.map(|(number, _)| {
            let path = format!("/webhooks/{number}/clientConfig/caBundle");
            json!({"op": "add", "path": path, "value": bundle})
        });
        let changes: Vec<_> = changes.collect();
        if changes.is_empty() {
            return Ok(());
        }
        let version = &there.metadata.resource_version;
        let unchanged =
            json!({"op": "test", "path": "/metadata/resourceVersion", "value": version});
        let patch: Vec<_> = iter::once(unchanged).chain(changes).collect();
        let patch = writes::by_json(json!(patch));
        writes::patch(&self.configurations(), &self.service.name, &patch, WRITER).await
    }

    /// The certificates of the Secret; none, if they cannot be read.
    fn pairs(&self, seen: &ObservedWebhook) -> Pairs {
        let data = seen.secret.as_ref().and_then(|secret| secret.data.as_ref());
        let text = |key: &str| data.and_then(|data| data.get(key)).map(|text| text.0.as_slice());
        if self.given.is_none() {
            return text(KEY)
                .and_then(|text| serde_json::from_slice(text).ok())
                .unwrap_or_default();
        }
        let given = GIVEN_KEYS.map(|key| text(key).and_then(|text| str::from_utf8(text).ok()));
        match given.map(|text| text.filter(|text| !text.is_empty())) {
            [Some(authority), Some(certificate), Some(key)] => {
                Pairs::given(CertificatePair::given(
                    authority.to_owned(),
                    certificate.to_owned(),
                    key.to_owned(),
                ))
            }
            _ => Pairs::default(),
        }
    }

    fn secret_name(&self) -> &str {
        self.given.as_deref().unwrap_or(&self.service.name)
    }

    fn secrets(&self) -> Api<Secret> {
        Api::namespaced(self.client.clone(), &self.service.namespace)
    }

    fn configurations(&self) -> Api<MutatingWebhookConfiguration> {
        Api::all(self.client.clone())
    }
}

/// Returns the StatefulSet that a PvcAutoscaler names. A panic over one counts as no name; the log shows where.
fn workload(one: &Naming) -> Option<StatefulSetRef> {
    caught_now(LOOP, || one.workload()).ok().flatten()
}
