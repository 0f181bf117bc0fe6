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
        // The source of an I/O error is that of the error in it.
        let inside = cause.downcast_ref::<io::Error>().and_then(|io| io.get_ref()?.downcast_ref());
        if let Some(rustls::Error::InvalidCertificate(fault)) = inside.or_else(|| cause.downcast_ref()) {
            return Some(UntrustedServer { fault: fault.clone() });
        }
        error = cause.source();
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As rustls reports it through a connection.
    fn of_connection(fault: CertificateError) -> io::Error {
        io::Error::new(io::ErrorKind::InvalidData, rustls::Error::InvalidCertificate(fault))
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

    #[test]
    fn other_faults_of_certificates_are_named_only() {
        let expired = untrusted_server(&of_connection(CertificateError::Expired)).unwrap();
        assert_eq!(expired.to_string(), "its certificate is not trusted (Expired)");
        assert_eq!(untrusted_server(&io::Error::from(io::ErrorKind::ConnectionRefused)), None);
    }
}
