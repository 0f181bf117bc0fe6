//! Servers whose certificates are not accepted, and what the operator can do about them.

use std::error::Error;
use std::io;

use rustls::CertificateError;

/// Each client reads the authorities of the host anew, so neither needs a restart, but a new variable does.
const UNKNOWN_AUTHORITY: &str = "; if its authority is one of your own, copy it to /usr/local/share/ca-certificates/NAME.crt and run \
     'update-ca-certificates' on this host, or set SSL_CERT_FILE for sandboxd, which replaces the authorities of the host";

/// A server with a certificate that this host does not accept.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("its certificate is not trusted ({fault:?}){}", advice(.fault))]
pub(super) struct UntrustedServer {
    fault: CertificateError,
}

fn advice(fault: &CertificateError) -> &'static str {
    match fault {
        CertificateError::UnknownIssuer => UNKNOWN_AUTHORITY,
        _ => "",
    }
}

/// The untrusted server that made a request fail, if that was the reason.
pub(super) fn untrusted_server(error: &(dyn Error + 'static)) -> Option<UntrustedServer> {
    let mut error = Some(error);
    while let Some(cause) = error {
        if let Some(rustls::Error::InvalidCertificate(fault)) = cause.downcast_ref() {
            return Some(UntrustedServer { fault: fault.clone() });
        }
        let inside = cause.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        // The source of an I/O error is not the error in it, but the source of that.
        error = match inside {
            Some(inside) => Some(inside),
            None => cause.source(),
        };
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As connectors report it: an I/O error in another one.
    fn of_connection(fault: CertificateError) -> io::Error {
        let of_handshake =
            io::Error::new(io::ErrorKind::InvalidData, rustls::Error::InvalidCertificate(fault));
        io::Error::other(of_handshake)
    }

    #[test]
    fn an_unknown_authority_comes_with_advice() {
        #[derive(Debug, thiserror::Error)]
        #[error("the connection failed")]
        struct Outer(#[source] io::Error);

        let error = Outer(of_connection(CertificateError::UnknownIssuer));
        let text = untrusted_server(&error).unwrap().to_string();
        assert!(text.starts_with("its certificate is not trusted (UnknownIssuer)"), "{text}");
        assert!(text.contains("update-ca-certificates") && text.contains("SSL_CERT_FILE"), "{text}");
    }

    /// The errors around that of rustls are those of the HTTP client, which change with its versions.
    #[tokio::test]
    async fn a_server_with_a_certificate_of_its_own_is_found_by_a_request() {
        // Fails if another test has installed it.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
        let key = made.signing_key.serialize_der().try_into().unwrap();
        let config = rustls::ServerConfig::builder().with_no_client_auth();
        let config = config.with_single_cert(vec![made.cert.der().clone()], key).unwrap();
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let acceptor = tokio_rustls::TlsAcceptor::from(std::sync::Arc::new(config));
        let serving = tokio::spawn(async move {
            let (client, _) = listener.accept().await.unwrap();
            acceptor.accept(client).await.map(drop)
        });
        let client = reqwest::Client::builder().no_proxy().build().unwrap();
        let error = client.get(format!("https://127.0.0.1:{port}/v2/")).send().await.unwrap_err();
        assert_eq!(
            untrusted_server(&error),
            Some(UntrustedServer { fault: CertificateError::UnknownIssuer }),
            "{error:?}"
        );
        assert!(serving.await.unwrap().is_err(), "the client has refused the certificate");
    }

    #[test]
    fn other_faults_of_certificates_are_named_only() {
        let expired = untrusted_server(&of_connection(CertificateError::Expired)).unwrap();
        assert_eq!(expired.to_string(), "its certificate is not trusted (Expired)");
        assert_eq!(untrusted_server(&io::Error::from(io::ErrorKind::ConnectionRefused)), None);
    }
}
