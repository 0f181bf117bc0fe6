//! The interface to the kernel's firewall and routes.

use std::io;
use std::net::Ipv4Addr;
use std::time::Duration;

use async_trait::async_trait;

/// What the DNS server and the proxy need of the kernel.
#[async_trait]
pub trait Gate: Send + Sync + 'static {
    /// Opens addresses to a sandbox's datagrams for a time. In force when this returns. A caller that gives up waiting
    /// leaves nothing open.
    async fn open(&self, guest: Ipv4Addr, addresses: &[Ipv4Addr], lasting: Duration) -> io::Result<()>;

    /// Closes addresses to a sandbox's datagrams. No error for an address that was not open.
    async fn close(&self, guest: Ipv4Addr, addresses: &[Ipv4Addr]) -> io::Result<()>;

    /// Whether an address is one of this host's own at this moment.
    async fn is_host(&self, address: Ipv4Addr) -> io::Result<bool>;
}
