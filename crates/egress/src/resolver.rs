//! Resolves names for the DNS server and the proxy.
//!
//! Hickory asks the upstreams: it matches answers with questions, repeats truncated ones over TCP, and coalesces equal
//! questions. Answers are cached here, bounded by bytes, because the owner of a domain decides how large its answers are.
//! Closed addresses are checked at every call, for cached answers too: the host's own addresses can change.

use std::error::Error;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use hickory_proto::rr::{Name, RData, Record, RecordType};
use rules::{Closed, Ranges};
use tokio::sync::Semaphore;
use tokio::time::timeout;

use crate::kernel::KernelNetwork;
use crate::refusals::Reason;

mod answer;
mod cache;
mod upstream;

use answer::Answer;
use cache::Cache;
use upstream::Upstream;

/// The time limit of one resolution.
const RESOLVE_TIMEOUT: Duration = Duration::from_secs(2);
/// Questions to upstreams at the same time; each needs a few sockets. More than the DNS server admits, so that it cannot
/// starve the proxy.
const QUESTIONS_MAX: usize = 4096;

/// The addresses of a name. Not empty, and none is closed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Addresses {
    pub list: Vec<Ipv4Addr>,
    pub ttl: Duration,
}

/// The records of a name and a type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Records {
    /// Whether the name exists, with or without records of this type.
    pub exists: bool,
    /// Aliases first, then the records, with the remaining time to live.
    pub list: Vec<Record>,
    /// The authority of a negative answer.
    pub soa: Option<Record>,
}

/// Why a name has no address for a sandbox.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ResolveFailure {
    #[error("there is no such name")]
    NoSuchName,
    #[error("the name has no IPv4 address")]
    NoAddress,
    #[error("the name points to {0}, {1}")]
    Closed(Ipv4Addr, Closed),
    #[error("the name could not be resolved: {0}")]
    Upstream(#[source] Arc<dyn Error + Send + Sync>),
}

/// Causes are equal if their texts are.
impl PartialEq for ResolveFailure {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Closed(address, why), Self::Closed(other_address, other_why)) => {
                (address, why) == (other_address, other_why)
            }
            (Self::Upstream(cause), Self::Upstream(other)) => cause.to_string() == other.to_string(),
            _ => std::mem::discriminant(self) == std::mem::discriminant(other),
        }
    }
}

impl Eq for ResolveFailure {}

#[derive(Debug, thiserror::Error)]
#[error("the host's own addresses are not known: {0}")]
struct HostAddressesUnknown(#[source] io::Error);

impl ResolveFailure {
    /// The failure of an upstream resolver.
    pub fn upstream(cause: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self::Upstream(Arc::from(cause.into()))
    }

    /// The reason of the refusal that this failure causes.
    pub fn reason(&self) -> Reason {
        match self {
            Self::Closed(..) => Reason::ClosedAnswer,
            Self::NoSuchName | Self::NoAddress | Self::Upstream(_) => Reason::Unresolved,
        }
    }
}

/// Resolves names.
#[async_trait]
pub trait Resolve: Send + Sync + 'static {
    /// `name` is in the form of `rules::plain_name`. Bounded in time.
    async fn addresses(&self, name: &str) -> Result<Addresses, ResolveFailure>;

    /// Records of any type; none contains a closed address. An implementation that only knows addresses returns nothing
    /// else.
    async fn records(&self, name: &str, kind: RecordType) -> Result<Records, ResolveFailure> {
        let nothing = |exists| Records { exists, list: Vec::new(), soa: None };
        let found = match self.addresses(name).await {
            Err(ResolveFailure::NoSuchName) => return Ok(nothing(false)),
            Err(ResolveFailure::NoAddress) => return Ok(nothing(true)),
            found => found?,
        };
        if kind != RecordType::A {
            return Ok(nothing(true));
        }
        let owner = dns_name(name)?;
        let ttl = u32::try_from(found.ttl.as_secs()).unwrap_or(u32::MAX);
        let record = |address: Ipv4Addr| Record::from_rdata(owner.clone(), ttl, RData::A(address.into()));
        Ok(Records { list: found.list.into_iter().map(record).collect(), ..nothing(true) })
    }
}

fn dns_name(name: &str) -> Result<Name, ResolveFailure> {
    let mut name = Name::from_ascii(name).map_err(|_| ResolveFailure::NoSuchName)?;
    // Otherwise the host's search domains would be tried too.
    name.set_fqdn(true);
    Ok(name)
}

/// The upstream servers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Upstreams {
    /// Those in the host's `resolv.conf`, which is read again when it changes.
    System,
    Listed(Vec<SocketAddr>),
}

/// Resolves names with a cache.
pub struct Resolver {
    upstream: Upstream,
    cache: Cache,
    questions: Semaphore,
    ranges: Ranges,
    kernel: Arc<dyn KernelNetwork>,
}

impl Resolver {
    pub fn new(upstreams: Upstreams, ranges: Ranges, kernel: Arc<dyn KernelNetwork>) -> io::Result<Self> {
        Ok(Self {
            upstream: Upstream::new(upstreams)?,
            cache: Cache::default(),
            questions: Semaphore::new(QUESTIONS_MAX),
            ranges,
            kernel,
        })
    }

    /// The answer and its age in seconds.
    async fn find(&self, name: &str, kind: RecordType) -> Result<(Arc<Answer>, u32), ResolveFailure> {
        if let Some(cached) = self.cache.find(name, kind, Instant::now()) {
            return Ok(cached);
        }
        let asking = async {
            // The semaphore is not closed.
            let _permit = self.questions.acquire().await;
            self.upstream.query(dns_name(name)?, kind).await
        };
        let answer = timeout(RESOLVE_TIMEOUT, asking)
            .await
            .map_err(|_| ResolveFailure::upstream("the upstream did not answer in time"))??;
        let answer = Arc::new(answer);
        self.cache.insert(name, kind, &answer, Instant::now());
        Ok((answer, 0))
    }

    async fn check_closed(&self, answer: &Answer) -> Result<(), ResolveFailure> {
        for address in answer.addresses() {
            let owner = self.kernel.owner(address).await;
            let owner = owner.map_err(|error| ResolveFailure::upstream(HostAddressesUnknown(error)))?;
            if let Some(why) = self.ranges.closed(address, owner) {
                return Err(ResolveFailure::Closed(address, why));
            }
        }
        Ok(())
    }
}

#[async_trait]
impl Resolve for Resolver {
    async fn addresses(&self, name: &str) -> Result<Addresses, ResolveFailure> {
        let (answer, age) = self.find(name, RecordType::A).await?;
        if !answer.exists {
            return Err(ResolveFailure::NoSuchName);
        }
        self.check_closed(&answer).await?;
        let list: Vec<Ipv4Addr> = answer.addresses().collect();
        if list.is_empty() {
            return Err(ResolveFailure::NoAddress);
        }
        Ok(Addresses { list, ttl: Duration::from_secs(answer.ttl.saturating_sub(age).into()) })
    }

    async fn records(&self, name: &str, kind: RecordType) -> Result<Records, ResolveFailure> {
        let (answer, age) = self.find(name, kind).await?;
        self.check_closed(&answer).await?;
        Ok(Records { exists: answer.exists, list: answer.list(age), soa: answer.soa(age) })
    }
}
