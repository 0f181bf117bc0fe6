//! What runs for the network as long as the daemon does: DNS, the proxy, and those who listen to the kernel. On a runtime of its
//! own, so that a sandbox that floods them slows no request of the interface.

mod sweeper;
mod watch;

use std::io;
use std::net::{Ipv4Addr, SocketAddrV4, TcpListener, UdpSocket};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use egress::Parts;
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::contract::NetError;
use crate::firewall::log;
use crate::kernel::Kernel;
use crate::links::Link;
use crate::names::Scope;
use crate::taken;
use sweeper::{Swept, Unclean};
pub use watch::Watched;

/// Connections that wait to be accepted.
const WAITING: i32 = 4096;
/// Of questions that wait to be read.
const QUESTIONS_BYTES: usize = 4 << 20;
/// How what the proxy sends to a sandbox is paced: not at all. One link leads there, which loses nothing; the host's own way, which
/// the sockets to the outside keep, may take a good part of a processor to find that out. Every kernel has this one.
const TO_SANDBOXES: &str = "reno";
/// For what runs to end.
const PATIENCE: Duration = Duration::from_secs(5);

pub struct Serving {
    scope: Scope,
    watched: Watched,
    runtime: Mutex<Option<Runtime>>,
    handle: Handle,
    sockets: Mutex<Option<Sockets>>,
    stop: CancellationToken,
    tasks: TaskTracker,
    sweeps: mpsc::UnboundedSender<Swept>,
    swept: Mutex<Option<mpsc::UnboundedReceiver<Swept>>>,
    unclean: Arc<Unclean>,
}

struct Sockets {
    dns: UdpSocket,
    dns_tcp: TcpListener,
    proxy: TcpListener,
}

impl Serving {
    /// Takes the ports. What comes waits until [`Serving::start`].
    pub fn listen(
        dns: SocketAddrV4,
        proxy: SocketAddrV4,
        scope: Scope,
        watched: Watched,
    ) -> Result<Self, NetError> {
        let fault = |error: io::Error| NetError::new("listen on the gateway's address", error);
        let at = |address: SocketAddrV4| {
            move |error: io::Error| {
                NetError::new("listen for sandboxes", {
                    let who = if error.kind() == io::ErrorKind::AddrInUse {
                        taken::explain(address)
                    } else {
                        String::new()
                    };
                    format!("{address}: {error}{who}")
                })
            }
        };
        let sockets = Sockets {
            dns: UdpSocket::bind(dns).map_err(at(dns))?,
            dns_tcp: TcpListener::bind(dns).map_err(at(dns))?,
            proxy: TcpListener::bind(proxy).map_err(at(proxy))?,
        };
        // Whoever comes in a burst must not have to send again a second later.
        rustix::net::sockopt::set_socket_recv_buffer_size_force(&sockets.dns, QUESTIONS_BYTES)
            .map_err(|error| fault(error.into()))?;
        // What is accepted has it from the listener.
        if let Err(error) = rustix::net::sockopt::set_tcp_congestion(&sockets.proxy, TO_SANDBOXES) {
            tracing::debug!(%error, "what goes to sandboxes is paced as the host's own");
        }
        rustix::net::listen(&sockets.proxy, WAITING).map_err(|error| fault(error.into()))?;
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
            unclean: Arc::default(),
        })
    }

    /// Serves. Does nothing when it is called again.
    pub fn start(&self, parts: &Arc<Parts>, kernel: &Arc<Kernel>) -> Result<(), NetError> {
        let Some(sockets) = self.sockets.lock().unwrap_or_else(PoisonError::into_inner).take() else {
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
        if let Some(swept) = self.swept.lock().unwrap_or_else(PoisonError::into_inner).take() {
            let sweeping =
                sweeper::run(Arc::clone(kernel), Arc::clone(&self.unclean), swept, self.stop.clone());
            self.tasks.spawn_on(sweeping, &self.handle);
        }
        self.tasks.spawn_on(log::run(self.scope, Arc::clone(parts), self.stop.clone()), &self.handle);
        let watching = watch::run(self.watched.clone(), Arc::clone(kernel), self.stop.clone());
        self.tasks.spawn_on(watching, &self.handle);
        Ok(())
    }

    /// Sees to it that nothing of a sandbox that is gone stays in the kernel.
    pub fn sweep(&self, link: Option<&Link>, address: Ipv4Addr) {
        self.unclean.note(address);
        let (link, index) = link.map_or((String::new(), 0), |link| (link.name.clone(), link.index));
        // Where nobody listens any more, the next start finds what is left.
        let _ = self.sweeps.send(Swept { link, index, address });
    }

    /// Before an address is used: nothing of who had it earlier is left. Waits only where it was in use a moment ago.
    pub fn clean(&self, address: Ipv4Addr) {
        self.unclean.clean(address);
    }

    /// Ends everything that runs. Does nothing when it is called again.
    pub async fn stop(&self) {
        self.stop.cancel();
        self.tasks.close();
        if tokio::time::timeout(PATIENCE, self.tasks.wait()).await.is_err() {
            tracing::warn!("the network's tasks did not end in time");
        }
        self.sockets.lock().unwrap_or_else(PoisonError::into_inner).take();
        self.end_runtime();
    }

    fn end_runtime(&self) {
        let runtime = self.runtime.lock().unwrap_or_else(PoisonError::into_inner).take();
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
