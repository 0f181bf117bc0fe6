//! `[http]` and `[metrics]`: the addresses, the certificate and the connection limits of the service.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail, ensure};
use serde::{Deserialize, Serialize};

use super::declare::{shapes, table};
use super::problems::Problems;
use crate::origins::AllowedOrigins;
use crate::proxies::TrustedProxies;

/// The default limit per source address is never below this: a small service has few clients, often behind one address.
const SMALLEST_SHARE: u32 = 256;

table! {
    /// Addresses, certificate and connection limits of the service.
    pub struct Http {
        /// Address and port of the service, such as `0.0.0.0:443` or `[::]:443`. Port 0 selects a free port.
        // Loopback: an operator who serves other hosts sets another address.
        listen: String = "127.0.0.1:8443".to_owned(), "address", env "SANDBOXD_LISTEN";
        /// Address that redirects plain HTTP to HTTPS. `""` turns it off.
        redirect_listen: String = "127.0.0.1:8080".to_owned(), "address", env "SANDBOXD_REDIRECT_LISTEN";
        /// `"self-signed"` generates a certificate at the first start. `"files"` reads yours from `tls_cert` and `tls_key`.
        /// `"off"` serves plain HTTP, without a redirect, for use behind a proxy on this host or one in `trusted_proxies`.
        tls: Tls = Tls::SelfSigned, "`\"self-signed\"`, `\"files\"` or `\"off\"`";
        /// PEM file with your certificate and the intermediate certificates. Read again when it changes.
        tls_cert: PathBuf, "path";
        /// PEM file with its private key, without a passphrase. Only its owner should be able to read it (mode 600).
        tls_key: PathBuf, "path";
        /// Names and addresses in the self-signed certificate.
        tls_names: Vec<String> = ["localhost", "127.0.0.1", "::1"].map(str::to_owned).into(), "list of names";
        /// Addresses or networks (`10.0.0.0/8`) of reverse proxies. The client address in the log comes from their
        /// `X-Forwarded-For`. Their `X-Forwarded-Proto` is the scheme of exposed ports: redirects use it, and private ports
        /// accept the token cookie only from pages with that scheme, so the proxy must set this header and not pass on the
        /// client's.
        trusted_proxies: Vec<String>, "list of networks";
        /// Origins of web pages whose scripts may call the API, such as `https://app.example.com` (CORS). `"*"` allows all
        /// pages. They need an API key like any other client, and whoever opens such a page can read its key.
        allowed_origins: Vec<String>, "list of origins";
        /// Open connections. Further ones are closed at once.
        max_connections: u32 = 10_000, "count" in 1..=1_000_000;
        /// Open connections of one source address, counted before authentication. Further ones are closed. `0`: a quarter of
        /// `max_connections`, at least 256. An IPv6 client counts by its /64. Loopback addresses count like all others;
        /// `trusted_proxies` do not count.
        max_connections_per_address: u32 = 0, "count" in 0..=1_000_000;
        /// TLS handshakes in progress of one source address. Further ones wait for at most `handshake_seconds`.
        max_handshakes_per_address: u32 = 64, "count" in 1..=1_000_000;
        /// Time for a TLS handshake. A client that takes longer is disconnected.
        handshake_seconds: u64 = 10, "seconds" in 1..=300;
    }
}

table! {
    /// Metrics for Prometheus.
    pub struct Metrics {
        /// Plain HTTP without authentication, at `/metrics`: use loopback or a private network. `""` turns it off.
        listen: String = "127.0.0.1:9464".to_owned(), "address", env "SANDBOXD_METRICS_LISTEN";
    }
}

/// TLS of the service.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Tls {
    /// With a generated certificate.
    SelfSigned,
    /// With the operator's certificate.
    Files,
    /// Without TLS: a proxy in front terminates it.
    Off,
}

shapes! { Text: Tls; }

impl Http {
    pub(super) fn check(&self) -> Result<(), Problems> {
        let mut checks = vec![
            self.listen_address().map(drop),
            self.redirect_address().map(drop),
            self.check_file("tls_cert", &self.tls_cert),
            self.check_file("tls_key", &self.tls_key),
            self.check_exposure(),
        ];
        checks.extend(self.check_names());
        checks.extend(self.trusted_proxies.iter().map(|text| proxies(std::slice::from_ref(text)).map(drop)));
        checks.extend(self.allowed_origins.iter().map(|text| origins(std::slice::from_ref(text)).map(drop)));
        Problems::of(checks)
    }

    fn check_file(&self, key: &str, path: &Path) -> Result<()> {
        let given = path != Path::new("");
        match self.tls {
            Tls::Files => {
                ensure!(given, "http.{key} is missing; http.tls = \"files\" needs the path of a PEM file");
            }
            Tls::SelfSigned | Tls::Off => {
                ensure!(!given, "http.{key} is set; it applies only with http.tls = \"files\"");
            }
        }
        Ok(())
    }

    /// The names of a self-signed certificate.
    fn check_names(&self) -> Vec<Result<()>> {
        let check = |name: &String| {
            ensure!(
                listen::is_certificate_name(name),
                "http.tls_names has '{name}'; it must be a name such as sandboxes.example.com or *.example.com, or an address, without a port"
            );
            Ok(())
        };
        match self.tls {
            Tls::SelfSigned if self.tls_names.is_empty() => {
                vec![Err(anyhow!("http.tls_names is empty; a certificate needs a name or an address"))]
            }
            Tls::SelfSigned => self.tls_names.iter().map(check).collect(),
            Tls::Files | Tls::Off => Vec::new(),
        }
    }

    /// A malformed address is an error of its own.
    fn check_exposure(&self) -> Result<()> {
        ensure!(
            self.tls != Tls::Off
                || !self.trusted_proxies.is_empty()
                || self.listen_address().map_or(true, |address| address.ip().is_loopback()),
            "http.listen is '{}' with http.tls = \"off\"; without TLS it must be a loopback address, unless http.trusted_proxies names the proxy in front",
            self.listen
        );
        Ok(())
    }

    /// The limit that applies to one source address.
    pub fn connections_per_address(&self) -> u32 {
        match self.max_connections_per_address {
            0 => (self.max_connections / 4).max(SMALLEST_SHARE),
            limit => limit,
        }
    }

    pub fn listen_address(&self) -> Result<SocketAddr> {
        address("http.listen", &self.listen)
    }

    pub fn redirect_address(&self) -> Result<Option<SocketAddr>> {
        optional_address("http.redirect_listen", &self.redirect_listen)
    }

    pub fn proxies(&self) -> Result<TrustedProxies> {
        proxies(&self.trusted_proxies)
    }

    pub fn origins(&self) -> Result<AllowedOrigins> {
        origins(&self.allowed_origins)
    }
}

fn proxies(texts: &[String]) -> Result<TrustedProxies> {
    TrustedProxies::parse(texts).context("in http.trusted_proxies")
}

fn origins(texts: &[String]) -> Result<AllowedOrigins> {
    AllowedOrigins::parse(texts).context("in http.allowed_origins")
}

impl Metrics {
    /// Whether it is the default.
    pub fn is_usual(&self) -> bool {
        self.listen == Self::default().listen
    }

    pub fn address(&self) -> Result<Option<SocketAddr>> {
        optional_address("metrics.listen", &self.listen)
    }
}

/// Two listeners cannot have the same address. Malformed ones are errors of their own.
pub(super) fn check_listeners(http: &Http, metrics: &Metrics) -> Result<(), Problems> {
    let Ok(listen) = http.listen_address() else { return Ok(()) };
    let redirect = http.redirect_address().ok().flatten().filter(|_| http.tls != Tls::Off);
    // Without that of the operator the service does without metrics.
    let chosen = metrics.address().ok().flatten().filter(|_| !metrics.is_usual());
    let of_redirect = redirect.map(|own| (("http.redirect_listen", own), ("http.listen", listen)));
    let of_metrics = chosen.map(|own| (("metrics.listen", own), ("http.listen", listen)));
    let of_both = chosen.zip(redirect);
    let of_both = of_both.map(|(own, other)| (("metrics.listen", own), ("http.redirect_listen", other)));
    let pairs = [of_redirect, of_metrics, of_both].into_iter().flatten();
    Problems::of(pairs.map(|((key, own), (other_key, other))| {
        ensure!(
            !is_same_socket(own, other),
            "{key} is '{own}', which is the address of {other_key} ('{other}'); choose another port, or \"\" to turn it off"
        );
        Ok(())
    }))
}

/// Whether a listener at one address keeps another from listening at the other. Port 0 is any free port.
fn is_same_socket(one: SocketAddr, other: SocketAddr) -> bool {
    let (own, others) = (one.ip(), other.ip());
    let is_any = own.is_unspecified() || others.is_unspecified();
    one.port() != 0
        && one.port() == other.port()
        && (own == others || (is_any && own.is_ipv4() == others.is_ipv4()))
}

fn optional_address(key: &str, text: &str) -> Result<Option<SocketAddr>> {
    if text.is_empty() { Ok(None) } else { address(key, text).map(Some) }
}

fn address(key: &str, text: &str) -> Result<SocketAddr> {
    match text.parse() {
        Ok(address) => Ok(address),
        Err(_) => {
            bail!("{key} is '{text}'; it must be an address and a port, such as 127.0.0.1:8443 or [::]:443")
        }
    }
}
