//! `[ports]`: how exposed ports are reached.

use anyhow::{Result, ensure};

use super::declare::table;

/// With the label of a port in front, a name must fit into DNS.
const LONGEST_DOMAIN: usize = 180;

table! {
    /// Exposed ports; see [ports.md](ports.md). Host names of ports are directly below the domain.
    pub struct Ports {
        /// Domain of exposed ports. All names below it must resolve to this service, and the certificate must be valid for
        /// them; the self-signed one is. Use a domain that serves nothing else.
        // Browsers resolve names that end in `localhost` to this host.
        domain: String = "sandboxes.localhost".to_owned(), "domain";
        /// The port in URLs. `0`: that of `http.listen`, or 443 behind a proxy in `http.trusted_proxies`.
        public_port: u16 = 0, "port";
        /// Concurrent requests and websockets through all ports of one sandbox. Further ones get 429. All sandboxes together
        /// are limited to 4096.
        max_connections: u32 = 512, "count" in 1..=1024;
        /// Concurrent requests and websockets through all ports of one account. Further ones get 429.
        account_connections: u32 = 2048, "count" in 1..=4096;
        /// A request or websocket without traffic for this long is closed.
        idle_seconds: u64 = 600, "seconds" in 1..=86_400;
    }
}

impl Ports {
    pub(super) fn check(&self) -> Result<()> {
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
