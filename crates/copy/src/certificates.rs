//! Makes certificates: an authority whose key is forgotten as soon as it has signed, and what it signs.

use std::time::Duration;

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DistinguishedName, DnType,
    ExtendedKeyUsagePurpose, IsCa, KeyPair, KeyUsagePurpose, date_time_ymd,
};

/// Validity period of a certificate, as times since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Validity {
    /// Start of the validity.
    pub begins: Duration,
    /// Until when.
    pub expires: Duration,
}

/// Purpose of a certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CertificateUsage {
    /// Authentication of a server.
    Server,
    /// Authentication of a client.
    Client,
}

/// A certificate authority. Its key exists only in memory, so it cannot be stolen to sign another
/// certificate.
pub struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    lasting: Validity,
}

impl Authority {
    /// Creates a certificate authority. The certificates that it signs are valid as long as it is.
    ///
    /// # Errors
    /// Failures of the system to generate keys.
    pub fn make(name: &str, lasting: Validity) -> Result<Authority, rcgen::Error> {
        let mut params = lasting.params(CertificateParams::default(), name);
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate()?)?;
        Ok(Authority { issuer, lasting })
    }

    /// Its certificate, in PEM.
    pub fn pem(&self) -> String {
        self.issuer.pem()
    }

    /// Signs a certificate for a DNS name; returns the certificate and its key, in PEM.
    ///
    /// # Errors
    /// Failures of the system to generate keys, or an invalid name.
    pub fn sign(
        &self,
        host: &str,
        name: &str,
        usage: CertificateUsage,
    ) -> Result<(String, String), rcgen::Error> {
        let params = CertificateParams::new([host.to_owned()])?;
        let mut params = self.lasting.params(params, name);
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![match usage {
            CertificateUsage::Server => ExtendedKeyUsagePurpose::ServerAuth,
            CertificateUsage::Client => ExtendedKeyUsagePurpose::ClientAuth,
        }];
        params.use_authority_key_identifier_extension = true;
        let key = KeyPair::generate()?;
        Ok((params.signed_by(&key, &self.issuer)?.pem(), key.serialize_pem()))
    }
}

/// Creates a certificate that signs itself; returns the certificate and its key, in DER. Whoever trusts it knows its
/// digest.
///
/// # Errors
/// Failures of the system to generate keys, or an invalid name.
pub fn self_signed(
    host: &str,
    name: &str,
    lasting: Validity,
) -> Result<(Vec<u8>, Vec<u8>), rcgen::Error> {
    let mut params = lasting.params(CertificateParams::new([host.to_owned()])?, name);
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    let key = KeyPair::generate()?;
    Ok((params.self_signed(&key)?.der().to_vec(), key.serialize_der()))
}

impl Validity {
    fn params(self, mut params: CertificateParams, name: &str) -> CertificateParams {
        let epoch = date_time_ymd(1970, 1, 1);
        params.not_before = epoch + Duration::from_secs(self.begins.as_secs());
        params.not_after = epoch + Duration::from_secs(self.expires.as_secs());
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, name);
        params
    }
}
