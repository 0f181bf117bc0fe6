//! Asking upstreams.

use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use hickory_proto::op::ResponseCode;
use hickory_proto::rr::{Name, RData, Record, RecordType};
use hickory_resolver::TokioResolver;
use hickory_resolver::config::{
    ConnectionConfig, NameServerConfig, ResolveHosts, ResolverConfig, ResolverOpts,
};
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::net::{DnsError, NetError};

use super::answer::Answer;
use super::{Failure, Upstreams};

const RESOLV_CONF: &str = "/etc/resolv.conf";
/// What a `resolv.conf` without servers means.
const NO_SERVER_LISTED: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), DNS_PORT);
const DNS_PORT: u16 = 53;
/// As many as the C library takes from a `resolv.conf`.
const SERVERS_MAX: usize = 3;
/// Whether the file has changed is looked at no more often.
const LOOKED_AT: Duration = Duration::from_secs(1);

/// One try, with all servers that fit into it. The second ends within the time that a caller waits.
const TRY: Duration = Duration::from_millis(900);
const TRIES_AFTER_THE_FIRST: usize = 1;
/// Questions on their way over one connection to a server at a time.
const ASKED_OF_ONE_MAX: usize = 4096;

/// The servers, and how to ask them.
pub enum Upstream {
    Fixed(TokioResolver),
    System(Mutex<System>),
}

/// As the host's file said last.
pub struct System {
    resolver: TokioResolver,
    servers: Vec<SocketAddr>,
    changed: Option<SystemTime>,
    looked: Instant,
}

impl Upstream {
    pub fn new(upstreams: Upstreams) -> io::Result<Self> {
        match upstreams {
            Upstreams::Listed(servers) => Ok(Self::Fixed(resolver(&servers)?)),
            Upstreams::System => {
                let changed = changed(Path::new(RESOLV_CONF));
                let servers = listed(&fs::read_to_string(RESOLV_CONF).unwrap_or_default());
                let resolver = resolver(&servers)?;
                Ok(Self::System(Mutex::new(System { resolver, servers, changed, looked: Instant::now() })))
            }
        }
    }

    pub async fn ask(&self, name: Name, kind: RecordType) -> Result<Answer, Failure> {
        let resolver = match self {
            Self::Fixed(resolver) => resolver.clone(),
            Self::System(system) => {
                system.lock().unwrap_or_else(PoisonError::into_inner).now(Path::new(RESOLV_CONF))
            }
        };
        match resolver.lookup(name.clone(), kind).await {
            Ok(lookup) => Ok(Answer::of(&name, kind, lookup.answers())),
            Err(NetError::Dns(DnsError::NoRecordsFound(none))) => match none.response_code {
                ResponseCode::NoError | ResponseCode::NXDomain => {
                    let soa = none.soa.map(|soa| {
                        let soa = *soa;
                        Record::from_rdata(soa.name, soa.ttl, RData::SOA(soa.data))
                    });
                    Ok(Answer::nothing(none.response_code == ResponseCode::NoError, soa, none.negative_ttl))
                }
                code => Err(Failure::Upstream(format!("the upstream says {code}"))),
            },
            Err(error) => Err(Failure::Upstream(error.to_string())),
        }
    }
}

impl System {
    fn now(&mut self, file: &Path) -> TokioResolver {
        if self.looked.elapsed() >= LOOKED_AT {
            self.looked = Instant::now();
            let changed = changed(file);
            if changed != self.changed {
                self.changed = changed;
                self.read(file);
            }
        }
        self.resolver.clone()
    }

    fn read(&mut self, file: &Path) {
        let again = fs::read_to_string(file).and_then(|text| {
            let servers = listed(&text);
            Ok((resolver(&servers)?, servers))
        });
        match again {
            Ok((resolver, servers)) if servers != self.servers => {
                tracing::info!(?servers, "the host has other DNS servers now");
                (self.resolver, self.servers) = (resolver, servers);
            }
            Ok(_) => {}
            // It is being written, or gone: whom we know may still answer.
            Err(error) => tracing::warn!(%error, "the host's resolv.conf cannot be read"),
        }
    }
}

fn changed(file: &Path) -> Option<SystemTime> {
    fs::metadata(file).and_then(|file| file.modified()).ok()
}

/// The servers that a `resolv.conf` lists. Search domains and options are for programs on the host.
fn listed(text: &str) -> Vec<SocketAddr> {
    let server = |line: &str| {
        let mut words = line.split_ascii_whitespace();
        let address = words.next().filter(|word| *word == "nameserver").and_then(|_| words.next())?;
        Some(SocketAddr::new(address.parse().ok()?, DNS_PORT))
    };
    let servers: Vec<SocketAddr> = text.lines().filter_map(server).take(SERVERS_MAX).collect();
    if servers.is_empty() { vec![NO_SERVER_LISTED] } else { servers }
}

fn resolver(servers: &[SocketAddr]) -> io::Result<TokioResolver> {
    let server = |server: &SocketAddr| {
        let connections = [ConnectionConfig::udp(), ConnectionConfig::tcp()].map(|mut connection| {
            connection.port = server.port();
            connection
        });
        NameServerConfig::new(server.ip(), true, connections.into())
    };
    let config = ResolverConfig::from_parts(None, Vec::new(), servers.iter().map(server).collect());
    let mut builder = TokioResolver::builder_with_config(config, TokioRuntimeProvider::default());
    *builder.options_mut() = options();
    builder.build().map_err(io::Error::other)
}

fn options() -> ResolverOpts {
    let mut options = ResolverOpts::default();
    options.timeout = TRY;
    options.attempts = TRIES_AFTER_THE_FIRST;
    options.max_active_requests = ASKED_OF_ONE_MAX;
    // Answers are kept by us, bounded by what they weigh.
    options.cache_size = 0;
    options.use_hosts_file = ResolveHosts::Never;
    options
}

#[cfg(test)]
mod tests;
