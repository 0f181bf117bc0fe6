//! The network of this host's sandboxes.
//!
//! What was made lives on without the daemon: links, table and what is learnt stay in force, DNS and the proxy answer nobody, and
//! so whatever is not decided is closed.

use std::fs::File;
use std::io;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use api::{EgressDefault, EgressPolicy};
use async_trait::async_trait;
use egress::{Gate, Guests, Parts, Refusal, Refusals, Resolver};
use ipnet::Ipv4Net;
use tokio::runtime::RuntimeFlavor;
use tokio::sync::mpsc;

use crate::contract::{Guest, NetError, Network, Usage};
use crate::firewall::{Firewall, Passes, Plan};
use crate::kernel::Kernel;
use crate::netlink::RouteSocket;
use crate::plug::{self, Ends};
use crate::pool::{self, Claim};
use crate::serving::Serving;
use crate::settings::HostSettings;
use crate::{forwarding, links, routes};

/// Where the proxy listens, on the gateway's address. Sandboxes cannot call it by that.
pub const PROXY_PORT: u16 = 15001;
const DNS_PORT: u16 = 53;
const MTU_USUAL: u32 = 1500;
const MTU_LASTS: Duration = Duration::from_secs(10);

/// Links, addresses and the packet filter of one daemon, and the servers behind them.
pub struct HostNetwork {
    settings: HostSettings,
    claim: Claim,
    kernel: Arc<Kernel>,
    parts: Arc<Parts>,
    serving: Serving,
    /// The namespace that this is in.
    home: File,
    mtu: Mutex<Option<(u32, Instant)>>,
}

impl HostNetwork {
    /// Claims a block, puts the table in force, and starts to listen. Sandboxes that run already keep what they have; nothing
    /// is served before [`Network::recover`]. Blocking: takes some tens of milliseconds.
    pub fn open(settings: HostSettings) -> Result<(Self, mpsc::Receiver<Refusal>), NetError> {
        let fault = |step| move |error: io::Error| NetError::new(step, error);
        let home = File::open("/proc/thread-self/ns/net").map_err(fault("open the network namespace"))?;
        let links = RouteSocket::open().map_err(fault("open netlink"))?;
        let questions = RouteSocket::open().map_err(fault("open netlink"))?;
        let claim = pool::claim(&links, &settings)?;
        forwarding::enable().map_err(fault("let the host forward packets"))?;
        let ranges = settings.ranges(Some(claim.block.0));
        let gateway = claim.block.gateway();
        let plan = Plan { scope: claim.scope, gateway, proxy_port: PROXY_PORT, ranges: ranges.clone() };
        let firewall = Firewall::new(plan).map_err(fault("open nftables"))?;
        firewall.establish().map_err(fault("put the rules in force"))?;
        let kernel = Arc::new(Kernel { firewall, links, questions });
        let gate: Arc<dyn Gate> = Arc::clone(&kernel) as Arc<dyn Gate>;
        let resolver = Resolver::new(settings.resolver.clone(), ranges.clone(), Arc::clone(&gate))
            .map_err(fault("set up the resolver"))?;
        let (refusals, told) = Refusals::new();
        let guests = Arc::new(Guests::default());
        let parts = Arc::new(Parts { guests, gate, resolver: Arc::new(resolver), refusals, ranges });
        let dns = SocketAddrV4::new(gateway, DNS_PORT);
        let proxy = SocketAddrV4::new(gateway, PROXY_PORT);
        let serving = Serving::listen(dns, proxy, claim.scope)?;
        Ok((Self { settings, claim, kernel, parts, serving, home, mtu: Mutex::default() }, told))
    }

    /// Where sandboxes find DNS.
    pub fn gateway(&self) -> Ipv4Addr {
        self.claim.block.gateway()
    }

    pub fn pool(&self) -> Ipv4Net {
        self.claim.block.0
    }

    pub fn address(&self, guest: &Guest) -> Ipv4Addr {
        self.claim.block.of_slot(guest.slot)
    }

    /// What DNS and the proxy work with.
    pub fn parts(&self) -> &Arc<Parts> {
        &self.parts
    }

    fn link(&self, guest: &Guest) -> String {
        self.claim.scope.link(guest.slot)
    }

    /// Of the link that most packets leave by: nothing has to be cut into pieces on the way. To find out means to look at all
    /// the host's routes, so it is known for a while.
    fn mtu(&self) -> u32 {
        let mut known = self.mtu.lock().unwrap_or_else(PoisonError::into_inner);
        match *known {
            Some((mtu, since)) if since.elapsed() < MTU_LASTS => mtu,
            _ => known.insert((self.find_mtu(), Instant::now())).0,
        }
    }

    fn find_mtu(&self) -> u32 {
        let links = &self.kernel.links;
        let by_default = routes::all(links).ok().and_then(|all| {
            all.into_iter().find(|route| route.range.prefix_len() == 0).and_then(|route| route.link)
        });
        let found = by_default.and_then(|index| links::with_index(links, index).ok().flatten());
        found.map_or(MTU_USUAL, |link| link.mtu.clamp(576, 65_535))
    }

    fn put_in_force(&self, guest: &Guest, policy: &EgressPolicy) -> io::Result<()> {
        let address = self.address(guest);
        let forgotten = self.parts.guests.admit(&guest.id, address, policy);
        self.kernel.firewall.set(address, &self.link(guest), passes(policy), &forgotten)
    }

    /// Links of sandboxes that are not among the living.
    fn remove_dead_links(&self, living: &[String]) -> io::Result<()> {
        let prefix = self.claim.scope.links();
        for link in links::all(&self.kernel.links)? {
            let is_ours = link.name.starts_with(&prefix) && link.index != self.claim.gateway_link;
            if is_ours && !living.contains(&link.name) {
                tracing::info!(link = link.name, "a link of no sandbox is removed");
                links::remove(&self.kernel.links, &link.name)?;
            }
        }
        Ok(())
    }

    fn reconcile(&self, living: &[(Guest, EgressPolicy)]) -> io::Result<()> {
        let names: Vec<String> = living.iter().map(|(guest, _)| self.link(guest)).collect();
        let wanted: Vec<(Ipv4Addr, String, Passes)> = living
            .iter()
            .map(|(guest, policy)| (self.address(guest), self.link(guest), passes(policy)))
            .collect();
        for (guest, policy) in living {
            self.parts.guests.admit(&guest.id, self.address(guest), policy);
        }
        let still: Vec<(Ipv4Addr, Ipv4Addr, Instant)> = self.kernel.firewall.reconcile(&wanted)?;
        for (guest, target, until) in still {
            if let Some(guest) = self.parts.guests.find(guest) {
                guest.recall(target, until);
            }
        }
        self.remove_dead_links(&names)
    }
}

fn passes(policy: &EgressPolicy) -> Passes {
    match policy.default {
        EgressDefault::Allow => Passes::Public,
        EgressDefault::Deny => Passes::Learnt,
    }
}

/// What waits for the kernel, which now and then takes its time: other tasks of the worker go on elsewhere.
fn off_the_workers<T>(work: impl FnOnce() -> T) -> T {
    let runtime = tokio::runtime::Handle::try_current();
    match runtime.map(|runtime| runtime.runtime_flavor()) {
        Ok(RuntimeFlavor::MultiThread) => tokio::task::block_in_place(work),
        _ => work(),
    }
}

#[async_trait]
impl Network for HostNetwork {
    async fn recover(&self, living: &[(Guest, EgressPolicy)]) -> Result<(), NetError> {
        self.reconcile(living).map_err(|error| NetError::new("bring the network back", error))?;
        self.serving.start(&self.parts, &self.kernel)
    }

    fn plug(&self, guest: &Guest, namespace: BorrowedFd<'_>) -> Result<(), NetError> {
        let link = self.link(guest);
        let address = self.address(guest);
        let ends = Ends { link: &link, address, gateway: self.gateway(), mtu: self.mtu() };
        self.serving.clean(address);
        let plugged = self
            .kernel
            .firewall
            .admit(address, &link)
            .and_then(|()| plug::plug(&ends, self.home.as_fd(), namespace));
        plugged.map_err(|error| NetError::new("connect the sandbox's network", error))
    }

    fn is_plugged(&self, guest: &Guest) -> bool {
        links::find(&self.kernel.links, &self.link(guest)).is_ok_and(|link| link.is_some())
    }

    async fn apply(&self, guest: &Guest, policy: &EgressPolicy) -> Result<(), NetError> {
        off_the_workers(|| self.put_in_force(guest, policy))
            .map_err(|error| NetError::new("put the sandbox's network policy in force", error))
    }

    async fn unplug(&self, guest: &Guest) -> Result<(), NetError> {
        off_the_workers(|| {
            let (address, link) = (self.address(guest), self.link(guest));
            self.parts.guests.remove(address);
            self.kernel
                .firewall
                .remove(address, &link)
                .map_err(|error| NetError::new("close the sandbox's network", error))?;
            let left = links::find(&self.kernel.links, &link).ok().flatten();
            self.serving.sweep(left.as_ref(), address);
            Ok(())
        })
    }

    fn usage(&self, guest: &Guest) -> Usage {
        let link = links::find(&self.kernel.links, &self.link(guest)).ok().flatten();
        let connections = self.parts.guests.find(self.address(guest)).map_or(0, |guest| guest.connections());
        Usage {
            bytes_out: link.as_ref().map_or(0, |link| link.bytes_received),
            bytes_in: link.as_ref().map_or(0, |link| link.bytes_sent),
            connections: connections as u64,
        }
    }

    async fn close(&self) {
        self.serving.stop().await;
    }

    async fn retire(&self) -> Result<(), NetError> {
        if !self.kernel.firewall.is_empty() {
            return Ok(());
        }
        self.serving.stop().await;
        let fault = |error: io::Error| NetError::new("remove the network", error);
        self.remove_dead_links(&[]).map_err(fault)?;
        self.kernel.firewall.retire().map_err(fault)?;
        pool::give_back(&self.kernel.links, &self.claim, &self.settings.data_dir).map_err(fault)
    }
}
