//! The network of an engine's sandboxes, as the operator wants it.

use std::net::Ipv4Addr;
use std::sync::Arc;

use anyhow::{Context, Result};
use driver_oci::Flavour;
use net::{HostNetwork, HostSettings, Network, NoNetwork, Refusal};
use tokio::sync::mpsc;

use super::Scope;
use crate::config::{Config, NetworkKind};

/// A network, and what is to be known of it.
pub struct Connected {
    pub network: Arc<dyn Network>,
    pub refusals: Option<mpsc::Receiver<Refusal>>,
    /// Who answers the sandboxes' questions for names.
    pub resolver: Option<Ipv4Addr>,
}

/// Why sandboxes have their loopback alone, where they do.
pub fn why_none(config: &Config, flavour: Flavour) -> Option<&'static str> {
    match (config.egress.network, flavour) {
        (NetworkKind::None, _) => Some("egress.network is \"none\""),
        // Its own network stack would have to be given a link before it starts.
        (NetworkKind::Nftables, Flavour::Gvisor) => {
            Some("gVisor sandboxes cannot be connected by this version")
        }
        (NetworkKind::Nftables, Flavour::Native) => None,
    }
}

/// What the network is told.
pub fn settings(config: &Config, scope: &Scope) -> Result<HostSettings> {
    Ok(HostSettings {
        data_dir: scope.data_dir.clone(),
        slots: scope.slots,
        // A block that the operator named is for the server, which may run beside this.
        pool: if scope.data_dir == config.data_dir { config.egress.pool()? } else { net::Pool::Auto },
        resolver: config.egress.resolver()?,
        allow_private: config.egress.opened()?,
        closed: config.egress.closed()?,
    })
}

pub async fn connect(config: &Config, scope: &Scope, flavour: Flavour) -> Result<Connected> {
    if let Some(reason) = why_none(config, flavour) {
        tracing::warn!(reason, "sandboxes have no network but their loopback");
        return Ok(Connected { network: Arc::new(NoNetwork), refusals: None, resolver: None });
    }
    let settings = settings(config, scope)?;
    let opening = tokio::task::spawn_blocking(move || HostNetwork::open(settings)).await?;
    let (network, refusals) = opening.context(
        "cannot make the network of sandboxes; 'sandboxd doctor' says what is missing, and egress.network = \"none\" does without",
    )?;
    let resolver = Some(network.gateway());
    Ok(Connected { network: Arc::new(network), refusals: Some(refusals), resolver })
}
