//! Makes certificates: an authority whose key is forgotten as soon as it has signed, and what it signs.

use std::time::Duration;

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DistinguishedName, DnType,
    ExtendedKeyUsagePurpose, IsCa, KeyPair, KeyUsagePurpose, date_time_ymd,
};

/// When a certificate begins to be good and when it ends, since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lasting {
    /// From when on.
    pub begins: Duration,
    /// Until when.
    pub expires: Duration,
}

/// What may be shown with a certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Usage {
    /// Who answers.
    Server,
    /// Who asks.
    Client,
}

/// Who signs certificates. There is nothing to steal by which another one could be signed: its key is in
/// memory alone.
pub struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    lasting: Lasting,
}

impl Authority {
    /// Make one, and what it signs is good as long as it is.
    ///
    /// # Errors
    /// What keeps the system from making keys.
    pub fn make(name: &str, lasting: Lasting) -> Result<Authority, rcgen::Error> {
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

    /// Sign a certificate for a DNS name; returns it and its key, in PEM.
    ///
    /// # Errors
    /// What keeps the system from making keys, or a name that is none.
    pub fn sign(
        &self,
        host: &str,
        name: &str,
        usage: Usage,
    ) -> Result<(String, String), rcgen::Error> {
        let params = CertificateParams::new([host.to_owned()])?;
        let mut params = self.lasting.params(params, name);
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![match usage {
            Usage::Server => ExtendedKeyUsagePurpose::ServerAuth,
            Usage::Client => ExtendedKeyUsagePurpose::ClientAuth,
        }];
        params.use_authority_key_identifier_extension = true;
        let key = KeyPair::generate()?;
        Ok((params.signed_by(&key, &self.issuer)?.pem(), key.serialize_pem()))
    }
}

impl Lasting {
    fn params(self, mut params: CertificateParams, name: &str) -> CertificateParams {
        let epoch = date_time_ymd(1970, 1, 1);
        params.not_before = epoch + Duration::from_secs(self.begins.as_secs());
        params.not_after = epoch + Duration::from_secs(self.expires.as_secs());
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, name);
        params
    }
}
