//! URLs of ports that a proxy in front does not serve: without TLS and a listed proxy the service takes itself for the one that clients reach.

use crate::config::{Config, Ports, Tls};

/// With the default domain clients are on this host, and reach the service without a proxy.
pub fn warning(config: &Config) -> Option<String> {
    let (http, domain) = (&config.http, &config.ports.domain);
    let is_plain = http.tls == Tls::Off && http.trusted_proxies.is_empty();
    (is_plain && *domain != Ports::default().domain).then(|| {
        format!(
            "ports.domain is '{domain}', and http.tls is \"off\" without http.trusted_proxies: URLs of ports begin with http://; if a proxy in front terminates TLS, list it in http.trusted_proxies, also one on this host"
        )
    })
}
