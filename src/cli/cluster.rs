//! Which cluster a command for people asks, and as whom.

use std::path::PathBuf;

use clap::Args;

/// The flags of kubectl by which it finds a cluster.
#[derive(Debug, Default, Args)]
#[command(next_help_heading = "Cluster")]
pub struct ClusterFlags {
    /// Kubeconfig to use [default: that of KUBECONFIG, ~/.kube/config, or the pod's service account]
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig to use [default: its current one]
    #[arg(long, value_name = "NAME")]
    pub context: Option<String>,
    /// User to act as, such as system:serviceaccount:NAMESPACE:NAME [default: that of the kubeconfig]
    #[arg(long = "as", value_name = "USER")]
    pub as_user: Option<String>,
    /// Group to act as besides [repeatable; default: none]
    #[arg(long = "as-group", value_name = "GROUP", requires = "as_user")]
    pub as_groups: Vec<String>,
}

impl ClusterFlags {
    /// Whether one of them is given.
    pub fn are_given(&self) -> bool {
        self.kubeconfig.is_some() || self.context.is_some() || self.as_user.is_some()
    }
}
