//! The key of a node plugin: it makes it itself, and each end of a transfer is told the digest of the other's
//! certificate. There is no authority whose key could be stolen.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use rustls::client::Resumption;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName, UnixTime};
use rustls::server::NoServerSessionStorage;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::version::TLS13;
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, DistinguishedName, Error, ServerConfig,
    SignatureScheme,
};

use super::tls::{SOURCE, provider, unusable};
use crate::certificates::{Validity, self_signed};
use crate::copy::{CopyError, Digest};

/// What both sides have to speak.
const PROTOCOL: &[u8] = b"pliant-blocks/1";

/// Returns whether the certificate with this digest is one to talk to.
pub(super) type IsKnown = dyn Fn(Digest) -> bool + Send + Sync;

/// Key and certificate of one node plugin, in memory only: a restarted one has others.
pub struct PeerKey {
    certificate: CertificateDer<'static>,
    key: PrivateKeyDer<'static>,
}

impl fmt::Debug for PeerKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("PeerKey").field(&self.fingerprint()).finish()
    }
}

impl PeerKey {
    /// Makes a key.
    ///
    /// # Errors
    /// Failures of the system to generate keys.
    pub fn make() -> Result<PeerKey, CopyError> {
        // Whoever knows the digest of the certificate asks neither for its name nor for its time.
        let lasting =
            Validity { begins: Duration::ZERO, expires: Duration::from_secs(u32::MAX.into()) };
        let (certificate, key) = self_signed(SOURCE, "Pliant node plugin", lasting)
            .map_err(|error| CopyError::Refused(format!("failed to make a key: {error}")))?;
        let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key));
        Ok(PeerKey { certificate: CertificateDer::from(certificate), key })
    }

    /// The SHA-256 of the certificate, by which the other end knows it.
    pub fn fingerprint(&self) -> Digest {
        Digest::of(&self.certificate)
    }

    /// The TLS configuration of who connects to the node plugin with this fingerprint.
    pub(super) fn client(&self, server: Digest) -> Result<ClientConfig, CopyError> {
        let only = Arc::new(OnlyKnown::those(move |digest| digest == server));
        let config = ClientConfig::builder_with_provider(provider());
        let config = config.with_protocol_versions(&[&TLS13]).map_err(unusable)?;
        let config = config.dangerous().with_custom_certificate_verifier(only);
        let (chain, key) = (vec![self.certificate.clone()], self.key.clone_key());
        let mut config = config.with_client_auth_cert(chain, key).map_err(unusable)?;
        config.resumption = Resumption::disabled();
        config.alpn_protocols = vec![PROTOCOL.to_vec()];
        Ok(config)
    }

    /// The TLS configuration of who is connected to, by those that are known at that time.
    pub(super) fn server(
        &self,
        is_known: impl Fn(Digest) -> bool + Send + Sync + 'static,
    ) -> Result<ServerConfig, CopyError> {
        let config = ServerConfig::builder_with_provider(provider());
        let config = config.with_protocol_versions(&[&TLS13]).map_err(unusable)?;
        let config = config.with_client_cert_verifier(Arc::new(OnlyKnown::those(is_known)));
        let (chain, key) = (vec![self.certificate.clone()], self.key.clone_key());
        let mut config = config.with_single_cert(chain, key).map_err(unusable)?;
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        config.alpn_protocols = vec![PROTOCOL.to_vec()];
        Ok(config)
    }
}

/// Takes the certificates that are known, and no signature but their own.
struct OnlyKnown {
    is_known: Box<IsKnown>,
    provider: Arc<CryptoProvider>,
}

impl fmt::Debug for OnlyKnown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OnlyKnown").finish_non_exhaustive()
    }
}

impl OnlyKnown {
    fn those(is_known: impl Fn(Digest) -> bool + Send + Sync + 'static) -> OnlyKnown {
        OnlyKnown { is_known: Box::new(is_known), provider: provider() }
    }

    fn check(&self, certificate: &CertificateDer<'_>) -> Result<(), Error> {
        if (self.is_known)(Digest::of(certificate)) {
            return Ok(());
        }
        Err(Error::InvalidCertificate(CertificateError::ApplicationVerificationFailure))
    }

    fn check_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let known = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signed, known)
    }

    fn schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

/// Only TLS 1.3 is spoken.
fn no_tls12() -> Result<HandshakeSignatureValid, Error> {
    Err(Error::General("TLS 1.2 is not spoken".to_owned()))
}

impl ServerCertVerifier for OnlyKnown {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.check(end_entity).map(|()| ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        no_tls12()
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.check_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.schemes()
    }
}

impl ClientCertVerifier for OnlyKnown {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        self.check(end_entity).map(|()| ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        no_tls12()
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.check_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.schemes()
    }
}
