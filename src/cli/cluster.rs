//! Flags that select a cluster, as kubectl has them.

use std::path::PathBuf;

use clap::Args;

/// The cluster, the namespace, and the user that asks.
#[derive(Debug, Default, Args)]
#[command(next_help_heading = "Cluster")]
pub struct ClusterFlags {
    /// Use this namespace [default: that of the kubeconfig]
    #[arg(short, long, value_name = "NAMESPACE")]
    pub namespace: Option<String>,
    /// Use this kubeconfig file [default: that of KUBECONFIG, ~/.kube/config, or the service account of the pod]
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Use this context of the kubeconfig [default: the current context]
    #[arg(long, value_name = "CONTEXT")]
    pub context: Option<String>,
    /// Impersonate this user, such as system:serviceaccount:NAMESPACE:NAME [default: the user of the kubeconfig]
    #[arg(long = "as", value_name = "USER")]
    pub as_user: Option<String>,
    /// Impersonate this group as well [repeatable; default: none]
    #[arg(long = "as-group", value_name = "GROUP", requires = "as_user")]
    pub as_groups: Vec<String>,
}

impl ClusterFlags {
    /// True if any of them is given.
    pub fn are_given(&self) -> bool {
        self.namespace.is_some()
            || self.kubeconfig.is_some()
            || self.context.is_some()
            || self.as_user.is_some()
    }
}
