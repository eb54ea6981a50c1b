//! Flags of metrics and logs of the processes in a cluster.

use clap::Args;

use crate::config::{LogFilter, LogFormat, SocketAddress};

/// Flags of metrics and logs of the controller plugin and the operator; the node plugin has them among its
/// settings.
#[derive(Debug, Args)]
pub struct TellFlags {
    /// Serve /metrics and /healthz on this address and port, such as 0.0.0.0:9808 [default: off]
    #[arg(long, value_name = "ADDRESS", env = "PLIANT_METRICS_ADDRESS", hide_env_values = true)]
    pub metrics_address: Option<SocketAddress>,
    /// Select the format of log lines: text or json
    #[arg(long, value_name = "FORMAT", env = "PLIANT_LOG_FORMAT", hide_env_values = true,
        value_parser = str::parse::<LogFormat>, default_value = "text")]
    pub log_format: LogFormat,
    /// Select log lines by level, or by directives such as warn,pliant::cluster=debug
    #[arg(
        long,
        value_name = "LEVEL",
        env = "PLIANT_LOG_LEVEL",
        hide_env_values = true,
        default_value = "info"
    )]
    pub log_level: LogFilter,
}
