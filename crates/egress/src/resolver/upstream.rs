//! Asking upstreams.

use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::pin::pin;
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
use tokio::time::sleep;

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

/// For so long an upstream may think about it. Ends within the time that a caller waits.
const FIRST: Duration = Duration::from_millis(1800);
/// After this it is asked again, which costs nothing but a datagram: the first may be lost, or was for a server that is gone.
const AGAIN: Duration = Duration::from_millis(900);
/// Questions on their way over one connection to a server at a time.
const ASKED_OF_ONE_MAX: usize = 4096;

/// The servers, and how to ask them.
pub enum Upstream {
    Fixed(Askers),
    System(Mutex<System>),
}

/// As the host's file said last.
pub struct System {
    askers: Askers,
    servers: Vec<SocketAddr>,
    changed: Option<SystemTime>,
    looked: Instant,
}

/// Two, since one that is asked the same again while it waits for the answer asks nobody.
#[derive(Clone)]
pub struct Askers {
    first: TokioResolver,
    second: TokioResolver,
}

/// The servers could not be asked, or did not answer.
type Unheard = Failure;

impl Upstream {
    pub fn new(upstreams: Upstreams) -> io::Result<Self> {
        match upstreams {
            Upstreams::Listed(servers) => Ok(Self::Fixed(Askers::of(&servers)?)),
            Upstreams::System => {
                let changed = changed(Path::new(RESOLV_CONF));
                let servers = listed(&fs::read_to_string(RESOLV_CONF).unwrap_or_default());
                let askers = Askers::of(&servers)?;
                Ok(Self::System(Mutex::new(System { askers, servers, changed, looked: Instant::now() })))
            }
        }
    }

    pub async fn ask(&self, name: Name, kind: RecordType) -> Result<Answer, Failure> {
        let askers = match self {
            Self::Fixed(askers) => askers.clone(),
            Self::System(system) => {
                system.lock().unwrap_or_else(PoisonError::into_inner).now(Path::new(RESOLV_CONF))
            }
        };
        askers.ask(&name, kind).await
    }
}

impl Askers {
    fn of(servers: &[SocketAddr]) -> io::Result<Self> {
        Ok(Self {
            first: resolver(servers, FIRST, ResolverOpts::default().num_concurrent_reqs)?,
            // It does not know who was silent, so it asks everybody.
            second: resolver(servers, FIRST - AGAIN, servers.len().min(SERVERS_MAX))?,
        })
    }

    /// The first question stays open while it is asked again: whichever is answered counts.
    async fn ask(&self, name: &Name, kind: RecordType) -> Result<Answer, Failure> {
        let mut first = pin!(ask(&self.first, name, kind));
        let second = ask(&self.second, name, kind);
        let early = tokio::select! {
            heard = &mut first => heard,
            () = sleep(AGAIN) => {
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

async fn ask(
    resolver: &TokioResolver,
    name: &Name,
    kind: RecordType,
) -> Result<Result<Answer, Failure>, Unheard> {
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
            code => Err(Failure::Upstream(format!("the upstream says {code}"))),
        }),
        Err(error) => Err(Failure::Upstream(error.to_string())),
    }
}

impl System {
    fn now(&mut self, file: &Path) -> Askers {
        if self.looked.elapsed() >= LOOKED_AT {
            self.looked = Instant::now();
            let changed = changed(file);
            if changed != self.changed {
                self.changed = changed;
                self.read(file);
            }
        }
        self.askers.clone()
    }

    fn read(&mut self, file: &Path) {
        let again = fs::read_to_string(file).and_then(|text| {
            let servers = listed(&text);
            Ok((Askers::of(&servers)?, servers))
        });
        match again {
            Ok((askers, servers)) if servers != self.servers => {
                tracing::info!(?servers, "the host has other DNS servers now");
                (self.askers, self.servers) = (askers, servers);
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

/// `at_once`: so many of the servers are asked at a time.
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
    options.max_active_requests = ASKED_OF_ONE_MAX;
    // Answers are kept by us, bounded by what they weigh.
    options.cache_size = 0;
    options.use_hosts_file = ResolveHosts::Never;
    options
}

#[cfg(test)]
mod tests;
