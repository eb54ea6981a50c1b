//! `pliant operator`.

use clap::Args;

use crate::admission::Service;
use crate::archive::{Bundle, HostName, Network};
use crate::cli::TellFlags;
use crate::config::Address;
use crate::populators::PodSettings;
use crate::populators::validator::Mode;

/// `pliant operator`.
#[derive(Debug, Args)]
pub struct OperatorRole {
    /// Image of the pods that fill volumes, which is that of this program
    #[arg(long, value_name = "IMAGE", env = "PLIANT_FILL_IMAGE", hide_env_values = true)]
    pub fill_image: String,
    /// Namespace of the pods and claims that fill volumes and need nothing of the claim's own namespace
    /// [default: that of the claim]
    #[arg(long, value_name = "NAMESPACE", env = "PLIANT_FILL_NAMESPACE", hide_env_values = true)]
    pub fill_namespace: Option<String>,
    /// Names of the Secrets with which the image of those pods is pulled, with commas between them; they have to
    /// be in the namespace of each such pod [default: those of the ServiceAccount default there]
    #[arg(
        long,
        value_name = "NAMES",
        env = "PLIANT_POPULATOR_IMAGE_PULL_SECRETS",
        hide_env_values = true,
        value_delimiter = ','
    )]
    pub populator_image_pull_secrets: Vec<String>,
    /// Addresses that are not public and from which archives may be fetched in --fill-namespace, such as
    /// 10.2.0.0/16 [repeatable; default: none]
    #[arg(
        long = "allowed-archive-cidr",
        value_name = "CIDR",
        env = "PLIANT_ALLOWED_ARCHIVE_CIDR",
        hide_env_values = true,
        value_delimiter = ' ',
        requires = "fill_namespace"
    )]
    pub allowed_archive_cidrs: Vec<Network>,
    /// Hosts from which a proxy may fetch archives for --fill-namespace, such as files.example, or all of a domain as
    /// *.files.example [repeatable; default: none]
    #[arg(
        long = "allowed-archive-host",
        value_name = "HOST",
        env = "PLIANT_ALLOWED_ARCHIVE_HOST",
        hide_env_values = true,
        value_delimiter = ' ',
        requires = "fill_namespace"
    )]
    pub allowed_archive_hosts: Vec<HostName>,
    /// What those pods have besides, as JSON with labels, annotations, nodeSelector, tolerations, priorityClassName
    /// and imagePullPolicy [default: nothing]
    #[arg(long, value_name = "JSON", env = "PLIANT_POPULATOR_POD", hide_env_values = true)]
    pub populator_pod: Option<PodSettings>,
    /// Certificates of authorities, as PEM, that pods which fetch archives believe besides those of the image
    /// [default: none]
    #[arg(long, value_name = "PEM", env = "PLIANT_POPULATOR_CA_BUNDLE", hide_env_values = true)]
    pub populator_ca_bundle: Option<Bundle>,
    /// Proxies of those pods.
    #[command(flatten)]
    pub proxies: ProxyFlags,
    /// Whether claims are told that nobody has registered the kind they are to be filled from: auto,
    /// unless another validator tells them; on; or off
    #[arg(long, value_name = "WHEN", env = "PLIANT_VALIDATOR", hide_env_values = true,
        value_parser = str::parse::<Mode>, default_value_t = Mode::Auto)]
    pub validator: Mode,
    /// Namespace of the Lease pliant-operator; of several replicas the one that holds it keeps claims, and all
    /// serve the webhook [default: none, each replica does all]
    #[arg(
        long,
        value_name = "NAMESPACE",
        env = "PLIANT_LEADER_ELECTION_NAMESPACE",
        hide_env_values = true
    )]
    pub leader_election_namespace: Option<String>,
    /// The webhook that gives pods their claims.
    #[command(flatten)]
    pub webhook: WebhookFlags,
    /// How it tells of itself.
    #[command(flatten)]
    pub tell: TellFlags,
}

/// The flags of the proxies by which archives are fetched.
#[derive(Debug, Args)]
pub struct ProxyFlags {
    /// Proxy for archives with an http address, such as `http://proxy.example:3128` [default: none]
    #[arg(long, value_name = "URL", env = "PLIANT_POPULATOR_HTTP_PROXY", hide_env_values = true)]
    pub populator_http_proxy: Option<String>,
    /// Proxy for archives with an https address [default: none]
    #[arg(long, value_name = "URL", env = "PLIANT_POPULATOR_HTTPS_PROXY", hide_env_values = true)]
    pub populator_https_proxy: Option<String>,
    /// Domains, addresses and ranges of addresses that are asked without a proxy, with commas between them
    /// [default: none]
    #[arg(long, value_name = "HOSTS", env = "PLIANT_POPULATOR_NO_PROXY", hide_env_values = true)]
    pub populator_no_proxy: Option<String>,
}

/// The flags of the webhook that gives pods of StatefulSets their claims.
#[derive(Debug, Args)]
pub struct WebhookFlags {
    /// Address and port to serve the webhook on, which gives pods of StatefulSets the claims of their
    /// PvcAutoscalers, such as 0.0.0.0:10250 [default: off]
    #[arg(
        long,
        value_name = "ADDRESS",
        env = "PLIANT_WEBHOOK_ADDRESS",
        hide_env_values = true,
        requires = "webhook_service"
    )]
    pub webhook_address: Option<Address>,
    /// The Service by which the API server reaches the webhook, as NAMESPACE/NAME. Its Secret, in the same
    /// namespace, and its MutatingWebhookConfiguration have the same name
    #[arg(
        long,
        value_name = "SERVICE",
        env = "PLIANT_WEBHOOK_SERVICE",
        hide_env_values = true,
        requires = "webhook_address"
    )]
    pub webhook_service: Option<Service>,
    /// Name of a Secret with ca.crt, tls.crt and tls.key, in the namespace of the Service, that another program such as
    /// cert-manager keeps [default: the operator makes certificates itself]
    #[arg(
        long,
        value_name = "NAME",
        env = "PLIANT_WEBHOOK_CERTIFICATE_SECRET",
        hide_env_values = true,
        requires = "webhook_service"
    )]
    pub webhook_certificate_secret: Option<String>,
}
