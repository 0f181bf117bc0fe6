//! The interface to the kernel's firewall and routes.

use std::io;
use std::net::Ipv4Addr;
use std::time::Duration;

use async_trait::async_trait;
use rules::AddressOwner;

/// The requests of the DNS server and the proxy to the kernel.
#[async_trait]
pub trait KernelNetwork: Send + Sync + 'static {
    /// Opens addresses to a sandbox's datagrams for a time. In force when this returns. If the caller stops waiting,
    /// the addresses are closed again.
    async fn open(&self, guest: Ipv4Addr, addresses: &[Ipv4Addr], lasting: Duration) -> io::Result<()>;

    /// Closes addresses to a sandbox's datagrams. No error for an address that was not open.
    async fn close(&self, guest: Ipv4Addr, addresses: &[Ipv4Addr]) -> io::Result<()>;

    /// Whether an address currently belongs to this host.
    async fn is_host(&self, address: Ipv4Addr) -> io::Result<bool>;

    /// As [`Self::is_host`], for the rules.
    async fn owner(&self, address: Ipv4Addr) -> io::Result<AddressOwner> {
        Ok(if self.is_host(address).await? { AddressOwner::Host } else { AddressOwner::Other })
    }
}
