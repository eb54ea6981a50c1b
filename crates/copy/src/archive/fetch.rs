//! An archive from an http or https address, as a stream.

use std::fmt;
use std::io::{self, Read};
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use http::{Response, StatusCode, Uri, header};
use rustls::CertificateError;
use rustls::crypto::ring;
use ureq::config::AutoHeaderValue;
use ureq::tls::{Certificate, RootCerts, TlsConfig};
use ureq::unversioned::resolver::{DefaultResolver, ResolvedSocketAddrs, Resolver};
use ureq::unversioned::transport::{Connector as _, DefaultConnector, NextTimeout};
use ureq::{Agent, Body, BodyReader, Proxy};

use crate::archive::absolute::AbsoluteForm;
use crate::archive::{Reach, Route};
use crate::copy::CopyError;

/// How long the look-up of a name may take, and then the connection.
const LOOK_UP: Duration = Duration::from_secs(20);
/// How often an address may lead to another.
const REDIRECTS: usize = 5;

/// An http or https address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpUrl(Uri);

impl FromStr for HttpUrl {
    type Err = String;

    fn from_str(text: &str) -> Result<HttpUrl, String> {
        let uri: Uri = text.parse().map_err(|error| format!("`{text}` is not a URL: {error}"))?;
        let authority = uri.authority().map(http::uri::Authority::as_str).unwrap_or_default();
        match uri.scheme_str() {
            // It would stand in the pod's command line, for all who may read pods.
            _ if authority.contains('@') => Err("a URL must not contain a password".to_owned()),
            Some("http" | "https") => Ok(HttpUrl(uri)),
            _ => Err(format!("`{text}` must begin with http:// or https://")),
        }
    }
}

impl fmt::Display for HttpUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A query may be a signature that lets anyone read.
        let (scheme, authority) = (self.0.scheme_str(), self.0.authority());
        let authority = authority.map(http::uri::Authority::as_str).unwrap_or_default();
        write!(f, "{}://{authority}{}", scheme.unwrap_or_default(), self.0.path())
    }
}

impl HttpUrl {
    fn is_https(&self) -> bool {
        self.0.scheme_str() == Some("https")
    }

    /// Where a redirection leads; from https never to http.
    fn follow(&self, to: &str) -> Result<HttpUrl, String> {
        let here = |path: &str| {
            let authority = self.0.authority().map(http::uri::Authority::as_str);
            let (scheme, authority) = (self.0.scheme_str().unwrap_or_default(), authority);
            format!("{scheme}://{}{path}", authority.unwrap_or_default()).parse()
        };
        let next: HttpUrl = match to.as_bytes() {
            [b'/', b'/', ..] => format!("{}:{to}", self.0.scheme_str().unwrap_or_default()).parse(),
            [b'/', ..] => here(to),
            _ if to.contains("://") => to.parse(),
            _ => {
                let dir = self.0.path().rsplit_once('/').map_or("", |(dir, _)| dir);
                here(&format!("{dir}/{to}"))
            }
        }?;
        if self.is_https() && !next.is_https() {
            return Err(format!("it redirects to {next}, which is not https"));
        }
        Ok(next)
    }
}

/// Begins to read an archive; returns its length, if the server sends one. No connection is made to
/// an address that is not allowed, whatever a name or a redirection points to.
///
/// # Errors
/// [`CopyError::Refused`] for an answer that will stay so, [`CopyError::Failed`] for one that may not.
pub fn fetch(address: &HttpUrl, route: &Route) -> Result<(BodyStream, Option<u64>), CopyError> {
    let response = ask(address, route)?;
    let length = response.headers().get(header::CONTENT_LENGTH);
    let length = length.and_then(|length| length.to_str().ok()?.parse().ok());
    Ok((BodyStream(response.into_body().into_reader()), length))
}

fn ask(first: &HttpUrl, route: &Route) -> Result<Response<Body>, CopyError> {
    let mut address = first.clone();
    for _ in 0..=REDIRECTS {
        let answer = ask_one(&address, route)?;
        match leads_to(&answer) {
            None => return answered(&address, answer),
            Some(to) => {
                let next = address.follow(to);
                address = next.map_err(|why| CopyError::Refused(format!("{address}: {why}")))?;
            }
        }
    }
    Err(CopyError::Refused(format!("{first} redirects more than {REDIRECTS} times")))
}

fn ask_one(address: &HttpUrl, route: &Route) -> Result<Response<Body>, CopyError> {
    let proxy = route.proxies.of(&address.0);
    if proxy.is_some() && !route.reach.allows_by_proxy(address.0.host().unwrap_or_default()) {
        return Err(CopyError::Refused(format!(
            "{address} is fetched through a proxy, which resolves the host name: archives are \
             fetched through a proxy only from hosts that the administrator names \
             (populator.allowedArchiveHosts)"
        )));
    }
    let mut request = agent(address, route, proxy)?.get(address.0.clone());
    if let Some(word) = proxy.filter(|_| !address.is_https()).and_then(password) {
        request = request.header(header::PROXY_AUTHORIZATION, word);
    }
    request.call().map_err(|error| cannot(address, proxy, error))
}

/// What a proxy is shown that wants to know who asks; of a tunnel it is the client that shows it.
fn password(proxy: &Proxy) -> Option<String> {
    let user = proxy.username()?;
    let both = format!("{user}:{}", proxy.password().unwrap_or_default());
    Some(format!("Basic {}", BASE64_STANDARD.encode(both)))
}

/// Who asks for one address. A proxy makes a tunnel for https; for http it asks itself.
fn agent(address: &HttpUrl, route: &Route, proxy: Option<&Proxy>) -> Result<Agent, CopyError> {
    let is_https = address.is_https();
    let roots = if is_https { roots(address, route)? } else { RootCerts::from([]) };
    let tls = TlsConfig::builder()
        .root_certs(roots)
        .unversioned_rustls_crypto_provider(Arc::new(ring::default_provider()));
    let config = Agent::config_builder()
        .tls_config(tls.build())
        .proxy(proxy.filter(|_| is_https).cloned())
        .user_agent(concat!("pliant/", env!("CARGO_PKG_VERSION")))
        .accept_encoding(AutoHeaderValue::None)
        .http_status_as_error(false)
        .max_redirects(0)
        .timeout_resolve(Some(LOOK_UP))
        .timeout_connect(Some(LOOK_UP))
        .timeout_send_request(Some(route.patience))
        .timeout_recv_response(Some(route.patience))
        .timeout_per_read(Some(route.patience))
        .timeout_per_write(Some(route.patience))
        .build();
    Ok(match proxy {
        None => {
            let within = Within(route.reach.clone());
            Agent::with_parts(config, DefaultConnector::new(), within)
        }
        Some(_) if is_https => {
            Agent::with_parts(config, DefaultConnector::new(), DefaultResolver::default())
        }
        Some(proxy) => {
            let connector = DefaultConnector::new().chain(AbsoluteForm);
            Agent::with_parts(config, connector, AtProxy(proxy.uri().clone()))
        }
    })
}

/// Whom we believe: the authorities of the host, and those of the bundle.
fn roots(address: &HttpUrl, route: &Route) -> Result<RootCerts, CopyError> {
    let machine = rustls_native_certs::load_native_certs();
    let all = machine.certs.iter().chain(route.bundle.certificates());
    let all: Vec<Certificate<'static>> =
        all.map(|one| Certificate::from_der(one).to_owned()).collect();
    if all.is_empty() {
        let why = format!("no certificate authority is configured; {GIVE_IT}");
        return Err(failed(address, io::Error::other(why)));
    }
    Ok(RootCerts::from(all))
}

const GIVE_IT: &str = "set the PEM certificate of the authority that signed the server's \
                       certificate in the chart value populator.caBundle, or in --ca-bundle of \
                       `pliant unpack`";

/// That a name leads to no address that may be asked.
#[derive(Debug, thiserror::Error)]
#[error("no allowed address")]
struct OutOfReach;

/// Finds the addresses of a name that may be asked. It is these that are connected to: a name cannot lead
/// elsewhere between the look and the connection.
#[derive(Debug)]
struct Within(Reach);

impl Resolver for Within {
    fn resolve(
        &self,
        uri: &Uri,
        config: &ureq::config::Config,
        timeout: NextTimeout,
    ) -> Result<ResolvedSocketAddrs, ureq::Error> {
        let found = DefaultResolver::default().resolve(uri, config, timeout)?;
        let mut allowed = self.empty();
        for at in found.iter().filter(|at| self.0.allows(at.ip())) {
            allowed.push(*at);
        }
        if allowed.is_empty() {
            return Err(ureq::Error::Other(OutOfReach.into()));
        }
        Ok(allowed)
    }
}

/// Finds a proxy, whatever it is asked for.
#[derive(Debug)]
struct AtProxy(Uri);

impl Resolver for AtProxy {
    fn resolve(
        &self,
        _: &Uri,
        config: &ureq::config::Config,
        timeout: NextTimeout,
    ) -> Result<ResolvedSocketAddrs, ureq::Error> {
        DefaultResolver::default().resolve(&self.0, config, timeout)
    }
}

/// Why there is no answer.
fn cannot(address: &HttpUrl, proxy: Option<&Proxy>, error: ureq::Error) -> CopyError {
    match &error {
        ureq::Error::Other(why) if why.is::<OutOfReach>() => {
            return CopyError::Refused(format!(
                "{address} does not resolve to a public address: archives are fetched only from \
                 public addresses and from those that the administrator allows \
                 (populator.allowedArchiveCIDRs)"
            ));
        }
        _ if is_unknown_authority(&error) => {
            // Another try helps once that is given; and one of several servers may have sent half a chain.
            let why = format!("its certificate is signed by an unknown authority; {GIVE_IT}");
            return failed(address, io::Error::other(why));
        }
        _ => {}
    }
    let error = in_time(error);
    match proxy {
        None => failed(address, error),
        Some(proxy) => {
            let at = format!("{}:{}", proxy.host(), proxy.port());
            failed(
                address,
                io::Error::new(error.kind(), format!("through the proxy {at}: {error}")),
            )
        }
    }
}

fn is_unknown_authority(error: &ureq::Error) -> bool {
    let tls = match error {
        ureq::Error::Rustls(error) => Some(error),
        ureq::Error::Io(error) => error.get_ref().and_then(|error| error.downcast_ref()),
        _ => None,
    };
    matches!(tls, Some(rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer)))
}

/// As the system would say it.
fn in_time(error: ureq::Error) -> io::Error {
    match error {
        ureq::Error::Timeout(_) => io::ErrorKind::TimedOut.into(),
        other => other.into_io(),
    }
}

fn leads_to(answer: &Response<Body>) -> Option<&str> {
    let is_elsewhere = matches!(answer.status().as_u16(), 301 | 302 | 303 | 307 | 308);
    let to = answer.headers().get(header::LOCATION).filter(|_| is_elsewhere)?;
    to.to_str().ok()
}

fn answered(address: &HttpUrl, answer: Response<Body>) -> Result<Response<Body>, CopyError> {
    let status = answer.status();
    let may_change = [StatusCode::REQUEST_TIMEOUT, StatusCode::TOO_MANY_REQUESTS].contains(&status);
    match status {
        StatusCode::OK => Ok(answer),
        _ if status.is_server_error() || may_change => {
            Err(failed(address, io::Error::other(format!("the server returned {status}"))))
        }
        _ => Err(CopyError::Refused(format!("{address}: the server returned {status}"))),
    }
}

fn failed(address: &HttpUrl, source: io::Error) -> CopyError {
    CopyError::Failed { doing: "fetching", path: address.to_string(), source }
}

/// The body of an answer.
pub struct BodyStream(BodyReader<'static>);

impl Read for BodyStream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        // Whatever it is, it is no fault of the archive, and another try may bring more.
        self.0.read(buffer).map_err(|error| match in_time(error.into()) {
            error if error.kind() == io::ErrorKind::TimedOut => error,
            error => io::Error::new(io::ErrorKind::ConnectionAborted, error),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn redirections_are_followed_as_they_are_written_but_never_out_of_https() {
        let from: HttpUrl = "https://a.example/x/y.tar?q=1".parse().unwrap();
        let to = |text: &str| from.follow(text).map(|address| address.0.to_string());
        for (text, led) in [
            ("https://b.example/z", "https://b.example/z"),
            ("//c.example/z", "https://c.example/z"),
            ("/z?k=v", "https://a.example/z?k=v"),
            ("z.tar", "https://a.example/x/z.tar"),
        ] {
            assert_eq!(to(text).as_deref(), Ok(led));
        }
        for text in ["http://b.example/z", "ftp://b.example/z", "https://u:p@b.example/z"] {
            assert!(to(text).is_err(), "{text}");
        }
    }

    #[test]
    fn what_may_be_a_secret_is_not_told() {
        assert!("https://user:secret@a.example/".parse::<HttpUrl>().is_err());
        let signed: HttpUrl = "https://a.example/x.tar?signature=secret".parse().unwrap();
        assert_eq!(signed.to_string(), "https://a.example/x.tar");
        assert!("/x".parse::<HttpUrl>().is_err());
    }
}
