//! The certificate that is shown to who connects.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use rustls::Error;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use tokio::sync::watch;

use super::CertificatePair;

/// The certificate that is shown to who connects from now on. Clones show the same one.
#[derive(Clone, Default)]
pub struct Shown(watch::Sender<Option<(CertificatePair, Arc<CertifiedKey>)>>);

impl fmt::Debug for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Shown").field(&self.0.borrow().as_ref().map(|(pair, _)| pair)).finish()
    }
}

impl Shown {
    /// Serves this certificate. If it is already served, nothing changes.
    ///
    /// # Errors
    /// The certificate is unusable; then the previous one stays.
    pub fn show(&self, pair: &CertificatePair) -> Result<(), Error> {
        let is_shown = self.0.borrow().as_ref().is_some_and(|(shown, _)| shown == pair);
        if !is_shown {
            let certified = Arc::new(certified(pair)?);
            self.0.send_replace(Some((pair.clone(), certified)));
        }
        Ok(())
    }

    /// Returns the expiry of the served certificate since 1970; `None` without one, or if it is unknown.
    pub fn expires(&self) -> Option<Duration> {
        self.0.borrow().as_ref().and_then(|(pair, _)| pair.expires())
    }

    /// Waits until there is a certificate.
    pub(super) async fn first(&self) {
        let _ = self.0.subscribe().wait_for(Option::is_some).await; // This is a sender: there is one.
    }
}

impl ResolvesServerCert for Shown {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.0.borrow().as_ref().map(|(_, certified)| certified.clone())
    }
}

fn certified(pair: &CertificatePair) -> Result<CertifiedKey, Error> {
    let unreadable = |error: rustls::pki_types::pem::Error| Error::General(error.to_string());
    let chain = CertificateDer::pem_slice_iter(pair.certificate.as_bytes());
    let chain = chain.collect::<Result<Vec<_>, _>>().map_err(unreadable)?;
    let key = PrivateKeyDer::from_pem_slice(pair.key.as_bytes()).map_err(unreadable)?;
    CertifiedKey::from_der(chain, key, &ring::default_provider())
}
