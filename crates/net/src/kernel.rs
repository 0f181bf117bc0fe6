//! The side of the kernel that DNS and the proxy see.

use std::io;
use std::net::Ipv4Addr;
use std::time::Duration;

use async_trait::async_trait;
use egress::Gate;

use crate::firewall::Firewall;
use crate::netlink::RouteSocket;
use crate::routes;

pub struct Kernel {
    pub firewall: Firewall,
    /// For links and routes.
    pub links: RouteSocket,
    /// Of its own, so that no question waits for a link that is being made.
    pub questions: RouteSocket,
}

#[async_trait]
impl Gate for Kernel {
    async fn open(&self, guest: Ipv4Addr, addresses: &[Ipv4Addr], lasting: Duration) -> io::Result<()> {
        self.firewall.open(guest, addresses, lasting)
    }

    async fn close(&self, guest: Ipv4Addr, addresses: &[Ipv4Addr]) -> io::Result<()> {
        self.firewall.close(guest, addresses)
    }

    fn is_host(&self, address: Ipv4Addr) -> io::Result<bool> {
        routes::is_host(&self.questions, address)
    }
}
