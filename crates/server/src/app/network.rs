//! Sets up the network of an engine's sandboxes from the configuration.

use std::net::Ipv4Addr;
use std::sync::Arc;

use anyhow::{Error, Result};
use net::{HostNetwork, HostSettings, Network, NoNetwork, Refusal};
use tokio::sync::mpsc;

use super::Scope;
use crate::config::{Config, NetworkKind};

/// The network, its refusals, and its DNS resolver.
pub struct Connected {
    pub network: Arc<dyn Network>,
    pub refusals: Option<mpsc::Receiver<Refusal>>,
    /// The address of the sandboxes' DNS server.
    pub resolver: Option<Ipv4Addr>,
}

/// Why sandboxes have only a loopback interface, if that is so.
pub fn why_none(config: &Config) -> Option<&'static str> {
    (config.egress.network == NetworkKind::None).then_some("egress.network is \"none\"")
}

/// The settings of the network.
pub fn settings(config: &Config, scope: &Scope) -> Result<HostSettings> {
    Ok(HostSettings {
        data_dir: scope.data_dir.clone(),
        slots: scope.slots,
        // The configured pool belongs to the server, which may be running at the same time.
        pool: if scope.data_dir == config.data_dir { config.egress.pool()? } else { net::Pool::Auto },
        resolver: config.egress.resolver()?,
        allow_private: config.egress.opened()?,
        closed: config.egress.closed()?,
        rate_mbit: config.egress.rate_mbit,
        connections: driver_host::tracked_connections(super::host_size(config, scope)?),
    })
}

pub async fn connect(config: &Config, scope: &Scope) -> Result<Connected> {
    if let Some(reason) = why_none(config) {
        tracing::warn!(reason, "sandboxes have a loopback interface only");
        return Ok(Connected { network: Arc::new(NoNetwork), refusals: None, resolver: None });
    }
    let settings = settings(config, scope)?;
    let opening = tokio::task::spawn_blocking(move || HostNetwork::open(settings)).await?;
    let (network, refusals) = opening.map_err(|error| {
        // The network is not what lacks space.
        let advice = match base::is_disk_full(&error) {
            true => "cannot set up the network of sandboxes",
            false => "cannot set up the network of sandboxes; run 'sandboxd doctor' to see what is missing, or set egress.network = \"none\"",
        };
        Error::from(error).context(advice)
    })?;
    let resolver = Some(network.gateway());
    Ok(Connected { network: Arc::new(network), refusals: Some(refusals), resolver })
}
