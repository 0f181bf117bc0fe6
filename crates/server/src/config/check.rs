//! Checks of settings that types cannot express. Each message names the key, the value and what is allowed.

use std::net::SocketAddr;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;

use super::bounds::within;
use super::problems::{Problem, Problems};
use super::values::{Config, Http, Log, Tls};
use crate::origins::AllowedOrigins;
use crate::proxies::TrustedProxies;

impl Config {
    /// Refuses values outside their range: of each part of the configuration the first.
    pub fn check(&self) -> Result<(), Problems> {
        let parts = [
            self.http.check(),
            self.metrics.address().map(drop),
            self.mcp.check(),
            self.log.check(),
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
        ];
        let errors = parts.into_iter().filter_map(Result::err);
        Problems::check(errors.map(|error| Problem { line: None, message: format!("{error:#}") }).collect())
    }

    fn check_pool(&self) -> Result<()> {
        for (image, count) in &self.pool {
            within(&format!("pool.\"{image}\""), (*count).into(), 0, 1_000)?;
        }
        Ok(())
    }

    fn check_capacity(&self) -> Result<()> {
        let capacity = &self.capacity;
        for (key, factor) in [
            ("overcommit_cpu", capacity.overcommit_cpu),
            ("overcommit_memory", capacity.overcommit_memory),
            ("overcommit_disk", capacity.overcommit_disk),
        ] {
            ensure!(
                factor.is_finite() && factor > 0.0,
                "capacity.{key} is {factor}; it must be a number above 0"
            );
        }
        for (key, megabytes) in
            [("reserve_disk_mb", capacity.reserve_disk_mb), ("reserve_memory_mb", capacity.reserve_memory_mb)]
        {
            within(&format!("capacity.{key}"), megabytes, 0, 1 << 40)?;
        }
        Ok(())
    }

    fn check_prices(&self) -> Result<()> {
        let prices = &self.prices;
        for (key, price) in [("cpu_hour", prices.cpu_hour), ("memory_gb_hour", prices.memory_gb_hour)] {
            ensure!(
                (0.0..=HIGHEST_PRICE).contains(&price),
                "prices.{key} is {price}; it must be a number, 0 to {HIGHEST_PRICE}"
            );
        }
        let currency = &prices.currency;
        ensure!(
            currency.len() == 3 && currency.bytes().all(|byte| byte.is_ascii_uppercase()),
            "prices.currency is '{currency}'; it must be three capital letters, such as EUR"
        );
        Ok(())
    }

    fn check_work(&self) -> Result<()> {
        within("hibernate.after_seconds", self.hibernate.after_seconds, 0, 365 * 24 * 3600)?;
        within("templates.concurrent_builds", self.templates.concurrent_builds.into(), 1, 64)?;
        within("templates.max_context_mb", self.templates.max_context_mb, 1, 65_536)?;
        within("retention.records_mb", self.retention.records_mb, 0, 1 << 20)?;
        within("retention.build_logs_mb", self.retention.build_logs_mb, 0, 1 << 20)
    }

    fn check_runtime(&self) -> Result<()> {
        within("runtime.pids_max", self.runtime.pids_max.into(), 16, 4_000_000)?;
        within("runtime.disk_read_mb_per_s", self.runtime.disk_read_mb_per_s.into(), 0, 1_000_000)?;
        within("runtime.disk_write_mb_per_s", self.runtime.disk_write_mb_per_s.into(), 0, 1_000_000)?;
        within("runtime.disk_iops", self.runtime.disk_iops.into(), 0, 10_000_000)?;
        within("runtime.uid_base", self.runtime.uid_base.into(), 65_536, 0xFFFE_0000)?;
        let room = u64::from(u32::MAX - self.runtime.uid_base) / 65_536;
        within("runtime.uid_slots", self.runtime.uid_slots.into(), 1, room)?;
        let parent = &self.runtime.cgroup_parent;
        ensure!(
            !parent.is_empty()
                && !parent.starts_with('/')
                && !parent.split('/').any(|part| matches!(part, "" | "." | "..")),
            "runtime.cgroup_parent is '{parent}'; it must be a relative path of plain names"
        );
        Ok(())
    }
}

/// With the label of a port in front, a name must fit into DNS.
const LONGEST_DOMAIN: usize = 180;

/// Keeps amounts far below the range of 64-bit integers.
const HIGHEST_PRICE: f64 = 1_000_000.0;

/// The default limit per source address is never below this: a small service has few clients, often behind one address.
const SMALLEST_SHARE: u32 = 256;

impl Http {
    fn check(&self) -> Result<()> {
        self.listen_address()?;
        self.redirect_address()?;
        for (key, path) in [("tls_cert", &self.tls_cert), ("tls_key", &self.tls_key)] {
            let given = path != Path::new("");
            match self.tls {
                Tls::Files => {
                    ensure!(
                        given,
                        "http.{key} is missing; http.tls = \"files\" needs the path of a PEM file"
                    );
                }
                Tls::SelfSigned | Tls::Off => {
                    ensure!(!given, "http.{key} is set; it applies only with http.tls = \"files\"");
                }
            }
        }
        ensure!(
            self.tls != Tls::SelfSigned || !self.tls_names.is_empty(),
            "http.tls_names is empty; a certificate needs a name or an address"
        );
        if self.tls == Tls::SelfSigned {
            for name in &self.tls_names {
                ensure!(
                    listen::is_certificate_name(name),
                    "http.tls_names has '{name}'; it must be a name such as sandboxes.example.com or *.example.com, or an address, without a port"
                );
            }
        }
        self.proxies()?;
        self.origins()?;
        ensure!(
            self.tls != Tls::Off
                || !self.trusted_proxies.is_empty()
                || self.listen_address()?.ip().is_loopback(),
            "http.listen is '{}' with http.tls = \"off\"; without TLS it must be a loopback address, unless http.trusted_proxies names the proxy in front",
            self.listen
        );
        within("http.max_connections", self.max_connections.into(), 1, 1_000_000)?;
        let per_address = self.max_connections_per_address;
        within("http.max_connections_per_address", per_address.into(), 0, 1_000_000)?;
        let handshakes = self.max_handshakes_per_address;
        within("http.max_handshakes_per_address", handshakes.into(), 1, 1_000_000)?;
        within("http.handshake_seconds", self.handshake_seconds, 1, 300)
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
        TrustedProxies::parse(&self.trusted_proxies).context("in http.trusted_proxies")
    }

    pub fn origins(&self) -> Result<AllowedOrigins> {
        AllowedOrigins::parse(&self.allowed_origins).context("in http.allowed_origins")
    }
}

impl Log {
    fn check(&self) -> Result<()> {
        let level = &self.level;
        ensure!(
            EnvFilter::builder().parse(level).is_ok()
                && !level.trim().is_empty()
                && level.split(',').all(sets_level),
            "log.level is '{level}'; it must be error, warn, info, debug or trace, or a filter such as 'info,engine=debug'"
        );
        Ok(())
    }
}

/// Whether this part of a filter sets a level. A word that is none would be a module, and turn off all other messages.
fn sets_level(directive: &str) -> bool {
    directive.contains(['=', '[', ']', '}']) || directive.trim().parse::<LevelFilter>().is_ok()
}

impl super::values::Ports {
    fn check(&self) -> Result<()> {
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
        within("ports.max_connections", self.max_connections.into(), 1, 1024)?;
        within("ports.account_connections", self.account_connections.into(), 1, 4096)?;
        within("ports.idle_seconds", self.idle_seconds, 1, 86_400)
    }
}

impl super::values::Mcp {
    fn check(&self) -> Result<()> {
        within("mcp.max_sessions", self.max_sessions.into(), 1, 100_000)?;
        // A session must survive its longest command, which may send nothing for 5 minutes.
        within("mcp.idle_minutes", self.idle_minutes.into(), 6, 1440)?;
        within("mcp.sandbox_minutes", self.sandbox_minutes.into(), 1, 1440)?;
        ensure!(!self.image.is_empty(), "mcp.image is empty; it must be the name of an image");
        Ok(())
    }
}

impl super::values::E2b {
    fn check(&self) -> Result<()> {
        for (name, template) in &self.templates {
            let key = format!("e2b.templates.\"{name}\"");
            ensure!(!template.image.is_empty(), "{key}.image is empty; it must be the name of an image");
            for (field, value, least, most) in [
                ("cpu", template.cpu, 1, 64),
                ("memory_mb", template.memory_mb, 128, 1 << 20),
                ("disk_mb", template.disk_mb, 512, 1 << 20),
            ] {
                if let Some(value) = value {
                    within(&format!("{key}.{field}"), value.into(), least, most)?;
                }
            }
        }
        Ok(())
    }
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
