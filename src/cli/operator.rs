//! `pliant operator`.

use clap::Args;

use crate::cli::TellFlags;
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
    /// Whether claims are told that nobody has registered the kind they are to be filled from: auto,
    /// unless another validator tells them; on; or off
    #[arg(long, value_name = "WHEN", env = "PLIANT_VALIDATOR", hide_env_values = true,
        value_parser = str::parse::<Mode>, default_value_t = Mode::Auto)]
    pub validator: Mode,
    /// How it tells of itself.
    #[command(flatten)]
    pub tell: TellFlags,
}
