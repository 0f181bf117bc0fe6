//! The network of this host's sandboxes.
//!
//! Links, firewall table and learnt addresses stay in force when the daemon ends. DNS and the proxy do not answer
//! then, so no new connection or name is allowed until the daemon runs again.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use api::{EgressDefault, EgressPolicy};
use async_trait::async_trait;
use egress::{KernelNetwork, Parts, PolicyRegistry, Refusal, Refusals, Resolver};
use ipnet::Ipv4Net;
use netlink::RouteSocket;
use netlink::links;
use netlink::links::Link;
use rules::Networks;
use tokio::sync::mpsc;

use crate::contract::{Guest, NetError, Network, Usage};
use crate::firewall::{Firewall, KernelPolicy, Passes, TablePlan};
use crate::forwarding;
use crate::kernel::Kernel;
use crate::plug::{self, Ends};
use crate::pool::{self, Claim};
use crate::serving::{Serving, Watched};
use crate::settings::HostSettings;

/// Where the proxy listens, on the gateway's address. Sandboxes cannot connect to this port directly.
pub const PROXY_PORT: u16 = 15001;
const DNS_PORT: u16 = 53;

/// Links, addresses and the firewall of one daemon, with its DNS server and proxy.
pub struct HostNetwork {
    settings: HostSettings,
    claim: Claim,
    kernel: Arc<Kernel>,
    parts: Arc<Parts>,
    serving: Serving,
    /// The network namespace of the host.
    home: File,
}

impl HostNetwork {
    /// Claims a block of addresses, loads the firewall table and binds the ports of DNS and the proxy. Running sandboxes keep
    /// what they have. Connections are served after [`Network::recover`]. Blocks for some tens of milliseconds.
    pub fn open(settings: HostSettings) -> Result<(Self, mpsc::Receiver<Refusal>), NetError> {
        let fault = |step| move |error: io::Error| NetError::new(step, error);
        let home = File::open("/proc/thread-self/ns/net").map_err(fault("open the network namespace"))?;
        let links = RouteSocket::open().map_err(fault("open netlink"))?;
        let claim = pool::claim(&links, &settings)?;
        forwarding::enable().map_err(fault("turn on packet forwarding"))?;
        let ranges = settings.ranges(Some(claim.block.0));
        let gateway = claim.block.gateway();
        let plan = TablePlan {
            scope: claim.scope,
            gateway,
            proxy_port: PROXY_PORT,
            ranges: ranges.clone(),
            rate_mbit: settings.rate_mbit,
            connections: settings.connections,
        };
        let mut firewall = Firewall::new(plan).map_err(fault("open nftables"))?;
        firewall.establish().map_err(fault("load the firewall table"))?;
        let watched = Watched { table: claim.scope.table(), ours: firewall.port_number() };
        let kernel = Arc::new(Kernel::start(firewall, links).map_err(fault("start the network's threads"))?);
        let kernel_network: Arc<dyn KernelNetwork> = Arc::clone(&kernel) as Arc<dyn KernelNetwork>;
        let resolver = Resolver::new(settings.resolver.clone(), ranges.clone(), Arc::clone(&kernel_network))
            .map_err(fault("set up the resolver"))?;
        let (refusals, refusals_receiver) = Refusals::new();
        let registry = Arc::new(PolicyRegistry::default());
        let parts = Arc::new(Parts {
            registry,
            kernel: kernel_network,
            resolver: Arc::new(resolver),
            refusals,
            ranges,
        });
        let dns = SocketAddrV4::new(gateway, DNS_PORT);
        let proxy = SocketAddrV4::new(gateway, PROXY_PORT);
        let serving = Serving::listen(dns, proxy, claim.scope, watched)?;
        Ok((Self { settings, claim, kernel, parts, serving, home }, refusals_receiver))
    }

    /// The address of the DNS server.
    pub fn gateway(&self) -> Ipv4Addr {
        self.claim.block.gateway()
    }

    pub fn pool(&self) -> Ipv4Net {
        self.claim.block.0
    }

    pub fn address(&self, guest: &Guest) -> Ipv4Addr {
        self.claim.block.of_slot(guest.slot)
    }

    /// The parts that the DNS server and the proxy use.
    pub fn parts(&self) -> &Arc<Parts> {
        &self.parts
    }

    fn link(&self, guest: &Guest) -> String {
        self.claim.scope.link(guest.slot)
    }

    async fn apply_policy(&self, guest: &Guest, policy: &EgressPolicy) -> io::Result<()> {
        let (address, link) = (self.address(guest), self.link(guest));
        let kernel_policy = kernel_policy(policy);
        let forgotten = self.parts.registry.admit(&guest.id, address, policy);
        let set = move |firewall: &mut Firewall| firewall.set(address, &link, kernel_policy, &forgotten);
        self.kernel.firewall.call("set a policy", set).await
    }

    /// Removes links of sandboxes that are not in `living`.
    async fn remove_dead_links(&self, living: Vec<String>) -> io::Result<()> {
        let (prefix, gateway) = (self.claim.scope.links(), self.claim.gateway_link);
        let remove = move |socket: &mut RouteSocket| {
            for link in links::all(socket)? {
                let is_ours = link.name.starts_with(&prefix) && link.index != gateway;
                if is_ours && !living.contains(&link.name) {
                    tracing::info!(link = link.name, "removing the link of a removed sandbox");
                    links::remove(socket, &link.name)?;
                }
            }
            Ok(())
        };
        self.kernel.links.call("remove links of removed sandboxes", remove).await
    }

    async fn reconcile(&self, living: &[(Guest, EgressPolicy)]) -> io::Result<()> {
        let names: Vec<String> = living.iter().map(|(guest, _)| self.link(guest)).collect();
        let entries: Vec<(Ipv4Addr, String, KernelPolicy)> = living
            .iter()
            .map(|(guest, policy)| (self.address(guest), self.link(guest), kernel_policy(policy)))
            .collect();
        for (guest, policy) in living {
            self.parts.registry.admit(&guest.id, self.address(guest), policy);
        }
        let reconcile = move |firewall: &mut Firewall| firewall.reconcile(&entries);
        for (guest, target, until) in self.kernel.firewall.call("restore policies", reconcile).await? {
            if let Some(guest) = self.parts.registry.find(guest) {
                guest.recall(target, until);
            }
        }
        self.remove_dead_links(names).await
    }

    fn usage_of(&self, guest: &Guest, link: Option<&Link>) -> Usage {
        let connections =
            self.parts.registry.find(self.address(guest)).map_or(0, |guest| guest.connections());
        Usage {
            bytes_out: link.map_or(0, |link| link.bytes_received),
            bytes_in: link.map_or(0, |link| link.bytes_sent),
            connections: connections as u64,
        }
    }

    async fn find_link(&self, name: String) -> io::Result<Option<Link>> {
        self.kernel.links.call("find a link", move |socket| links::find(socket, &name)).await
    }
}

fn kernel_policy(policy: &EgressPolicy) -> KernelPolicy {
    let passes = match policy.default {
        EgressDefault::Allow => Passes::Public,
        EgressDefault::Deny => Passes::Learnt,
    };
    KernelPolicy { passes, networks: Networks::new(policy) }
}

#[async_trait]
impl Network for HostNetwork {
    async fn recover(&self, living: &[(Guest, EgressPolicy)]) -> Result<(), NetError> {
        self.reconcile(living).await.map_err(|error| NetError::new("restore the network", error))?;
        self.serving.start(&self.parts, &self.kernel)
    }

    fn plug(&self, guest: &Guest, namespace: BorrowedFd<'_>) -> Result<(), NetError> {
        let link = self.link(guest);
        let address = self.address(guest);
        let ends = Ends { link: &link, address, gateway: self.gateway() };
        self.serving.clean(address);
        let name = link.clone();
        let admit = move |firewall: &mut Firewall| firewall.admit(address, &name);
        let plugged = self
            .kernel
            .firewall
            .call_blocking("admit a sandbox", admit)
            .and_then(|()| plug::plug(&ends, self.home.as_fd(), namespace));
        plugged.map_err(|error| NetError::new("connect the sandbox's network", error))
    }

    async fn is_plugged(&self, guest: &Guest) -> bool {
        self.find_link(self.link(guest)).await.is_ok_and(|link| link.is_some())
    }

    async fn apply(&self, guest: &Guest, policy: &EgressPolicy) -> Result<(), NetError> {
        self.apply_policy(guest, policy)
            .await
            .map_err(|error| NetError::new("apply the sandbox's network policy", error))
    }

    async fn unplug(&self, guest: &Guest) -> Result<(), NetError> {
        let (address, link) = (self.address(guest), self.link(guest));
        self.parts.registry.remove(address);
        let name = link.clone();
        let remove = move |firewall: &mut Firewall| firewall.remove(address, &name);
        let removed = self.kernel.firewall.call("remove a sandbox", remove).await;
        removed.map_err(|error| NetError::new("close the sandbox's network", error))?;
        let left = self.find_link(link).await.ok().flatten();
        self.serving.sweep(left.as_ref(), address);
        Ok(())
    }

    async fn usage(&self, guest: &Guest) -> Usage {
        let link = self.find_link(self.link(guest)).await.ok().flatten();
        self.usage_of(guest, link.as_ref())
    }

    fn total_usage(&self, guests: &[Guest]) -> Usage {
        let all =
            self.kernel.links.call_blocking("list links", |socket| links::all(socket)).unwrap_or_default();
        let links: HashMap<&str, &Link> = all.iter().map(|link| (link.name.as_str(), link)).collect();
        guests.iter().fold(Usage::default(), |total, guest| {
            let usage = self.usage_of(guest, links.get(self.link(guest).as_str()).copied());
            Usage {
                bytes_out: total.bytes_out + usage.bytes_out,
                bytes_in: total.bytes_in + usage.bytes_in,
                connections: total.connections + usage.connections,
            }
        })
    }

    async fn close(&self) {
        self.serving.stop().await;
    }

    async fn retire(&self) -> Result<(), NetError> {
        let fault = |error: io::Error| NetError::new("remove the network", error);
        let is_empty = self.kernel.firewall.call("count sandboxes", |firewall| Ok(firewall.is_empty()));
        if !is_empty.await.map_err(fault)? {
            return Ok(());
        }
        self.serving.stop().await;
        self.remove_dead_links(Vec::new()).await.map_err(fault)?;
        self.kernel.firewall.call("delete the firewall table", Firewall::retire).await.map_err(fault)?;
        let (claim, data_dir) = (self.claim, self.settings.data_dir.clone());
        let give_back = move |socket: &mut RouteSocket| pool::give_back(socket, &claim, &data_dir);
        self.kernel.links.call("release the block of addresses", give_back).await.map_err(fault)
    }
}
