//! The roles that carry bytes: they run in a pod that mounts what they read and what they write.

use std::net::{AddrParseError, IpAddr, SocketAddr};
use std::path::PathBuf;

use clap::{Args, ValueEnum};

use crate::archive::{Bundle, HostName, HttpUrl, Network};
use crate::bytes::Bytes;
use crate::cli::values::size;
use crate::config::Rate;
use crate::copy::Digest;

/// `pliant copy`.
#[derive(Debug, Args)]
#[command(allow_missing_positional = true)]
#[allow(clippy::struct_excessive_bools)] // Each is a flag that people type.
pub struct CopyRole {
    /// Directory to copy, or with --device a block device
    #[arg(
        value_name = "SOURCE",
        required_unless_present_any = ["from", "probe"],
        conflicts_with_all = ["from", "probe"]
    )]
    pub source: Option<PathBuf>,
    /// Target directory: empty, or marked by an earlier run, then files that the source lacks are deleted; with
    /// --device a block device of at least the same size
    #[arg(value_name = "TARGET")]
    pub target: PathBuf,
    /// Receive the source from `pliant send` at this host and port
    #[arg(long, value_name = "ADDRESS", requires = "cert_dir")]
    pub from: Option<String>,
    /// Read ca.crt, and tls.crt and tls.key of the receiver, from this directory
    #[arg(long, value_name = "DIR", requires = "from")]
    pub cert_dir: Option<PathBuf>,
    /// Copy a block device, or an image of one, block by block
    #[arg(long)]
    pub device: bool,
    /// Pre-copy while the source may be written to: later changes are left to the next run, and nothing is
    /// verified unless --verification selects it
    #[arg(long, conflicts_with = "last")]
    pub pre_copy: bool,
    /// Copy what changed since the last pass, and verify all; fail if the source changes meanwhile [the default]
    #[arg(long = "final")]
    pub last: bool,
    /// Copy nothing; check that the target can be opened for a copy
    #[arg(long, conflicts_with_all = ["from", "pre_copy", "last"])]
    pub probe: bool,
    /// Verify these contents: full, all of them, at the end; or changed-only, those that changed, in each pass and at
    /// the end. Devices, and sources received with --from, are always verified in full
    #[arg(long, value_name = "WHAT", default_value = "full")]
    pub verification: VerificationFlag,
    /// Handle sockets in the tree this way
    #[arg(long, value_name = "WHAT", default_value = "skip")]
    pub sockets: SocketsFlag,
    /// Rate limit and result file.
    #[command(flatten)]
    pub carry: CarryFlags,
}

/// `pliant send`.
#[derive(Debug, Args)]
pub struct SendRole {
    /// Directory to send, or with --device a block device
    #[arg(value_name = "SOURCE")]
    pub source: PathBuf,
    /// Listen on this address, such as 10.0.0.7 or fd00::7; with another port than 9815 as `10.0.0.7:80`
    /// or `[fd00::7]:80`
    #[arg(long, value_name = "ADDRESS", value_parser = listen)]
    pub listen: Listen,
    /// Read ca.crt, and tls.crt and tls.key of the sender, from this directory
    #[arg(long, value_name = "DIR")]
    pub cert_dir: PathBuf,
    /// Send a block device, or an image of one
    #[arg(long)]
    pub device: bool,
}

/// `pliant unpack`.
#[derive(Debug, Args)]
#[command(group(clap::ArgGroup::new("origin").required(true)))]
pub struct UnpackRole {
    /// Target directory, empty except for lost+found
    #[arg(value_name = "TARGET")]
    pub target: PathBuf,
    /// Unpack this archive: tar, or tar compressed with gzip or zstd
    #[arg(long, value_name = "FILE", group = "origin")]
    pub file: Option<PathBuf>,
    /// Fetch the archive from this URL, http or https
    #[arg(long, value_name = "URL", group = "origin")]
    pub url: Option<HttpUrl>,
    /// Refuse a --url that leads, also by a redirect, to an address that is not public: private, link-local or
    /// loopback
    #[arg(long, requires = "url")]
    pub public_only: bool,
    /// Allow these addresses in spite of --public-only, such as 10.2.0.0/16 [repeatable; default: none]
    #[arg(long, value_name = "CIDR", requires = "public_only")]
    pub allow_cidr: Vec<Network>,
    /// Allow this host through a proxy, which resolves its address, in spite of --public-only: a name such as
    /// files.example, or a whole domain as *.files.example [repeatable; default: none]
    #[arg(long, value_name = "HOST", requires = "public_only")]
    pub allow_host: Vec<HostName>,
    /// Trust these CA certificates (PEM) as well as those of the system, such as "$(cat ca.pem)" [default: none]
    #[arg(long, value_name = "PEM", env = "PLIANT_CA_BUNDLE", hide_env_values = true)]
    pub ca_bundle: Option<Bundle>,
    /// Require this SHA-256 checksum of the archive, 64 hexadecimal digits; otherwise the target is emptied again
    #[arg(long, value_name = "HEX")]
    pub sha256: Digest,
    /// Create all files with the current user as owner, in place of the owners in the archive
    #[arg(long)]
    pub no_owners: bool,
    /// Limit the unpacked bytes [default: the free space of the target]
    #[arg(long, value_name = "BYTES", value_parser = size)]
    pub max_size: Option<Bytes>,
    /// Rate limit and result file.
    #[command(flatten)]
    pub carry: CarryFlags,
}

/// What all that carry have.
#[derive(Debug, Args)]
pub struct CarryFlags {
    /// Write the result, the last line of the output, at most 4096 bytes, to this file; in a pod
    /// /dev/termination-log
    #[arg(long, value_name = "FILE")]
    pub result: Option<PathBuf>,
    /// Limit the transfer to this many bytes per second, such as 200Mi [default: unlimited]
    #[arg(long, value_name = "BYTES")]
    pub max_rate: Option<Rate>,
}

/// Which contents are verified.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum VerificationFlag {
    /// All of them, in the end.
    Full,
    /// In each pass those that have changed since the one before.
    ChangedOnly,
}

/// Handling of sockets.
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
    /// IPv4 or IPv6 address.
    pub ip: IpAddr,
    /// Port; `None` for the default one.
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
