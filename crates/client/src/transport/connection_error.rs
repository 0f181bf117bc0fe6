//! Errors of connections. Where the cause is one that a user can act on, it is the `reason` in the details of the error:
//!
//! ```text
//! certificate   the certificate is not accepted; `certificate` is untrusted, name, expired or pinned
//! plain         the service does not speak TLS at this port
//! refused       nothing listens at this port
//! host          the name of the host is not known
//! https         the service answers only over HTTPS; `location` is its URL
//! ```

use std::{fmt, io};

use rustls::CertificateError;

use crate::Error;
use crate::error::without_link;

/// The name of the host cannot be resolved.
#[derive(Debug)]
pub struct UnknownHost(pub io::Error);

impl fmt::Display for UnknownHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the name of the host cannot be resolved")
    }
}

impl std::error::Error for UnknownHost {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.0)
    }
}

/// Why there was no response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ConnectionCause {
    Certificate(CertificateFault),
    Plain,
    Refused,
    Host,
    Other,
}

/// Why a certificate is not accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CertificateFault {
    Untrusted,
    Name,
    Expired,
    /// Another one is pinned.
    Pinned,
}

/// An error with the innermost cause and the URL: the causes around it add nothing that a user can act on.
pub fn no_response(error: impl std::error::Error + Send + Sync + 'static, url: &str) -> Error {
    let (cause, innermost) = cause_of(&error);
    let message = format!("no response from {url}: {innermost}");
    let network_error = match cause {
        ConnectionCause::Certificate(fault) => Error::network(format!("{message}; {}", fault.advice()))
            .with_detail("reason", "certificate")
            .with_detail("certificate", fault.name()),
        ConnectionCause::Plain => {
            Error::network(format!("{message}; the service does not speak TLS at this port"))
                .with_detail("reason", "plain")
        }
        ConnectionCause::Refused => Error::network(message).with_detail("reason", "refused"),
        ConnectionCause::Host => Error::network(message).with_detail("reason", "host"),
        ConnectionCause::Other => Error::network(message),
    };
    network_error.with_source(error)
}

/// The service redirects a request over plain HTTP; `location` is the URL with the path of the request.
pub fn redirected(url: &str, path: &str, location: &str) -> Option<Error> {
    let base = location.strip_suffix(path).unwrap_or(location).trim_end_matches('/');
    let is_secure = base.starts_with("https://");
    is_secure.then(|| {
        let message =
            format!("{url} is plain HTTP, and the service answers only over HTTPS; its URL is {base}");
        Error::configuration(message).with_detail("reason", "https").with_detail("location", base)
    })
}

/// The cause of an error, and the text of the innermost one.
fn cause_of(error: &(dyn std::error::Error + 'static)) -> (ConnectionCause, String) {
    let (mut found, mut innermost) = (ConnectionCause::Other, error);
    loop {
        let io = innermost.downcast_ref::<io::Error>();
        let tls = io.and_then(|io| io.get_ref()?.downcast_ref::<rustls::Error>());
        let tls = tls.or_else(|| innermost.downcast_ref());
        let is_unknown_host = io.and_then(io::Error::get_ref).is_some_and(|inner| inner.is::<UnknownHost>());
        let cause = match (tls, io) {
            (Some(rustls::Error::InvalidCertificate(fault)), _) => {
                ConnectionCause::Certificate(fault_of(fault))
            }
            (Some(rustls::Error::InvalidMessage(_)), _) => ConnectionCause::Plain,
            (_, Some(io)) if io.kind() == io::ErrorKind::ConnectionRefused => ConnectionCause::Refused,
            _ if is_unknown_host => ConnectionCause::Host,
            _ => ConnectionCause::Other,
        };
        if cause != ConnectionCause::Other {
            found = cause;
        }
        match innermost.source() {
            Some(source) => innermost = source,
            None => return (found, without_link(&innermost.to_string()).to_owned()),
        }
    }
}

fn fault_of(fault: &CertificateError) -> CertificateFault {
    match fault {
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            CertificateFault::Name
        }
        CertificateError::Expired
        | CertificateError::ExpiredContext { .. }
        | CertificateError::NotValidYet
        | CertificateError::NotValidYetContext { .. } => CertificateFault::Expired,
        CertificateError::ApplicationVerificationFailure => CertificateFault::Pinned,
        _ => CertificateFault::Untrusted,
    }
}

impl CertificateFault {
    const fn name(self) -> &'static str {
        match self {
            Self::Untrusted => "untrusted",
            Self::Name => "name",
            Self::Expired => "expired",
            Self::Pinned => "pinned",
        }
    }

    const fn advice(self) -> &'static str {
        match self {
            Self::Untrusted => {
                "this client does not trust the certificate: trust the service's certificate file or pin its fingerprint"
            }
            Self::Name => {
                "the certificate is for other names than that of the URL: use one of them, or pin its fingerprint"
            }
            Self::Expired => {
                "the certificate has expired or is not valid yet, or the clock of this machine is wrong"
            }
            Self::Pinned => "the certificate is another one than the pinned one: compare the fingerprints",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reason(error: &Error) -> Option<&str> {
        error.details().get("reason").and_then(|reason| reason.as_str())
    }

    fn of_tls(error: rustls::Error) -> Error {
        no_response(io::Error::new(io::ErrorKind::InvalidData, error), "https://a.example:443")
    }

    #[test]
    fn faults_of_certificates_are_told_apart() {
        for (fault, name, part) in [
            (CertificateError::UnknownIssuer, "untrusted", "does not trust the certificate"),
            (CertificateError::NotValidForName, "name", "other names"),
            (CertificateError::Expired, "expired", "clock"),
            (CertificateError::ApplicationVerificationFailure, "pinned", "fingerprints"),
        ] {
            let error = of_tls(rustls::Error::InvalidCertificate(fault));
            assert_eq!(
                (reason(&error), &error.details()["certificate"]),
                (Some("certificate"), &name.into())
            );
            assert!(
                error.message().contains(part) && error.message().contains("https://a.example"),
                "{error}"
            );
        }
    }

    #[test]
    fn links_to_the_documentation_of_libraries_are_left_out() {
        let eof =
            "peer closed connection without sending TLS close_notify: https://docs.rs/rustls/x.html#eof";
        let error = no_response(io::Error::new(io::ErrorKind::UnexpectedEof, eof), "https://a.example:443");
        assert!(error.message().ends_with("without sending TLS close_notify"), "{error}");
        assert!(error.message().contains("https://a.example:443"), "{error}");
    }

    #[test]
    fn the_causes_of_connections_are_named() {
        let plain = of_tls(rustls::Error::InvalidMessage(rustls::InvalidMessage::InvalidContentType));
        let refused = no_response(io::Error::from(io::ErrorKind::ConnectionRefused), "u");
        let lookup = io::Error::other(UnknownHost(io::Error::other("name or service not known")));
        let other = no_response(io::Error::from(io::ErrorKind::ConnectionReset), "u");
        assert_eq!(
            [&plain, &refused, &no_response(lookup, "u"), &other].map(reason),
            [Some("plain"), Some("refused"), Some("host"), None]
        );
        let lookup = io::Error::other(UnknownHost(io::Error::other("name or service not known")));
        assert!(no_response(lookup, "u").message().ends_with("name or service not known"));
    }

    #[test]
    fn a_redirect_to_https_names_the_url_of_the_service() {
        let url = "http://127.0.0.1:8080";
        let error = redirected(url, "/v1/info", "https://127.0.0.1:8443/v1/info").unwrap();
        assert_eq!(
            (reason(&error), &error.details()["location"]),
            (Some("https"), &"https://127.0.0.1:8443".into())
        );
        assert!(!error.retryable() && error.message().contains("https://127.0.0.1:8443"), "{error}");
        assert!(redirected(url, "/v1/info", "/elsewhere").is_none());
    }
}
