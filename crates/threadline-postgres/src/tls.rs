//! Encryption of connections.

use std::sync::Arc;

use rustls::{
    ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme,
    client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature},
    pki_types::{CertificateDer, ServerName, UnixTime, pem::PemObject},
};
use threadline_store::BackendError;
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::options::Trust;

/// Makes what connections are encrypted with, where they are.
pub(crate) fn connector(trust: &Trust) -> Result<MakeRustlsConnect, BackendError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let failed = |error: rustls::Error| BackendError::new("preparing TLS", error);
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(failed)?;
    let mut roots = RootCertStore::empty();
    match trust {
        Trust::Anyone => {
            let anyone = Arc::new(Anyone(provider));
            let config = builder
                .dangerous()
                .with_custom_certificate_verifier(anyone)
                .with_no_client_auth();
            return Ok(MakeRustlsConnect::new(config));
        }
        Trust::Public => {
            roots.add_parsable_certificates(
                webpki_root_certs::TLS_SERVER_ROOT_CERTS.iter().cloned(),
            );
        }
        Trust::File(path) => {
            let what = || format!("reading certificates of {}", path.display());
            let found = CertificateDer::pem_file_iter(path)
                .map_err(|error| BackendError::new(what(), error))?;
            for certificate in found {
                let certificate = certificate.map_err(|error| BackendError::new(what(), error))?;
                roots
                    .add(certificate)
                    .map_err(|error| BackendError::new(what(), error))?;
            }
        }
    }
    let config = builder.with_root_certificates(roots).with_no_client_auth();
    Ok(MakeRustlsConnect::new(config))
}

/// Takes every certificate, as `sslmode=prefer` means: who can put a certificate in the way can as
/// well say that the server has no encryption.
#[derive(Debug)]
struct Anyone(Arc<CryptoProvider>);

impl ServerCertVerifier for Anyone {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let known = &self.0.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signature, known)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let known = &self.0.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, known)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
