//! `pliant operator`.

use clap::Args;

use crate::archive::{Bundle, HostName, Network};
use crate::cli::TellFlags;
use crate::config::SocketAddress;
use crate::populators::PodSettings;
use crate::populators::validator::ReportMode;
use crate::webhook::Service;

/// `pliant operator`.
#[derive(Debug, Args)]
pub struct OperatorRole {
    /// Run populator pods with this image, that of this program
    #[arg(long, value_name = "IMAGE", env = "PLIANT_POPULATOR_IMAGE", hide_env_values = true)]
    pub populator_image: String,
    /// Run populator pods that need nothing of the PVC's namespace in this namespace [default: the PVC's]
    #[arg(
        long,
        value_name = "NAMESPACE",
        env = "PLIANT_POPULATOR_NAMESPACE",
        hide_env_values = true
    )]
    pub populator_namespace: Option<String>,
    /// Pull the image of populator pods with these Secrets, separated by commas; they must exist in the namespace of
    /// each pod [default: those of its default ServiceAccount]
    #[arg(
        long,
        value_name = "NAMES",
        env = "PLIANT_POPULATOR_IMAGE_PULL_SECRETS",
        hide_env_values = true,
        value_delimiter = ','
    )]
    pub populator_image_pull_secrets: Vec<String>,
    /// Allow archives from these private addresses in --populator-namespace, such as 10.2.0.0/16
    /// [repeatable; default: none]
    #[arg(
        long = "allowed-archive-cidr",
        value_name = "CIDR",
        env = "PLIANT_ALLOWED_ARCHIVE_CIDR",
        hide_env_values = true,
        value_delimiter = ' ',
        requires = "populator_namespace"
    )]
    pub allowed_archive_cidrs: Vec<Network>,
    /// Allow archives from this host through a proxy in --populator-namespace, such as files.example, or of a
    /// whole domain as *.files.example [repeatable; default: none]
    #[arg(
        long = "allowed-archive-host",
        value_name = "HOST",
        env = "PLIANT_ALLOWED_ARCHIVE_HOST",
        hide_env_values = true,
        value_delimiter = ' ',
        requires = "populator_namespace"
    )]
    pub allowed_archive_hosts: Vec<HostName>,
    /// Extend populator pods by this JSON: labels, annotations, nodeSelector, tolerations, priorityClassName,
    /// imagePullPolicy [default: nothing]
    #[arg(long, value_name = "JSON", env = "PLIANT_POPULATOR_POD", hide_env_values = true)]
    pub populator_pod: Option<PodSettings>,
    /// Trust these CA certificates (PEM) in populator pods as well as those of the image [default: none]
    #[arg(long, value_name = "PEM", env = "PLIANT_POPULATOR_CA_BUNDLE", hide_env_values = true)]
    pub populator_ca_bundle: Option<Bundle>,
    /// Proxies of those pods.
    #[command(flatten)]
    pub proxies: ProxyFlags,
    /// Emit an event on PVCs whose data source kind has no registered populator: auto, unless another validator
    /// does; on; or off
    #[arg(long, value_name = "WHEN", env = "PLIANT_DATA_SOURCE_VALIDATOR", hide_env_values = true,
        value_parser = str::parse::<ReportMode>, default_value_t = ReportMode::Auto)]
    pub data_source_validator: ReportMode,
    /// Elect a leader by the Lease pliant-operator in this namespace; every replica serves the webhook
    /// [default: no election]
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
    /// Metrics and logs.
    #[command(flatten)]
    pub tell: TellFlags,
}

/// The flags of the proxies by which archives are fetched.
#[derive(Debug, Args)]
pub struct ProxyFlags {
    /// Fetch http archives through this proxy, such as `http://proxy.example:3128` [default: none]
    #[arg(long, value_name = "URL", env = "PLIANT_POPULATOR_HTTP_PROXY", hide_env_values = true)]
    pub populator_http_proxy: Option<String>,
    /// Fetch https archives through this proxy [default: none]
    #[arg(long, value_name = "URL", env = "PLIANT_POPULATOR_HTTPS_PROXY", hide_env_values = true)]
    pub populator_https_proxy: Option<String>,
    /// Use no proxy for these domains, addresses and CIDRs, separated by commas [default: none]
    #[arg(long, value_name = "HOSTS", env = "PLIANT_POPULATOR_NO_PROXY", hide_env_values = true)]
    pub populator_no_proxy: Option<String>,
}

/// The flags of the webhook that gives pods of StatefulSets their claims.
#[derive(Debug, Args)]
pub struct WebhookFlags {
    /// Serve the mutating webhook for the pods of managed StatefulSets on this address and port, such as
    /// 0.0.0.0:10250 [default: off]
    #[arg(
        long,
        value_name = "ADDRESS",
        env = "PLIANT_WEBHOOK_ADDRESS",
        hide_env_values = true,
        requires = "webhook_service"
    )]
    pub webhook_address: Option<SocketAddress>,
    /// Service of the webhook, as NAMESPACE/NAME; its Secret and its MutatingWebhookConfiguration have the same
    /// name
    #[arg(
        long,
        value_name = "SERVICE",
        env = "PLIANT_WEBHOOK_SERVICE",
        hide_env_values = true,
        requires = "webhook_address"
    )]
    pub webhook_service: Option<Service>,
    /// Use ca.crt, tls.crt and tls.key of this Secret, managed by another program such as cert-manager
    /// [default: the operator issues certificates]
    #[arg(
        long,
        value_name = "NAME",
        env = "PLIANT_WEBHOOK_CERTIFICATE_SECRET",
        hide_env_values = true,
        requires = "webhook_service"
    )]
    pub webhook_certificate_secret: Option<String>,
}
