//! The certificates of the webhook, and when they are renewed.
//!
//! Each has an authority of its own, whose key is forgotten as soon as it has signed: there is nothing to
//! steal by which another one could be signed. A new pair is made when two thirds of the life of the one
//! before have passed, and shown when the API servers have had time to learn of its authority. Both
//! authorities are trusted all the while.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::certificates::{Authority, CertificateUsage, Validity};

/// Lifetime of a certificate.
pub const LIFE: Duration = Duration::from_secs(90 * 24 * 3600);

/// The part of its life by which a certificate begins before it was made, an hour of 90 days: clocks
/// differ.
const EARLY: u32 = 90 * 24;

/// The part of its life after which a certificate is shown, three days of 90.
const SETTLING: u32 = 30;

/// A certificate with its key, and the authority that has signed it. Times are seconds since 1970.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CertificatePair {
    /// The certificate of the authority, in PEM.
    pub authority: String,
    /// The certificate, in PEM.
    pub certificate: String,
    /// Private key, in PEM.
    pub key: String,
    /// Time of its creation.
    made: u64,
    /// Time of its expiry, if known: not for a certificate that another program manages.
    expires: Option<u64>,
}

impl fmt::Debug for CertificatePair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CertificatePair")
            .field("made", &self.made)
            .field("expires", &self.expires)
            .finish_non_exhaustive()
    }
}

impl CertificatePair {
    /// Creates a certificate for a server of this name; `now` is since 1970.
    ///
    /// # Errors
    /// The system cannot create keys, or the name is invalid.
    pub fn make(
        host: &str,
        life: Duration,
        now: Duration,
    ) -> Result<CertificatePair, rcgen::Error> {
        let begins = now.saturating_sub(life / EARLY);
        let expires = begins + life;
        let name = format!("Pliant webhook authority {}", now.as_secs());
        let authority = Authority::make(&name, Validity { begins, expires })?;
        let (certificate, key) =
            authority.sign(host, "Pliant webhook", CertificateUsage::Server)?;
        Ok(CertificatePair {
            authority: authority.pem(),
            certificate,
            key,
            made: now.as_secs() + 1, // Rounded up: not shown too early.
            expires: Some(expires.as_secs()),
        })
    }

    /// Wraps a certificate that another program manages and renews.
    pub fn given(authority: String, certificate: String, key: String) -> CertificatePair {
        CertificatePair { authority, certificate, key, made: 0, expires: None }
    }

    /// Returns the time of its expiry since 1970, if known.
    pub fn expires(&self) -> Option<Duration> {
        self.expires.map(Duration::from_secs)
    }

    fn life(&self) -> Duration {
        Duration::from_secs(self.expires.unwrap_or(self.made).saturating_sub(self.made))
    }

    fn renewed_at(&self) -> Duration {
        Duration::from_secs(self.made) + self.life() * 2 / 3
    }

    fn shown_at(&self) -> Duration {
        Duration::from_secs(self.made) + self.life() / SETTLING
    }
}

/// The pairs that all replicas share, the newest first: one, and the one before it while it is good.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pairs(Vec<CertificatePair>);

impl Pairs {
    /// The only one is that of another program.
    pub fn given(pair: CertificatePair) -> Pairs {
        Pairs(vec![pair])
    }

    /// Returns true if there is no certificate.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns true if a new certificate is due.
    pub fn are_due(&self, now: Duration) -> bool {
        self.0.first().is_none_or(|newest| newest.renewed_at() <= now)
    }

    /// Returns these with a new one before them.
    pub fn with(&self, new: CertificatePair, now: Duration) -> Pairs {
        let is_good =
            |before: &&CertificatePair| before.expires().is_none_or(|expires| expires > now);
        let before = self.0.first().filter(is_good);
        Pairs([Some(new), before.cloned()].into_iter().flatten().collect())
    }

    /// Returns the certificates of all authorities, in PEM.
    pub fn authorities(&self) -> String {
        self.0.iter().map(|pair| pair.authority.as_str()).collect()
    }

    /// Returns the pair to show to who connects: the newest one, as soon as its authority has been
    /// known for a while to who `trusts` it, and the one before until then.
    pub fn shown(&self, trusts: impl Fn(&str) -> bool, now: Duration) -> Option<&CertificatePair> {
        let is_known = |pair: &&CertificatePair| pair.shown_at() <= now && trusts(&pair.authority);
        self.0.iter().find(is_known).or(self.0.last())
    }

    /// Returns the time until the next change of the certificates.
    pub fn next(&self, now: Duration) -> Option<Duration> {
        let newest = self.0.first()?;
        let times = [newest.shown_at(), newest.renewed_at()];
        times.into_iter().filter_map(|at| at.checked_sub(now)).filter(|left| !left.is_zero()).min()
    }
}

#[cfg(test)]
mod tests;
