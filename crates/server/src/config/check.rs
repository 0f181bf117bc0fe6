//! Checks of settings that types cannot express. Each message names the key, the value and what is allowed.

use std::net::SocketAddr;
use std::path::Path;

use anyhow::{Context, Result, anyhow, bail, ensure};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;

use super::bounds::within;
use super::problems::Problems;
use super::values::{Config, Http, Log, Tls};
use crate::origins::AllowedOrigins;
use crate::proxies::TrustedProxies;

impl Config {
    /// Refuses values outside their range, and reports all of them.
    pub fn check(&self) -> Result<(), Problems> {
        Problems::of_parts([
            self.check_directories(),
            self.http.check(),
            Problems::of([self.metrics.address().map(drop)]),
            self.check_addresses(),
            self.mcp.check(),
            Problems::of([self.log.check()]),
            self.check_capacity(),
            self.quotas.check(),
            self.limits.check(),
            self.resources.check(),
            self.check_work(),
            self.isolation.check(),
            self.check_runtime(),
            self.egress.check(self.runtime.uid_slots),
            self.ports.check(),
            self.e2b.check(),
            self.check_prices(),
            self.snapshots.check(),
            self.images.check(),
            self.check_pool(),
        ])
    }

    /// An empty path is the current directory, wherever that is.
    fn check_directories(&self) -> Result<(), Problems> {
        Problems::of([("data_dir", &self.data_dir), ("run_dir", &self.run_dir)].map(|(key, path)| {
            ensure!(!path.as_os_str().is_empty(), "{key} is ''; it must be the path of a directory");
            Ok(())
        }))
    }

    /// Two listeners cannot have the same address. Malformed ones are errors of their own.
    fn check_addresses(&self) -> Result<(), Problems> {
        let Ok(listen) = self.http.listen_address() else { return Ok(()) };
        let redirect = self.http.redirect_address().ok().flatten().filter(|_| self.http.tls != Tls::Off);
        // Without that of the operator the service does without metrics.
        let metrics = self.metrics.address().ok().flatten().filter(|_| !self.metrics.is_usual());
        let of_redirect = redirect.map(|own| (("http.redirect_listen", own), ("http.listen", listen)));
        let of_metrics = metrics.map(|own| (("metrics.listen", own), ("http.listen", listen)));
        let of_both = metrics.zip(redirect);
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

    fn check_pool(&self) -> Result<(), Problems> {
        let counts = self.pool.iter();
        Problems::of(
            counts.map(|(image, count)| within(&format!("pool.\"{image}\""), (*count).into(), 0, 1_000)),
        )
    }

    fn check_capacity(&self) -> Result<(), Problems> {
        let capacity = &self.capacity;
        let factors = [
            ("overcommit_cpu", capacity.overcommit_cpu),
            ("overcommit_memory", capacity.overcommit_memory),
            ("overcommit_disk", capacity.overcommit_disk),
        ];
        let factors = factors.map(|(key, factor)| {
            ensure!(
                factor.is_finite() && factor > 0.0,
                "capacity.{key} is {factor}; it must be a number above 0"
            );
            Ok(())
        });
        let reserves = [
            within("capacity.reserve_disk_mb", capacity.reserve_disk_mb, 0, 1 << 40),
            within("capacity.reserve_memory_mb", capacity.reserve_memory_mb, 0, 1 << 40),
        ];
        Problems::of(factors.into_iter().chain(reserves))
    }

    fn check_prices(&self) -> Result<(), Problems> {
        let prices = &self.prices;
        let amounts = [("cpu_hour", prices.cpu_hour), ("memory_gb_hour", prices.memory_gb_hour)];
        let amounts = amounts.map(|(key, price)| {
            ensure!(
                (0.0..=HIGHEST_PRICE).contains(&price),
                "prices.{key} is {price}; it must be a number, 0 to {HIGHEST_PRICE}"
            );
            Ok(())
        });
        Problems::of(amounts.into_iter().chain([check_currency(&prices.currency)]))
    }

    fn check_work(&self) -> Result<(), Problems> {
        Problems::of([
            within("hibernate.after_seconds", self.hibernate.after_seconds, 0, 365 * 24 * 3600),
            within("templates.concurrent_builds", self.templates.concurrent_builds.into(), 1, 64),
            within("templates.max_context_mb", self.templates.max_context_mb, 1, 65_536),
            within("retention.records_mb", self.retention.records_mb, 0, 1 << 20),
            within("retention.build_logs_mb", self.retention.build_logs_mb, 0, 1 << 20),
        ])
    }

    fn check_runtime(&self) -> Result<(), Problems> {
        let runtime = &self.runtime;
        let room = u64::from(u32::MAX - runtime.uid_base) / 65_536;
        Problems::of([
            within("runtime.pids_max", runtime.pids_max.into(), 16, 4_000_000),
            within("runtime.disk_read_mb_per_s", runtime.disk_read_mb_per_s.into(), 0, 1_000_000),
            within("runtime.disk_write_mb_per_s", runtime.disk_write_mb_per_s.into(), 0, 1_000_000),
            within("runtime.disk_iops", runtime.disk_iops.into(), 0, 10_000_000),
            within("runtime.uid_base", runtime.uid_base.into(), 65_536, 0xFFFE_0000),
            within("runtime.uid_slots", runtime.uid_slots.into(), 1, room.max(1)),
            check_cgroup(&runtime.cgroup_parent),
        ])
    }
}

/// Whether a listener at one address keeps another from listening at the other. Port 0 is any free port.
fn is_same_socket(one: SocketAddr, other: SocketAddr) -> bool {
    let (own, others) = (one.ip(), other.ip());
    let is_any = own.is_unspecified() || others.is_unspecified();
    one.port() != 0
        && one.port() == other.port()
        && (own == others || (is_any && own.is_ipv4() == others.is_ipv4()))
}

fn check_currency(currency: &str) -> Result<()> {
    ensure!(
        currency.len() == 3 && currency.bytes().all(|byte| byte.is_ascii_uppercase()),
        "prices.currency is '{currency}'; it must be three capital letters, such as EUR"
    );
    Ok(())
}

fn check_cgroup(parent: &str) -> Result<()> {
    ensure!(
        !parent.is_empty()
            && !parent.starts_with('/')
            && !parent.split('/').any(|part| matches!(part, "" | "." | "..")),
        "runtime.cgroup_parent is '{parent}'; it must be a relative path of plain names"
    );
    Ok(())
}

/// With the label of a port in front, a name must fit into DNS.
const LONGEST_DOMAIN: usize = 180;

/// Keeps amounts far below the range of 64-bit integers.
const HIGHEST_PRICE: f64 = 1_000_000.0;

/// The default limit per source address is never below this: a small service has few clients, often behind one address.
const SMALLEST_SHARE: u32 = 256;

impl Http {
    fn check(&self) -> Result<(), Problems> {
        let per_address = self.max_connections_per_address;
        let mut checks = vec![
            self.listen_address().map(drop),
            self.redirect_address().map(drop),
            self.check_file("tls_cert", &self.tls_cert),
            self.check_file("tls_key", &self.tls_key),
            self.check_exposure(),
            within("http.max_connections", self.max_connections.into(), 1, 1_000_000),
            within("http.max_connections_per_address", per_address.into(), 0, 1_000_000),
            within("http.max_handshakes_per_address", self.max_handshakes_per_address.into(), 1, 1_000_000),
            within("http.handshake_seconds", self.handshake_seconds, 1, 300),
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

impl Log {
    fn check(&self) -> Result<()> {
        check_log_level("log.level", &self.level)
    }
}

/// Checks a level of the log from the file or from a variable. `name` is that of the key or the variable.
pub fn check_log_level(name: &str, level: &str) -> Result<()> {
    ensure!(
        EnvFilter::builder().parse(level).is_ok()
            && !level.trim().is_empty()
            && level.split(',').all(sets_level),
        "{name} is '{level}'; it must be error, warn, info, debug or trace, or a filter such as 'info,engine=debug'"
    );
    Ok(())
}

/// Whether this part of a filter sets a level. A word that is none would be a module, and turn off all other messages.
fn sets_level(directive: &str) -> bool {
    directive.contains(['=', '[', ']', '}']) || directive.trim().parse::<LevelFilter>().is_ok()
}

impl super::values::Ports {
    fn check(&self) -> Result<(), Problems> {
        Problems::of([
            self.check_domain(),
            within("ports.max_connections", self.max_connections.into(), 1, 1024),
            within("ports.account_connections", self.account_connections.into(), 1, 4096),
            within("ports.idle_seconds", self.idle_seconds, 1, 86_400),
        ])
    }

    fn check_domain(&self) -> Result<()> {
        let label = |label: &str| {
            let good = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
            (1..=63).contains(&label.len())
                && label.bytes().all(good)
                && !label.starts_with('-')
                && !label.ends_with('-')
        };
        let numeric = self.domain.rsplit('.').next().is_some_and(|last| last.parse::<u64>().is_ok());
        ensure!(
            self.domain.len() <= LONGEST_DOMAIN && !numeric && self.domain.split('.').all(label),
            "ports.domain is '{}'; it must be a domain in lower case such as sandboxes.example.com, of at most {LONGEST_DOMAIN} characters",
            self.domain
        );
        Ok(())
    }
}

impl super::values::Mcp {
    fn check(&self) -> Result<(), Problems> {
        Problems::of([
            within("mcp.max_sessions", self.max_sessions.into(), 1, 100_000),
            // A session must survive its longest command, which may send nothing for 5 minutes.
            within("mcp.idle_minutes", self.idle_minutes.into(), 6, 1440),
            within("mcp.sandbox_minutes", self.sandbox_minutes.into(), 1, 1440),
            check_image("mcp.image", &self.image),
        ])
    }
}

impl super::values::E2b {
    fn check(&self) -> Result<(), Problems> {
        Problems::of(self.templates.iter().flat_map(|(name, template)| {
            let key = format!("e2b.templates.\"{name}\"");
            let bounds = [
                ("cpu", template.cpu, 1, 64),
                ("memory_mb", template.memory_mb, 128, 1 << 20),
                ("disk_mb", template.disk_mb, 512, 1 << 20),
            ];
            let check = |(field, value, least, most): (&str, Option<u32>, u64, u64)| {
                value.map_or(Ok(()), |value| within(&format!("{key}.{field}"), value.into(), least, most))
            };
            let mut checks: Vec<Result<()>> = bounds.into_iter().map(check).collect();
            checks.push(check_image(&format!("{key}.image"), &template.image));
            checks
        }))
    }
}

fn check_image(key: &str, image: &str) -> Result<()> {
    ensure!(!image.is_empty(), "{key} is empty; it must be the name of an image");
    Ok(())
}

impl super::values::Metrics {
    /// Whether it is the default.
    pub fn is_usual(&self) -> bool {
        self.listen == Self::default().listen
    }

    pub fn address(&self) -> Result<Option<SocketAddr>> {
        optional_address("metrics.listen", &self.listen)
    }
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
