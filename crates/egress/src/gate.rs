//! What the kernel is told, and asked.

use std::io;
use std::net::Ipv4Addr;
use std::time::Duration;

use async_trait::async_trait;

/// The kernel's side of egress.
#[async_trait]
pub trait Gate: Send + Sync + 'static {
    /// Datagrams of a guest may go to these addresses for so long. In force when this returns.
    async fn open(&self, guest: Ipv4Addr, addresses: &[Ipv4Addr], lasting: Duration) -> io::Result<()>;

    /// Datagrams of a guest may go to these addresses no more. No error for one that was not open.
    async fn close(&self, guest: Ipv4Addr, addresses: &[Ipv4Addr]) -> io::Result<()>;

    /// Whether an address is one of this host's own at this moment.
    async fn is_host(&self, address: Ipv4Addr) -> io::Result<bool>;
}
