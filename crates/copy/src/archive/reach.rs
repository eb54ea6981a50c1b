//! The addresses from which an archive may be fetched.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

/// A range of addresses, `10.0.0.0/8`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Network {
    base: IpAddr,
    prefix: u8,
}

/// The addresses to which connections are allowed: all, or the public ones and some more.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Reach {
    /// True if addresses are rejected that are valid only on this host, its networks or its
    /// cluster.
    pub public_only: bool,
    /// Networks that are exempt from that rule.
    pub allowed: Vec<Network>,
    /// Hosts that a proxy may be asked for then: it is the proxy that finds their addresses.
    pub hosts: Vec<HostName>,
}

impl Reach {
    /// Returns whether connections to an address are allowed.
    pub fn allows(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        !self.public_only
            || is_public(address)
            || self.allowed.iter().any(|network| network.contains(address))
    }

    /// Returns whether a host may be requested through a proxy.
    pub fn allows_by_proxy(&self, host: &str) -> bool {
        !self.public_only || self.hosts.iter().any(|one| one.is(host))
    }
}

impl Network {
    /// The range of one address alone.
    pub(super) fn of(address: IpAddr) -> Network {
        Network { base: address, prefix: if address.is_ipv4() { 32 } else { 128 } }
    }

    pub(super) fn contains(&self, address: IpAddr) -> bool {
        match (self.base, address) {
            (IpAddr::V4(base), IpAddr::V4(address)) => is_in_v4(address, base, self.prefix),
            (IpAddr::V6(base), IpAddr::V6(address)) => is_in_v6(address, base, self.prefix),
            _ => false,
        }
    }
}

impl FromStr for Network {
    type Err = String;

    fn from_str(text: &str) -> Result<Network, String> {
        let wrong = || format!("`{text}` is not a CIDR: write one such as 10.2.0.0/16");
        let (base, prefix) = text.split_once('/').ok_or_else(wrong)?;
        let (base, prefix): (IpAddr, u8) =
            base.parse().ok().zip(prefix.parse().ok()).ok_or_else(wrong)?;
        let longest = if base.is_ipv4() { 32 } else { 128 };
        if prefix > longest { Err(wrong()) } else { Ok(Network { base, prefix }) }
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.base, self.prefix)
    }
}

fn is_in_v4(address: Ipv4Addr, base: Ipv4Addr, prefix: u8) -> bool {
    let differ = u32::from(address) ^ u32::from(base);
    prefix == 0 || differ >> (32 - u32::from(prefix)) == 0
}

fn is_in_v6(address: Ipv6Addr, base: Ipv6Addr, prefix: u8) -> bool {
    let differ = u128::from(address) ^ u128::from(base);
    prefix == 0 || differ >> (128 - u32::from(prefix)) == 0
}

/// What IANA's registries of special addresses do not list as reachable from everywhere.
const SPECIAL_V4: [([u8; 4], u8); 13] = [
    ([0, 0, 0, 0], 8),
    ([10, 0, 0, 0], 8),
    ([100, 64, 0, 0], 10), // Of providers; some clouds serve their metadata there.
    ([127, 0, 0, 0], 8),
    ([169, 254, 0, 0], 16), // Of one link; most clouds serve their metadata there.
    ([172, 16, 0, 0], 12),
    ([192, 0, 0, 0], 24),
    ([192, 0, 2, 0], 24),
    ([192, 168, 0, 0], 16),
    ([198, 18, 0, 0], 15),
    ([198, 51, 100, 0], 24),
    ([203, 0, 113, 0], 24),
    ([224, 0, 0, 0], 3), // Of many, and reserved.
];

/// All that is assigned for use from everywhere is in 2000::/3; these are not, in it.
const SPECIAL_V6: [([u16; 8], u8); 3] = [
    ([0x2001, 0, 0, 0, 0, 0, 0, 0], 23), // Of protocols, among them Teredo, which wraps others.
    ([0x2001, 0xdb8, 0, 0, 0, 0, 0, 0], 32),
    ([0x3fff, 0, 0, 0, 0, 0, 0, 0], 20),
];

fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => is_public_v4(address),
        IpAddr::V6(address) => is_public_v6(address),
    }
}

fn is_public_v4(address: Ipv4Addr) -> bool {
    !SPECIAL_V4.iter().any(|(base, prefix)| is_in_v4(address, (*base).into(), *prefix))
}

fn is_public_v6(address: Ipv6Addr) -> bool {
    let [first, second, third, _, _, _, seventh, last] = address.segments();
    let embedded = |high: u16, low: u16| Ipv4Addr::from((u32::from(high) << 16) | u32::from(low));
    // What leads to an address of IPv4 is as public as that.
    match first {
        0x2002 => return is_public_v4(embedded(second, third)),
        0x64 if is_in_v6(address, Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, 0, 0), 96) => {
            return is_public_v4(embedded(seventh, last));
        }
        _ => {}
    }
    is_in_v6(address, Ipv6Addr::new(0x2000, 0, 0, 0, 0, 0, 0, 0), 3)
        && !SPECIAL_V6.iter().any(|(base, prefix)| is_in_v6(address, (*base).into(), *prefix))
}

/// A host that may be asked by a proxy, which finds its address: its name, or `*.` and the domain that it is in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostName(pub(super) String);

impl HostName {
    /// Returns whether it matches a host.
    pub fn is(&self, host: &str) -> bool {
        match self.0.strip_prefix("*.") {
            Some(domain) => is_in(host, domain),
            None => host.trim_end_matches('.').eq_ignore_ascii_case(&self.0),
        }
    }
}

impl FromStr for HostName {
    type Err = String;

    fn from_str(text: &str) -> Result<HostName, String> {
        let name = text.strip_prefix("*.").unwrap_or(text);
        let fits =
            |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | ':' | '[' | ']');
        if name.is_empty() || !name.chars().all(fits) {
            let write = "write one such as files.example or *.files.example";
            return Err(format!("`{text}` is not a host name: {write}"));
        }
        Ok(HostName(text.trim_end_matches('.').to_owned()))
    }
}

impl fmt::Display for HostName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Returns whether a host is in a domain, and not that itself.
pub(super) fn is_in(host: &str, domain: &str) -> bool {
    let host = host.trim_end_matches('.').to_lowercase();
    let before = host.strip_suffix(&domain.to_lowercase());
    before.is_some_and(|before| before.len() > 1 && before.ends_with('.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_means_something_here_alone_is_not_public() {
        let public = |text: &str| {
            Reach { public_only: true, ..Reach::default() }.allows(text.parse().unwrap())
        };
        for text in [
            "127.0.0.1",
            "0.0.0.0",
            "10.96.0.1",
            "172.31.255.255",
            "192.168.1.1",
            "169.254.169.254",
            "100.100.100.200",
            "198.19.0.1",
            "224.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "fe80::1",
            "fec0::1",
            "fd00::7",
            "ff02::1",
            "::ffff:10.0.0.1",
            "::10.0.0.1",
            "64:ff9b::a9fe:a9fe",
            "2002:7f00:1::",
            "2001:0:1::",
            "2001:db8::1",
            "64:ff9b:1::1",
        ] {
            assert!(!public(text), "{text}");
            assert!(Reach::default().allows(text.parse().unwrap()), "{text}");
        }
        for text in [
            "1.1.1.1",
            "172.32.0.1",
            "100.128.0.1",
            "192.0.1.1",
            "223.255.255.255",
            "2606:4700::1111",
            "::ffff:1.1.1.1",
            "64:ff9b::101:101",
            "2002:101:101::",
        ] {
            assert!(public(text), "{text}");
        }
    }

    #[test]
    fn what_is_allowed_is_asked_besides() {
        let allowed = ["10.2.0.0/16", "fd00:2::/32", "127.0.0.7/32"];
        let allowed = allowed.iter().map(|text| text.parse().unwrap()).collect();
        let reach = Reach { public_only: true, allowed, ..Reach::default() };
        let allows = |text: &str| reach.allows(text.parse().unwrap());
        for text in ["10.2.255.1", "::ffff:10.2.0.1", "fd00:2:1::1", "127.0.0.7", "9.9.9.9"] {
            assert!(allows(text), "{text}");
        }
        for text in ["10.3.0.1", "fd00:3::1", "127.0.0.8"] {
            assert!(!allows(text), "{text}");
        }
    }

    #[test]
    fn a_range_is_an_address_and_a_length() {
        for text in ["0.0.0.0/0", "10.2.0.0/16", "::/0", "fd00:2::/32"] {
            assert_eq!(text.parse::<Network>().unwrap().to_string(), text);
        }
        for text in ["", "10.0.0.1", "10.0.0.0/33", "::/129", "a/8", "10.0.0.0/-1"] {
            assert!(text.parse::<Network>().is_err(), "{text}");
        }
    }
}
