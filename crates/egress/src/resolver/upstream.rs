//! Sends questions to upstream servers.

use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::pin::pin;
use std::sync::Mutex;
use std::time::{Duration, Instant, SystemTime};

use base::IgnorePoison;
use hickory_proto::op::ResponseCode;
use hickory_proto::rr::{Name, RData, Record, RecordType};
use hickory_resolver::TokioResolver;
use hickory_resolver::config::{
    ConnectionConfig, NameServerConfig, ResolveHosts, ResolverConfig, ResolverOpts,
};
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::net::{DnsError, NetError};
use tokio::time::sleep;

use super::answer::Answer;
use super::{ResolveFailure, Upstreams};

const RESOLV_CONF: &str = "/etc/resolv.conf";
/// The default of a `resolv.conf` without servers.
const DEFAULT_SERVER: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), DNS_PORT);
const DNS_PORT: u16 = 53;
/// The maximum that the C library uses.
const SERVERS_MAX: usize = 3;
/// Minimum time between checks whether the file changed.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// Time limit of one upstream, less than that of the caller.
const UPSTREAM_TIMEOUT: Duration = Duration::from_millis(1800);
/// The question is repeated after this time: the datagram may be lost, or the server down.
const REPEAT_AFTER: Duration = Duration::from_millis(900);
/// Questions at the same time over one connection to a server.
const QUESTIONS_PER_SERVER_MAX: usize = 4096;

/// The servers, with a client for them.
pub enum Upstream {
    Fixed(Clients),
    System(Mutex<System>),
}

/// The servers in the host's file when it was last read.
pub struct System {
    clients: Clients,
    servers: Vec<SocketAddr>,
    changed: Option<SystemTime>,
    looked: Instant,
}

/// Two clients, because one client coalesces a repeated question with the one that waits.
#[derive(Clone)]
pub struct Clients {
    first: TokioResolver,
    second: TokioResolver,
}

/// The servers could not be reached, or did not answer.
type NoAnswer = ResolveFailure;

impl Upstream {
    pub fn new(upstreams: Upstreams) -> io::Result<Self> {
        match upstreams {
            Upstreams::Listed(servers) => Ok(Self::Fixed(Clients::of(&servers)?)),
            Upstreams::System => {
                let changed = changed(Path::new(RESOLV_CONF));
                let servers = listed(&fs::read_to_string(RESOLV_CONF).unwrap_or_default());
                let clients = Clients::of(&servers)?;
                Ok(Self::System(Mutex::new(System { clients, servers, changed, looked: Instant::now() })))
            }
        }
    }

    /// Asks all upstreams, and once more if none answers soon.
    pub async fn query(&self, name: Name, kind: RecordType) -> Result<Answer, ResolveFailure> {
        let clients = match self {
            Self::Fixed(clients) => clients.clone(),
            Self::System(system) => system.lock().ignore_poison().now(Path::new(RESOLV_CONF)),
        };
        clients.query(&name, kind).await
    }
}

impl Clients {
    fn of(servers: &[SocketAddr]) -> io::Result<Self> {
        Ok(Self {
            first: resolver(servers, UPSTREAM_TIMEOUT, ResolverOpts::default().num_concurrent_reqs)?,
            // The client does not report which server was silent, so all are queried.
            second: resolver(servers, UPSTREAM_TIMEOUT - REPEAT_AFTER, servers.len().min(SERVERS_MAX))?,
        })
    }

    /// The first question stays open while it is repeated: either answer counts.
    async fn query(&self, name: &Name, kind: RecordType) -> Result<Answer, ResolveFailure> {
        let mut first = pin!(query(&self.first, name, kind));
        let second = query(&self.second, name, kind);
        let early = tokio::select! {
            heard = &mut first => heard,
            () = sleep(REPEAT_AFTER) => {
                let mut second = pin!(second);
                let (heard, other) = tokio::select! {
                    heard = &mut first => (heard, second),
                    heard = &mut second => (heard, first),
                };
                return match heard {
                    Ok(heard) => heard,
                    Err(_) => other.await.unwrap_or_else(Err),
                };
            }
        };
        match early {
            Ok(heard) => heard,
            Err(_) => second.await.unwrap_or_else(Err),
        }
    }
}

async fn query(
    resolver: &TokioResolver,
    name: &Name,
    kind: RecordType,
) -> Result<Result<Answer, ResolveFailure>, NoAnswer> {
    match resolver.lookup(name.clone(), kind).await {
        Ok(lookup) => Ok(Ok(Answer::of(name, kind, lookup.answers()))),
        Err(NetError::Dns(DnsError::NoRecordsFound(none))) => Ok(match none.response_code {
            ResponseCode::NoError | ResponseCode::NXDomain => {
                let soa = none.soa.map(|soa| {
                    let soa = *soa;
                    Record::from_rdata(soa.name, soa.ttl, RData::SOA(soa.data))
                });
                Ok(Answer::nothing(none.response_code == ResponseCode::NoError, soa, none.negative_ttl))
            }
            code => Err(ResolveFailure::upstream(format!("the upstream answered {code}"))),
        }),
        Err(error) => Err(ResolveFailure::upstream(error)),
    }
}

impl System {
    fn now(&mut self, file: &Path) -> Clients {
        if self.looked.elapsed() >= CHECK_INTERVAL {
            self.looked = Instant::now();
            let changed = changed(file);
            if changed != self.changed {
                self.changed = changed;
                self.read(file);
            }
        }
        self.clients.clone()
    }

    fn read(&mut self, file: &Path) {
        let again = fs::read_to_string(file).and_then(|text| {
            let servers = listed(&text);
            Ok((Clients::of(&servers)?, servers))
        });
        match again {
            Ok((clients, servers)) if servers != self.servers => {
                tracing::info!(?servers, "the host's DNS servers have changed");
                (self.clients, self.servers) = (clients, servers);
            }
            Ok(_) => {}
            // The file is being written or is missing: the known servers may still answer.
            Err(error) => {
                tracing::warn!(%error, "cannot read the host's resolv.conf; using the last known servers");
            }
        }
    }
}

fn changed(file: &Path) -> Option<SystemTime> {
    fs::metadata(file).and_then(|file| file.modified()).ok()
}

/// The servers in a `resolv.conf`. Search domains and options are for programs on the host.
fn listed(text: &str) -> Vec<SocketAddr> {
    let server = |line: &str| {
        let mut words = line.split_ascii_whitespace();
        let address = words.next().filter(|word| *word == "nameserver").and_then(|_| words.next())?;
        Some(SocketAddr::new(address.parse().ok()?, DNS_PORT))
    };
    let servers: Vec<SocketAddr> = text.lines().filter_map(server).take(SERVERS_MAX).collect();
    if servers.is_empty() { vec![DEFAULT_SERVER] } else { servers }
}

/// `at_once`: the number of servers queried in parallel.
fn resolver(servers: &[SocketAddr], time: Duration, at_once: usize) -> io::Result<TokioResolver> {
    let server = |server: &SocketAddr| {
        let connections = [ConnectionConfig::udp(), ConnectionConfig::tcp()].map(|mut connection| {
            connection.port = server.port();
            connection
        });
        NameServerConfig::new(server.ip(), true, connections.into())
    };
    let config = ResolverConfig::from_parts(None, Vec::new(), servers.iter().map(server).collect());
    let mut builder = TokioResolver::builder_with_config(config, TokioRuntimeProvider::default());
    let mut options = options();
    (options.timeout, options.num_concurrent_reqs) = (time, at_once);
    *builder.options_mut() = options;
    builder.build().map_err(io::Error::other)
}

fn options() -> ResolverOpts {
    let mut options = ResolverOpts::default();
    options.attempts = 0;
    options.max_active_requests = QUESTIONS_PER_SERVER_MAX;
    // `Cache` is bounded by bytes.
    options.cache_size = 0;
    options.use_hosts_file = ResolveHosts::Never;
    options
}

#[cfg(test)]
mod tests;
