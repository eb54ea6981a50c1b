//! The keys of sender and receiver: one authority for one copy, and two names that it has signed.
//!
//! The sender shows a certificate for `source`, the receiver one for `target`. Each is valid for
//! its own side alone, so that the key of one role cannot be used for the other.

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rustls::client::Resumption;
use rustls::client::danger::HandshakeSignatureValid;
use rustls::client::verify_server_name;
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{NoServerSessionStorage, ParsedCertificate, WebPkiClientVerifier};
use rustls::version::TLS13;
use rustls::{
    ClientConfig, DigitallySignedStruct, DistinguishedName, RootCertStore, ServerConfig,
    SignatureScheme,
};

use super::PROTOCOL;
use crate::certificates::{Authority, CertificateUsage, Validity};
use crate::copy::CopyError;

/// The name in the certificate of who sends.
pub const SOURCE: &str = "source";
/// The name in the certificate of who receives.
pub const TARGET: &str = "target";

/// How long they are good for: longer than any copy takes, with the hot rounds before it.
const LIFE: Duration = Duration::from_secs(365 * 24 * 3600);
/// How long before they were made they begin: clocks differ.
const EARLY: Duration = Duration::from_secs(3600);

/// All that the two ends of a copy need to know each other, in PEM.
#[derive(Clone, PartialEq, Eq)]
pub struct TransferKeys {
    /// The certificate of the authority, `ca.crt` on both sides.
    pub ca: String,
    /// Certificate and key of who sends, `tls.crt` and `tls.key` there.
    pub source: (String, String),
    /// Certificate and key of who receives.
    pub target: (String, String),
}

impl fmt::Debug for TransferKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TransferKeys").finish_non_exhaustive()
    }
}

impl TransferKeys {
    /// Creates all of them; `now` is since 1970. They are valid for a year, from an hour ago.
    ///
    /// # Errors
    /// Failures of the system to generate keys.
    pub fn make(now: Duration) -> Result<TransferKeys, rcgen::Error> {
        let lasting = Validity { begins: now.saturating_sub(EARLY), expires: now + LIFE };
        let authority = Authority::make("Pliant copy authority", lasting)?;
        Ok(TransferKeys {
            ca: authority.pem(),
            source: authority.sign(SOURCE, "Pliant copy source", CertificateUsage::Server)?,
            target: authority.sign(TARGET, "Pliant copy target", CertificateUsage::Client)?,
        })
    }
}

/// Certificate and key of one end, and the authority that it trusts.
pub struct Credentials {
    authority: RootCertStore,
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
}

impl Credentials {
    /// Reads `ca.crt`, `tls.crt` and `tls.key` of a directory, as a Secret is mounted.
    ///
    /// # Errors
    /// [`CopyError::Refused`] with the file that is missing or not PEM.
    pub fn read(dir: &Path) -> Result<Credentials, CopyError> {
        let read = |name: &str| {
            let file = dir.join(name);
            std::fs::read(&file).map_err(|error| {
                CopyError::Refused(format!("failed to read the keys: {}: {error}", file.display()))
            })
        };
        let pems = [read("ca.crt")?, read("tls.crt")?, read("tls.key")?];
        Credentials::of(&pems[0], &pems[1], &pems[2])
            .map_err(|why| CopyError::Refused(format!("the keys in {}: {why}", dir.display())))
    }

    /// Takes an authority, a certificate and its key, in PEM.
    ///
    /// # Errors
    /// Which of them is none.
    pub fn of(ca: &[u8], certificate: &[u8], key: &[u8]) -> Result<Credentials, String> {
        let certificates = |pem: &[u8], what: &str| {
            let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
            let all = all.map_err(|error| format!("{what} is not a certificate: {error}"))?;
            if all.is_empty() { Err(format!("{what} contains no certificate")) } else { Ok(all) }
        };
        let mut authority = RootCertStore::empty();
        for one in certificates(ca, "ca.crt")? {
            authority.add(one).map_err(|error| {
                format!(
                    "ca.crt is not a certificate authority: \
                                                        {error}"
                )
            })?;
        }
        let key = PrivateKeyDer::from_pem_slice(key);
        let key = key.map_err(|error| format!("tls.key is not a private key: {error}"))?;
        Ok(Credentials { authority, chain: certificates(certificate, "tls.crt")?, key })
    }

    /// Returns the TLS configuration of the receiver.
    pub fn client(&self) -> Result<ClientConfig, CopyError> {
        let config = ClientConfig::builder_with_provider(provider());
        let config = config.with_protocol_versions(&[&TLS13]).map_err(unusable)?;
        let config = config.with_root_certificates(self.authority.clone());
        let config = config.with_client_auth_cert(self.chain.clone(), self.key.clone_key());
        let mut config = config.map_err(unusable)?;
        config.resumption = Resumption::disabled();
        config.alpn_protocols = vec![PROTOCOL.to_vec()];
        Ok(config)
    }

    /// Returns the TLS configuration of the sender.
    pub fn server(&self) -> Result<ServerConfig, CopyError> {
        let config = ServerConfig::builder_with_provider(provider());
        let config = config.with_protocol_versions(&[&TLS13]).map_err(unusable)?;
        let roots = Arc::new(self.authority.clone());
        let inner = WebPkiClientVerifier::builder_with_provider(roots, provider()).build();
        let inner = inner
            .map_err(|error| CopyError::Refused(format!("the certificate authority: {error}")))?;
        let config = config.with_client_cert_verifier(Arc::new(OnlyTarget(inner)));
        let config = config.with_single_cert(self.chain.clone(), self.key.clone_key());
        let mut config = config.map_err(unusable)?;
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        config.alpn_protocols = vec![PROTOCOL.to_vec()];
        Ok(config)
    }
}

pub(super) fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

#[expect(clippy::needless_pass_by_value, reason = "for `map_err`")]
pub(super) fn unusable(error: rustls::Error) -> CopyError {
    CopyError::Refused(format!("the keys are not usable: {error}"))
}

/// Takes a client whose certificate is for `target`, beside all that is looked at otherwise.
#[derive(Debug)]
struct OnlyTarget(Arc<dyn ClientCertVerifier>);

impl ClientCertVerifier for OnlyTarget {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.0.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        let verified = self.0.verify_client_cert(end_entity, intermediates, now)?;
        let name = ServerName::try_from(TARGET);
        let name = name.map_err(|error| rustls::Error::General(error.to_string()))?;
        verify_server_name(&ParsedCertificate::try_from(end_entity)?, &name)?;
        Ok(verified)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.0.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.0.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_verify_schemes()
    }
}

#[cfg(test)]
mod tests {
    use rustls::{ClientConnection, ServerConnection};

    use super::*;

    fn now() -> Duration {
        std::time::UNIX_EPOCH.elapsed().unwrap()
    }

    fn credentials(ca: &str, pair: &(String, String)) -> Credentials {
        Credentials::of(ca.as_bytes(), pair.0.as_bytes(), pair.1.as_bytes()).unwrap()
    }

    /// How a handshake ends between two ends in memory: what either says first.
    fn shake(client: ClientConfig, server: &Credentials) -> Result<(), rustls::Error> {
        let name = ServerName::try_from(SOURCE).unwrap();
        let mut client = ClientConnection::new(Arc::new(client), name)?;
        let mut server = ServerConnection::new(Arc::new(server.server().unwrap()))?;
        while client.is_handshaking() || server.is_handshaking() || client.wants_write() {
            let mut sent = Vec::new();
            client.write_tls(&mut sent).unwrap();
            server.read_tls(&mut sent.as_slice()).unwrap();
            server.process_new_packets()?;
            let mut sent = Vec::new();
            server.write_tls(&mut sent).unwrap();
            client.read_tls(&mut sent.as_slice()).unwrap();
            client.process_new_packets()?;
        }
        Ok(())
    }

    #[test]
    fn the_two_ends_of_a_copy_know_each_other_and_nobody_else() {
        let (keys, others) =
            (TransferKeys::make(now()).unwrap(), TransferKeys::make(now()).unwrap());
        let source = credentials(&keys.ca, &keys.source);
        let target = credentials(&keys.ca, &keys.target);
        assert_eq!(shake(target.client().unwrap(), &source), Ok(()));
        // Another authority, on either side.
        let other = credentials(&keys.ca, &others.target);
        shake(other.client().unwrap(), &source).unwrap_err();
        let other = credentials(&others.ca, &keys.target);
        shake(other.client().unwrap(), &source).unwrap_err();
        // Each in the role of the other.
        shake(source.client().unwrap(), &source).unwrap_err();
        shake(target.client().unwrap(), &target).unwrap_err();
        // Nobody at all.
        let none = ClientConfig::builder_with_provider(provider());
        let none = none.with_protocol_versions(&[&TLS13]).unwrap();
        let none = none.with_root_certificates(target.authority.clone()).with_no_client_auth();
        let error = shake(none, &source).unwrap_err();
        assert_eq!(error, rustls::Error::NoCertificatesPresented);
    }

    /// Signed by the same authority, for a client, and for another name.
    #[test]
    fn only_a_certificate_for_the_target_is_taken() {
        let lasting = Validity { begins: now().saturating_sub(EARLY), expires: now() + LIFE };
        let authority = Authority::make("test", lasting).unwrap();
        let sign = |name, usage| {
            let pair = authority.sign(name, "test", usage).unwrap();
            credentials(&authority.pem(), &pair)
        };
        let source = sign(SOURCE, CertificateUsage::Server);
        let taken = |name| shake(sign(name, CertificateUsage::Client).client().unwrap(), &source);
        assert_eq!(taken(TARGET), Ok(()));
        taken("other").unwrap_err();
        taken(SOURCE).unwrap_err();
    }

    #[test]
    fn keys_are_good_for_a_year_and_tell_nothing() {
        let before = now().saturating_sub(Duration::from_secs(366 * 24 * 3600));
        let keys = TransferKeys::make(before).unwrap();
        let (source, target) =
            (credentials(&keys.ca, &keys.source), credentials(&keys.ca, &keys.target));
        shake(target.client().unwrap(), &source).unwrap_err();
        assert_eq!(format!("{keys:?}"), "TransferKeys { .. }");
    }

    #[test]
    fn which_file_is_missing_or_no_pem_is_told() {
        let dir = tempfile::tempdir().unwrap();
        let said = || Credentials::read(dir.path()).map(|_| ()).unwrap_err().to_string();
        assert!(said().contains("ca.crt: No such file"), "{}", said());
        let keys = TransferKeys::make(now()).unwrap();
        for (name, pem) in [("ca.crt", ""), ("tls.crt", &keys.source.0), ("tls.key", "x")] {
            std::fs::write(dir.path().join(name), pem).unwrap();
        }
        assert!(said().ends_with("ca.crt contains no certificate"), "{}", said());
        std::fs::write(dir.path().join("ca.crt"), &keys.ca).unwrap();
        assert!(said().contains("tls.key is not a private key"), "{}", said());
        std::fs::write(dir.path().join("tls.key"), &keys.source.1).unwrap();
        Credentials::read(dir.path()).unwrap();
    }
}
