//! Server authentication: the authorities of this machine, given certificates, or one pinned certificate.
//!
//! A new `sandboxd` has a self-signed certificate. A client trusts its file where it is readable, or its fingerprint. There is no
//! option to accept any certificate.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{WebPkiServerVerifier, verify_server_name};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};

use crate::transport::connect::{Connector, ServiceUrl};
use crate::transport::fingerprint::Fingerprint;
use crate::{Error, Result};

/// Which certificates to trust.
#[derive(Debug, Clone, Default)]
pub enum Trust {
    /// Certificate authorities of this machine.
    #[default]
    System,
    /// Only these certificates: an authority's, or that of the service.
    Certificates(Vec<CertificateDer<'static>>),
    /// Only the certificate with this digest; its names and dates are not checked.
    Pinned(Fingerprint),
}

impl Trust {
    /// Certificates in PEM.
    pub fn pem(text: &[u8]) -> Option<Self> {
        let all: std::result::Result<Vec<_>, _> = CertificateDer::pem_slice_iter(text).collect();
        all.ok().filter(|all| !all.is_empty()).map(Self::Certificates)
    }

    /// The TLS configuration. Reads the authorities of this machine if they are trusted.
    pub fn config(&self) -> Result<ClientConfig> {
        let mut roots = RootCertStore::empty();
        match self {
            Self::Pinned(fingerprint) => return config_with(Pin(*fingerprint)),
            Self::Certificates(all) => return config_with(Given::new(all)?),
            // Unusable certificates of the machine are skipped; if none is left, the handshake fails.
            Self::System => {
                roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
            }
        }
        let builder = ClientConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .map_err(unusable)?;
        Ok(builder.with_root_certificates(roots).with_no_client_auth())
    }
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

fn unusable(error: rustls::Error) -> Error {
    Error::configuration("cannot set up TLS").caused_by(error)
}

fn config_with(check: impl CertificateCheck + 'static) -> Result<ClientConfig> {
    let builder = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(unusable)?;
    Ok(builder.dangerous().with_custom_certificate_verifier(Arc::new(Verifier(check))).with_no_client_auth())
}

impl Fingerprint {
    /// Fetches the fingerprint of the certificate at `url` without trusting it, to compare it with the output of
    /// `openssl x509 -fingerprint -sha256 -noout -in /var/lib/sandboxd/tls/tls-cert.pem` on the machine of the service. Sends no
    /// request.
    ///
    /// ```no_run
    /// # async fn example() -> sandboxd_client::Result<()> {
    /// let shown = sandboxd_client::Fingerprint::of("https://127.0.0.1:8443").await?;
    /// println!("the service shows {shown}");
    /// # Ok(()) }
    /// ```
    pub async fn of(url: &str) -> Result<Self> {
        let seen = Arc::new(Mutex::default());
        let config = config_with(Look(Arc::clone(&seen)))?;
        let service_url = ServiceUrl::parse(url)?;
        if !service_url.is_tls() {
            return Err(Error::configuration(format!("{url} is not an HTTPS URL, so it has no certificate")));
        }
        let connected = Connector::new(Some(config)).open(&service_url).await;
        let seen = *seen.lock().unwrap_or_else(PoisonError::into_inner);
        match (seen, connected) {
            (Some(fingerprint), _) => Ok(fingerprint),
            (None, Err(error)) => Err(Error::network(format!("cannot reach {url}")).caused_by(error)),
            (None, Ok(_)) => Err(Error::network(format!("{url} sent no certificate"))),
        }
    }
}

/// The certificates that a service presents, and what they are to be checked for.
struct Presented<'a> {
    certificate: &'a CertificateDer<'a>,
    intermediates: &'a [CertificateDer<'a>],
    name: &'a ServerName<'a>,
    ocsp_response: &'a [u8],
    now: UnixTime,
}

/// Accepts or rejects the certificate of a service.
trait CertificateCheck: fmt::Debug + Send + Sync {
    fn check(&self, presented: &Presented<'_>) -> std::result::Result<(), rustls::Error>;
}

/// A check as rustls needs it. Whatever the check accepts, the handshake proves possession of the private key.
#[derive(Debug)]
struct Verifier<C>(C);

/// Accepts only the pinned certificate.
#[derive(Debug)]
struct Pin(Fingerprint);

/// Accepts what a given certificate has signed, and the given certificates themselves.
#[derive(Debug)]
struct Given {
    certificates: Vec<CertificateDer<'static>>,
    authorities: Arc<WebPkiServerVerifier>,
}

/// Records the certificate and rejects it.
#[derive(Debug)]
struct Look(Arc<Mutex<Option<Fingerprint>>>);

impl Given {
    fn new(all: &[CertificateDer<'static>]) -> Result<Self> {
        let mut roots = RootCertStore::empty();
        for one in all {
            roots.add(one.clone()).map_err(|error| {
                Error::configuration("the certificate to trust is invalid").caused_by(error)
            })?;
        }
        let authorities = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider())
            .build()
            .map_err(|error| Error::configuration("cannot set up TLS").caused_by(error))?;
        Ok(Self { certificates: all.to_vec(), authorities })
    }
}

impl CertificateCheck for Pin {
    fn check(&self, presented: &Presented<'_>) -> std::result::Result<(), rustls::Error> {
        if Fingerprint::of_certificate(presented.certificate) == self.0 {
            Ok(())
        } else {
            Err(CertificateError::ApplicationVerificationFailure.into())
        }
    }
}

impl CertificateCheck for Given {
    fn check(&self, presented: &Presented<'_>) -> std::result::Result<(), rustls::Error> {
        let Presented { certificate, intermediates, name, ocsp_response, now } = *presented;
        match self.authorities.verify_server_cert(certificate, intermediates, name, ocsp_response, now) {
            // `openssl req -x509` makes the certificate of an authority, which is refused as that of a service. Wrong dates are
            // another error, which comes first.
            Err(rustls::Error::InvalidCertificate(CertificateError::Other(_)))
                if self.certificates.iter().any(|given| given[..] == certificate[..]) =>
            {
                verify_server_name(&ParsedCertificate::try_from(certificate)?, name)
            }
            verified => verified.map(drop),
        }
    }
}

impl CertificateCheck for Look {
    fn check(&self, presented: &Presented<'_>) -> std::result::Result<(), rustls::Error> {
        let seen = Fingerprint::of_certificate(presented.certificate);
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(seen);
        Err(CertificateError::ApplicationVerificationFailure.into())
    }
}

impl<C: CertificateCheck> ServerCertVerifier for Verifier<C> {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> std::result::Result<ServerCertVerified, rustls::Error> {
        self.0.check(&Presented { certificate, intermediates, name, ocsp_response, now })?;
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> std::result::Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = provider().signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, certificate, signature, &algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> std::result::Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = provider().signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signature, &algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        provider().signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// Of `openssl req -x509 -subj /CN=t -addext subjectAltName=DNS:localhost`, valid from 2026 on for a hundred years.
    const OF_OPENSSL: &str = "\
-----BEGIN CERTIFICATE-----
MIIBhTCCASugAwIBAgIUEAf+aVEhwzJlrx4XSNKK/yAfN6AwCgYIKoZIzj0EAwIw
DDEKMAgGA1UEAwwBdDAgFw0yNjExMjcyMjM2MzVaGA8yMTI2MTEwMzIyMzYzNVow
DDEKMAgGA1UEAwwBdDBZMBMGByqGSM49AgEGCCqGSM49AwEHA0IABLQMJ8JxGnhe
6pS5uB2KMSCDDgSjPG6DRI57Tfhob9kQcpCLMe4fbC4ApmpIDKfUWAgsp/pHBe14
dpGN07PGc/6jaTBnMB0GA1UdDgQWBBRGmP6VrYpWUPo1Vot4+HUxuMJgSDAfBgNV
HSMEGDAWgBRGmP6VrYpWUPo1Vot4+HUxuMJgSDAPBgNVHRMBAf8EBTADAQH/MBQG
A1UdEQQNMAuCCWxvY2FsaG9zdDAKBggqhkjOPQQDAgNIADBFAiEAkTQzIALAy8O6
GivHKRYxCE4pBkwqOqsZJaRG99JEfj8CIBONjL4DdJRYN+qf7lksP79DfLAJLMpJ
eGY+tmEJ/mHP
-----END CERTIFICATE-----
";
    const IN_2033: u64 = 2_000_000_000;
    const IN_2001: u64 = 1_000_000_000;

    fn verified(
        trusted: &Given,
        certificate: &CertificateDer<'_>,
        name: &str,
        at: u64,
    ) -> Option<CertificateError> {
        let name = ServerName::try_from(name.to_owned()).unwrap();
        let now = UnixTime::since_unix_epoch(Duration::from_secs(at));
        let presented = Presented { certificate, intermediates: &[], name: &name, ocsp_response: &[], now };
        match trusted.check(&presented) {
            Ok(()) => None,
            Err(rustls::Error::InvalidCertificate(error)) => Some(error),
            Err(error) => panic!("{error}"),
        }
    }

    #[test]
    fn a_given_certificate_is_trusted_although_it_is_that_of_an_authority() {
        let Some(Trust::Certificates(all)) = Trust::pem(OF_OPENSSL.as_bytes()) else {
            panic!("no certificate")
        };
        let trusted = Given::new(&all).unwrap();
        assert_eq!(verified(&trusted, &all[0], "localhost", IN_2033), None);
        let name = verified(&trusted, &all[0], "a.example", IN_2033);
        assert!(matches!(name, Some(CertificateError::NotValidForNameContext { .. })), "{name:?}");
        let dates = verified(&trusted, &all[0], "localhost", IN_2001);
        assert!(matches!(dates, Some(CertificateError::NotValidYetContext { .. })), "{dates:?}");
        let mut other = all[0].to_vec();
        *other.last_mut().unwrap() ^= 1;
        assert!(verified(&trusted, &other.into(), "localhost", IN_2033).is_some());
    }
}
