//! The route to the server of an archive: its proxy, and the trusted certificate authorities.

use std::net::IpAddr;
use std::str::FromStr;
use std::time::Duration;

use http::Uri;
use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use ureq::{Proxy, ProxyProtocol};

use super::reach::{HostName, Network, Reach, is_in};

/// The route to the server of an archive.
#[derive(Debug, Clone)]
pub struct Route {
    /// Addresses to which connections are allowed.
    pub reach: Reach,
    /// Proxies that send the requests.
    pub proxies: Proxies,
    /// Certificate authorities that are trusted in addition to those of the host.
    pub bundle: Bundle,
    /// Maximum time until a response, and between its pieces.
    pub patience: Duration,
}

impl Default for Route {
    fn default() -> Route {
        Route {
            reach: Reach::default(),
            proxies: Proxies::default(),
            bundle: Bundle::default(),
            patience: Duration::from_secs(60),
        }
    }
}

/// Certificates of authorities, read from PEM.
#[derive(Debug, Clone, Default)]
pub struct Bundle {
    certificates: Vec<CertificateDer<'static>>,
    pem: String,
}

impl Bundle {
    /// The variable from which `pliant unpack` reads them.
    pub const VARIABLE: &'static str = "PLIANT_CA_BUNDLE";

    /// The PEM text that it was read from.
    pub fn pem(&self) -> &str {
        &self.pem
    }

    /// Each certificate.
    pub fn certificates(&self) -> &[CertificateDer<'static>] {
        &self.certificates
    }
}

impl FromStr for Bundle {
    type Err = String;

    fn from_str(text: &str) -> Result<Bundle, String> {
        let mut found = Vec::new();
        for (number, one) in (1..).zip(CertificateDer::pem_slice_iter(text.as_bytes())) {
            let one = one.map_err(|error| format!("it is not PEM: {error}"))?;
            let read = RootCertStore::empty().add(one.clone());
            read.map_err(|error| format!("failed to read certificate {number} in it: {error}"))?;
            found.push(one);
        }
        if found.is_empty() {
            return Err("it contains no certificate: provide the certificate of the authority as \
                        PEM, which begins with -----BEGIN CERTIFICATE-----"
                .to_owned());
        }
        Ok(Bundle { certificates: found, pem: text.to_owned() })
    }
}

/// Proxies for http and https, and what is asked without them.
#[derive(Debug, Clone, Default)]
pub struct Proxies {
    http: Option<Proxy>,
    https: Option<Proxy>,
    direct: Vec<Direct>,
}

/// What is asked without a proxy.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Direct {
    All,
    In(Network),
    /// A domain, and all in it.
    Domain(String),
}

impl Proxies {
    /// The variables, by their upper-case names; those in lower case are read where these are not set.
    pub const VARIABLES: [&str; 3] = ["HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY"];

    /// Reads them from `HTTP_PROXY`, `HTTPS_PROXY` and `NO_PROXY`.
    ///
    /// # Errors
    /// The name of a variable that holds no proxy, and not what it holds: that may be a password.
    pub fn read(variable: impl Fn(&str) -> Option<String>) -> Result<Proxies, String> {
        let read = |name: &str| {
            let set = |name: &str| variable(name).filter(|text| !text.trim().is_empty());
            set(name).or_else(|| set(&name.to_lowercase())).unwrap_or_default()
        };
        let [http, https, no_proxy] = Proxies::VARIABLES;
        let direct = read(no_proxy);
        Ok(Proxies {
            http: proxy(http, read(http).trim())?,
            https: proxy(https, read(https).trim())?,
            direct: direct.split(',').filter_map(|text| Direct::read(text.trim())).collect(),
        })
    }

    /// Returns whether the URL of a proxy contains a password.
    pub fn holds_password(&self) -> bool {
        let mut all = [&self.http, &self.https].into_iter().flatten();
        all.any(|proxy| proxy.username().is_some() || proxy.password().is_some())
    }

    /// The proxy that asks an address in our place, if there is one.
    pub(super) fn of(&self, uri: &Uri) -> Option<&Proxy> {
        let host = uri.host().unwrap_or_default();
        let proxy = if uri.scheme_str() == Some("https") { &self.https } else { &self.http };
        proxy.as_ref().filter(|_| !self.direct.iter().any(|one| one.holds(host)))
    }
}

fn proxy(variable: &str, text: &str) -> Result<Option<Proxy>, String> {
    if text.is_empty() {
        return Ok(None);
    }
    let proxy = Proxy::new(text).ok().filter(|proxy| proxy.protocol() == ProxyProtocol::Http);
    let wrong = || {
        format!(
            "{variable} is not the URL of a proxy: write one such as \
                    http://proxy.example:3128"
        )
    };
    proxy.ok_or_else(wrong).map(Some)
}

impl Direct {
    /// As curl has it: `*`, an address, a range of addresses, or a domain with or without a dot before it.
    fn read(text: &str) -> Option<Direct> {
        let address = text.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
        let domain = text.trim_start_matches('*').trim_start_matches('.').trim_end_matches('.');
        match (address, text.parse()) {
            _ if text == "*" => Some(Direct::All),
            (Ok(address), _) => Some(Direct::In(Network::of(address))),
            (_, Ok(network)) => Some(Direct::In(network)),
            _ if domain.is_empty() => None,
            _ => Some(Direct::Domain(domain.to_lowercase())),
        }
    }

    fn holds(&self, host: &str) -> bool {
        match self {
            Direct::All => true,
            Direct::In(network) => literal(host).is_some_and(|address| network.contains(address)),
            Direct::Domain(domain) => HostName(domain.clone()).is(host) || is_in(host, domain),
        }
    }
}

/// The address itself, where a host is one and no name.
fn literal(host: &str) -> Option<IpAddr> {
    host.trim_start_matches('[').trim_end_matches(']').parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(variables: &[(&str, &str)]) -> Result<Proxies, String> {
        let variable = |name: &str| {
            let found = variables.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        Proxies::read(variable)
    }

    fn used(proxies: &Proxies, address: &str) -> Option<String> {
        let proxy = proxies.of(&address.parse().unwrap())?;
        Some(format!("{}:{}", proxy.host(), proxy.port()))
    }

    #[test]
    fn each_scheme_has_its_proxy_in_either_case_of_the_name() {
        let proxies = read(&[
            ("HTTPS_PROXY", "http://s.example:3128"),
            ("HTTP_PROXY", " "),
            ("http_proxy", "p.example:81"),
        ]);
        let proxies = proxies.unwrap();
        assert_eq!(used(&proxies, "https://a/").as_deref(), Some("s.example:3128"));
        assert_eq!(used(&proxies, "http://a/").as_deref(), Some("p.example:81"));
        let none = read(&[]).unwrap();
        assert_eq!((used(&none, "http://a/"), used(&none, "https://a/")), (None, None));
    }

    #[test]
    fn what_no_proxy_names_is_asked_directly() {
        let no = "a.example, .b.example,*.c.example,10.0.0.0/8,192.0.2.7,[fd00::7],fd01::/16,";
        let proxies = read(&[("HTTP_PROXY", "http://p:1"), ("NO_PROXY", no)]).unwrap();
        let is_direct = |host: &str| used(&proxies, &format!("http://{host}/x")).is_none();
        for host in [
            "a.example",
            "A.Example.",
            "x.a.example:8080",
            "b.example",
            "x.b.example",
            "x.c.example",
            "10.1.2.3",
            "192.0.2.7:80",
            "[fd00::7]",
            "[fd01::1]:80",
        ] {
            assert!(is_direct(host), "{host}");
        }
        for host in ["example", "xa.example", "11.0.0.1", "192.0.2.8", "[fd00::8]", "a.example.org"]
        {
            assert!(!is_direct(host), "{host}");
        }
        let all = read(&[("HTTP_PROXY", "http://p:1"), ("no_proxy", "*")]).unwrap();
        assert_eq!(used(&all, "http://a/"), None);
    }

    #[test]
    fn what_is_no_proxy_is_refused_without_its_password() {
        for text in ["socks5://u:secret@p:1", "https://u:secret@p", "http://", "u:secret@"] {
            let error = read(&[("HTTPS_PROXY", text)]).unwrap_err();
            assert!(error.starts_with("HTTPS_PROXY is not the URL of a proxy"), "{text}: {error}");
            assert!(!error.contains("secret"), "{error}");
        }
        assert!(read(&[("HTTP_PROXY", "http://u:p@p:1")]).unwrap().holds_password());
        assert!(!read(&[("HTTP_PROXY", "http://p:1")]).unwrap().holds_password());
    }

    #[test]
    fn a_host_is_named_by_itself_or_by_its_domain() {
        let is = |name: &str, host: &str| name.parse::<HostName>().unwrap().is(host);
        assert!(is("files.example", "Files.Example.") && is("*.example", "x.files.example"));
        assert!(!is("files.example", "x.files.example") && !is("*.example", "example"));
        assert!(!is("*.example", ".example") && !is("files.example", "files.example.org"));
        assert!(is("192.0.2.7", "192.0.2.7") && is("[fd00::7]", "[fd00::7]"));
        for text in ["", "*.", "*", "a b", "http://a", "a/b"] {
            assert!(text.parse::<HostName>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_bundle_without_a_certificate_is_refused() {
        for text in
            ["", "nonsense", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"]
        {
            assert!(text.parse::<Bundle>().is_err(), "{text}");
        }
    }
}
