//! The roles that carry bytes: they run in a pod that mounts what they read and what they write.

use std::net::{AddrParseError, IpAddr, SocketAddr};
use std::path::PathBuf;

use clap::{Args, ValueEnum};

use crate::archive::{Address, Bundle, HostName, Network};
use crate::bytes::Bytes;
use crate::cli::size;
use crate::config::Rate;
use crate::copy::Digest;

/// `pliant copy`.
#[derive(Debug, Args)]
#[command(allow_missing_positional = true)]
#[allow(clippy::struct_excessive_bools)] // Each is a flag that people type.
pub struct CopyRole {
    /// Directory whose content is copied, or with --device a block device
    #[arg(
        value_name = "SOURCE",
        required_unless_present_any = ["from", "probe"],
        conflicts_with_all = ["from", "probe"]
    )]
    pub source: Option<PathBuf>,
    /// Directory that gets it: empty, or one that an earlier run has marked as its own, where all that the
    /// source does not have is removed. With
    /// --device a block device that is as large or larger
    #[arg(value_name = "TARGET")]
    pub target: PathBuf,
    /// Host and port where `pliant send` sends the source, in place of a directory or a device here
    #[arg(long, value_name = "ADDRESS", requires = "keys")]
    pub from: Option<String>,
    /// Directory with ca.crt, and with tls.crt and tls.key of who receives
    #[arg(long, value_name = "DIRECTORY", requires = "from")]
    pub keys: Option<PathBuf>,
    /// Copy a block device, or an image of one, block by block
    #[arg(long)]
    pub device: bool,
    /// Copy while somebody may be writing: what changes is left to the next run, and nothing is
    /// compared if --compare does not say so
    #[arg(long, conflicts_with = "last")]
    pub round: bool,
    /// Copy what has changed since the last round, and compare all: a change of the source meanwhile
    /// is an error [the default]
    #[arg(long = "final")]
    pub last: bool,
    /// Copy nothing: only try whether the target can be opened as a copy would
    #[arg(long, conflicts_with_all = ["from", "round", "last"])]
    pub probe: bool,
    /// Which contents are compared: `all` in the end; `changed` those that have changed, in each round and in
    /// the end. Devices, and what comes --from elsewhere, are always compared in whole
    #[arg(long, value_name = "WHAT", default_value = "all")]
    pub compare: CompareFlag,
    /// What is done about sockets in the tree
    #[arg(long, value_name = "WHAT", default_value = "skip")]
    pub sockets: SocketsFlag,
    /// How it is carried and where its end is told.
    #[command(flatten)]
    pub carry: CarryFlags,
}

/// `pliant send`.
#[derive(Debug, Args)]
pub struct SendRole {
    /// Directory whose content is sent, or with --device a block device
    #[arg(value_name = "SOURCE")]
    pub source: PathBuf,
    /// Address to listen on, such as 10.0.0.7 or fd00::7; with another port than 9815 as `10.0.0.7:80`
    /// or `[fd00::7]:80`
    #[arg(long, value_name = "ADDRESS", value_parser = listen)]
    pub listen: Listen,
    /// Directory with ca.crt, and with tls.crt and tls.key of who sends
    #[arg(long, value_name = "DIRECTORY")]
    pub keys: PathBuf,
    /// Send a block device, or an image of one
    #[arg(long)]
    pub device: bool,
}

/// `pliant unpack`.
#[derive(Debug, Args)]
#[command(group(clap::ArgGroup::new("origin").required(true)))]
pub struct UnpackRole {
    /// Directory that gets it, empty but for a lost+found
    #[arg(value_name = "TARGET")]
    pub target: PathBuf,
    /// Archive to unpack: tar, or tar in gzip or zstd
    #[arg(long, value_name = "FILE", group = "origin")]
    pub file: Option<PathBuf>,
    /// Address of the archive, http or https
    #[arg(long, value_name = "URL", group = "origin")]
    pub url: Option<Address>,
    /// Refuse an --url that leads, be it by a redirection, to an address that is not public: private,
    /// of a link, or of this machine
    #[arg(long, requires = "url")]
    pub public_only: bool,
    /// Addresses that --public-only lets pass besides, such as 10.2.0.0/16 [repeatable; default: none]
    #[arg(long, value_name = "CIDR", requires = "public_only")]
    pub allow_cidr: Vec<Network>,
    /// Hosts that --public-only lets be fetched by a proxy, which finds their addresses: names such as files.example,
    /// or all of a domain as *.files.example [repeatable; default: none]
    #[arg(long, value_name = "HOST", requires = "public_only")]
    pub allow_host: Vec<HostName>,
    /// Certificates of authorities, as PEM, that are believed besides those of the machine, such as
    /// "$(cat ca.pem)" [default: none]
    #[arg(long, value_name = "PEM", env = "PLIANT_CA_BUNDLE", hide_env_values = true)]
    pub ca_bundle: Option<Bundle>,
    /// SHA-256 of the archive, 64 hexadecimal digits; with another one nothing is kept
    #[arg(long, value_name = "HEX")]
    pub sha256: Digest,
    /// Leave all files to the user who runs this, in place of the owners that the archive says
    #[arg(long)]
    pub no_owners: bool,
    /// Bytes that may come out of it [default: what the target has room for]
    #[arg(long, value_name = "BYTES", value_parser = size)]
    pub max_size: Option<Bytes>,
    /// How it is carried and where its end is told.
    #[command(flatten)]
    pub carry: CarryFlags,
}

/// What all that carry have.
#[derive(Debug, Args)]
pub struct CarryFlags {
    /// File to write the end to, the last line of the output, at most 4096 bytes; in a pod
    /// /dev/termination-log
    #[arg(long, value_name = "FILE")]
    pub result: Option<PathBuf>,
    /// Bytes a second that are carried at most, such as 200Mi [default: unlimited]
    #[arg(long, value_name = "BYTES")]
    pub max_rate: Option<Rate>,
}

/// Which contents are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum CompareFlag {
    /// All of them, in the end.
    All,
    /// In each round those that have changed since the one before.
    Changed,
}

/// What is done about sockets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum SocketsFlag {
    /// They are left out and counted.
    Skip,
    /// The copy is refused.
    Refuse,
}

/// Where `pliant send` listens: an address, and a port if one was given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Listen {
    /// Of either kind.
    pub ip: IpAddr,
    /// None for the usual one.
    pub port: Option<u16>,
}

/// Without a port it is an address of either kind: who starts a pod knows no more of its own.
fn listen(text: &str) -> Result<Listen, AddrParseError> {
    if let Ok(ip) = text.parse() {
        return Ok(Listen { ip, port: None });
    }
    let at: SocketAddr = text.parse()?;
    Ok(Listen { ip: at.ip(), port: Some(at.port()) })
}

#[cfg(test)]
mod tests {
    use super::listen;

    #[test]
    fn an_address_has_its_own_port_or_none() {
        let read = |text| listen(text).map(|at| (at.ip.to_string(), at.port)).ok();
        assert_eq!(read("10.0.0.7"), Some(("10.0.0.7".to_owned(), None)));
        assert_eq!(read("fd00::7"), Some(("fd00::7".to_owned(), None)));
        assert_eq!(read("10.0.0.7:80"), Some(("10.0.0.7".to_owned(), Some(80))));
        assert_eq!(read("[fd00::7]:80"), Some(("fd00::7".to_owned(), Some(80))));
        assert_eq!(read("alpha"), None);
    }
}
