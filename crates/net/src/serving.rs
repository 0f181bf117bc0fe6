//! Runs the DNS server, the proxy and the kernel watchers, on a runtime of their own, so that a sandbox that floods them
//! does not slow down the API.

mod sweeper;
mod watch;

use std::io;
use std::net::{Ipv4Addr, SocketAddrV4, TcpListener, UdpSocket};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use base::IgnorePoison;
use egress::Parts;
use netlink::links::Link;
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::address_holder;
use crate::contract::NetError;
use crate::firewall::log;
use crate::kernel::Kernel;
use crate::names::Scope;
use sweeper::{RemovedSandbox, StaleConnections};
pub use watch::Watched;

/// The backlog of connections to the proxy.
const PROXY_BACKLOG: i32 = 4096;
/// The receive buffer for DNS questions.
const DNS_BUFFER_BYTES: usize = 4 << 20;
/// The congestion control of the proxy's sandbox sockets. The link to a sandbox loses no packets, so the pacing of
/// the host's default is useless there and can cost much processor time. All kernels have this one. Upstream sockets
/// keep the default.
const CONGESTION_CONTROL: &str = "reno";
/// Time limit for tasks to end.
const STOP_TIMEOUT: Duration = Duration::from_secs(5);

/// The DNS server, the proxy and the tasks beside them.
pub struct Serving {
    scope: Scope,
    watched: Watched,
    runtime: Mutex<Option<Runtime>>,
    handle: Handle,
    sockets: Mutex<Option<Sockets>>,
    stop: CancellationToken,
    tasks: TaskTracker,
    sweeps: mpsc::UnboundedSender<RemovedSandbox>,
    swept: Mutex<Option<mpsc::UnboundedReceiver<RemovedSandbox>>>,
    stale_connections: Arc<StaleConnections>,
}

struct Sockets {
    dns: UdpSocket,
    dns_tcp: TcpListener,
    proxy: TcpListener,
}

#[derive(Debug, thiserror::Error)]
#[error("{address}: {source}{holder}")]
struct CannotBind {
    address: SocketAddrV4,
    source: io::Error,
    /// Who uses the address, if it is in use.
    holder: String,
}

impl Serving {
    /// Binds the ports. Connections wait until [`Serving::start`].
    pub fn listen(
        dns: SocketAddrV4,
        proxy: SocketAddrV4,
        scope: Scope,
        watched: Watched,
    ) -> Result<Self, NetError> {
        let fault = |error: io::Error| NetError::new("listen on the gateway's address", error);
        let at = |address: SocketAddrV4| {
            move |error: io::Error| {
                let is_in_use = error.kind() == io::ErrorKind::AddrInUse;
                let holder = if is_in_use { address_holder::explain(address) } else { String::new() };
                NetError::new("listen for sandboxes", CannotBind { address, source: error, holder })
            }
        };
        let sockets = Sockets {
            dns: UdpSocket::bind(dns).map_err(at(dns))?,
            dns_tcp: TcpListener::bind(dns).map_err(at(dns))?,
            proxy: TcpListener::bind(proxy).map_err(at(proxy))?,
        };
        // Bursts must not be lost: clients repeat a question only after a second.
        rustix::net::sockopt::set_socket_recv_buffer_size_force(&sockets.dns, DNS_BUFFER_BYTES)
            .map_err(|error| fault(error.into()))?;
        // Accepted sockets inherit it from the listener.
        if let Err(error) = rustix::net::sockopt::set_tcp_congestion(&sockets.proxy, CONGESTION_CONTROL) {
            tracing::debug!(%error, "cannot set the congestion control of sandbox sockets; using the host's default");
        }
        rustix::net::listen(&sockets.proxy, PROXY_BACKLOG).map_err(|error| fault(error.into()))?;
        sockets.dns.set_nonblocking(true).map_err(fault)?;
        sockets.dns_tcp.set_nonblocking(true).map_err(fault)?;
        sockets.proxy.set_nonblocking(true).map_err(fault)?;
        let runtime = Builder::new_multi_thread()
            .worker_threads(2)
            .thread_name("network")
            .enable_all()
            .build()
            .map_err(|error| NetError::new("start the network's threads", error))?;
        let handle = runtime.handle().clone();
        let (sweeps, swept) = mpsc::unbounded_channel();
        Ok(Self {
            scope,
            watched,
            runtime: Mutex::new(Some(runtime)),
            handle,
            sockets: Mutex::new(Some(sockets)),
            stop: CancellationToken::new(),
            tasks: TaskTracker::new(),
            sweeps,
            swept: Mutex::new(Some(swept)),
            stale_connections: Arc::default(),
        })
    }

    /// Starts serving. Repeated calls do nothing.
    pub fn start(&self, parts: &Arc<Parts>, kernel: &Arc<Kernel>) -> Result<(), NetError> {
        let Some(sockets) = self.sockets.lock().ignore_poison().take() else {
            return Ok(());
        };
        let _inside = self.handle.enter();
        let fault = |error: io::Error| NetError::new("serve on the gateway's address", error);
        let dns = tokio::net::UdpSocket::from_std(sockets.dns).map_err(fault)?;
        let dns_tcp = tokio::net::TcpListener::from_std(sockets.dns_tcp).map_err(fault)?;
        let proxy = tokio::net::TcpListener::from_std(sockets.proxy).map_err(fault)?;
        self.tasks
            .spawn_on(egress::dns::serve(Arc::clone(parts), dns, dns_tcp, self.stop.clone()), &self.handle);
        self.tasks.spawn_on(egress::proxy::serve(Arc::clone(parts), proxy, self.stop.clone()), &self.handle);
        if let Some(swept) = self.swept.lock().ignore_poison().take() {
            let sweeping = sweeper::run(
                Arc::clone(kernel),
                Arc::clone(&self.stale_connections),
                swept,
                self.stop.clone(),
            );
            self.tasks.spawn_on(sweeping, &self.handle);
        }
        self.tasks.spawn_on(log::run(self.scope, Arc::clone(parts), self.stop.clone()), &self.handle);
        let watching = watch::run(self.watched.clone(), Arc::clone(kernel), self.stop.clone());
        self.tasks.spawn_on(watching, &self.handle);
        Ok(())
    }

    /// Cleans up the link and the tracked connections of a removed sandbox in the background.
    pub fn sweep(&self, link: Option<&Link>, address: Ipv4Addr) {
        self.stale_connections.mark(address);
        let (link, index) = link.map_or((String::new(), 0), |link| (link.name.clone(), link.index));
        // If the sweeper has ended, the next start of the daemon removes them.
        let _ = self.sweeps.send(RemovedSandbox { link, index, address });
    }

    /// Deletes connections of an earlier sandbox with the same address. Blocks if such a sandbox was removed
    /// recently.
    pub fn clean(&self, address: Ipv4Addr) {
        self.stale_connections.clean(address);
    }

    /// Ends all tasks. Repeated calls do nothing.
    pub async fn stop(&self) {
        self.stop.cancel();
        self.tasks.close();
        if tokio::time::timeout(STOP_TIMEOUT, self.tasks.wait()).await.is_err() {
            tracing::warn!("the network's tasks did not end in time");
        }
        self.sockets.lock().ignore_poison().take();
        self.end_runtime();
    }

    fn end_runtime(&self) {
        let runtime = self.runtime.lock().ignore_poison().take();
        if let Some(runtime) = runtime {
            runtime.shutdown_background();
        }
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.stop.cancel();
        self.end_runtime();
    }
}
