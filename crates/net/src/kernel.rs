//! The threads for requests to the kernel, and the interface of DNS and the proxy to them.

use std::io;
use std::net::Ipv4Addr;
use std::time::Duration;

use async_trait::async_trait;
use egress::KernelNetwork;
use netlink::RouteSocket;
use netlink::routes;

use crate::firewall::Firewall;
use crate::owner::OwnerThread;
use crate::turns::Turns;

/// One thread for each kernel lock, so that a request waits only for requests of its kind: the kernel can hold the lock of its
/// links for tens of milliseconds while it removes one.
pub struct Kernel {
    /// The nftables table.
    pub firewall: OwnerThread<Firewall>,
    /// Addresses that sandboxes learn: one answer of each sandbox waits for the firewall.
    turns: Turns,
    /// Links, and changes of routes.
    pub links: OwnerThread<RouteSocket>,
    /// Route lookups for decisions of DNS and the proxy.
    pub lookups: OwnerThread<RouteSocket>,
}

impl Kernel {
    /// Starts the thread that owns the firewall and the links.
    pub fn start(firewall: Firewall, links: RouteSocket) -> io::Result<Self> {
        Ok(Self {
            firewall: OwnerThread::spawn("net-firewall", firewall)?,
            turns: Turns::default(),
            links: OwnerThread::spawn("net-links", links)?,
            lookups: OwnerThread::spawn("net-lookups", RouteSocket::open()?)?,
        })
    }
}

#[async_trait]
impl KernelNetwork for Kernel {
    async fn open(&self, guest: Ipv4Addr, addresses: &[Ipv4Addr], lasting: Duration) -> io::Result<()> {
        let _turn = self.turns.of(guest).await;
        let (opened, closed) = (addresses.to_vec(), addresses.to_vec());
        let undo = move |firewall: &mut Firewall| {
            if let Err(error) = firewall.close(guest, &closed) {
                tracing::warn!(%guest, %error, "addresses of an abandoned DNS answer stay open until they expire");
            }
        };
        // The caller checks the policy again when this returns. If the caller was dropped, these addresses are closed
        // here.
        self.firewall
            .call_or_undo("open addresses", move |firewall| firewall.open(guest, &opened, lasting), undo)
            .await
    }

    async fn close(&self, guest: Ipv4Addr, addresses: &[Ipv4Addr]) -> io::Result<()> {
        let _turn = self.turns.of(guest).await;
        let addresses = addresses.to_vec();
        self.firewall.call("close addresses", move |firewall| firewall.close(guest, &addresses)).await
    }

    async fn is_host(&self, address: Ipv4Addr) -> io::Result<bool> {
        self.lookups.call("look up a route", move |socket| routes::is_host(socket, address)).await
    }
}
