//! The network of sandboxes on this host: addresses, links, the firewall, and the threads that run the DNS server and the
//! proxy of `egress`.

mod address_holder;
mod connections;
mod contract;
mod facts;
mod firewall;
mod forwarding;
mod host;
mod kernel;
mod names;
mod none;
mod notifications;
mod owner;
mod plug;
mod pool;
mod serving;
mod settings;
mod turns;

pub use contract::{Guest, NetError, Network, Usage};
pub use egress::{
    Addresses, Reason, Refusal, RefusedTarget, Resolve, ResolveFailure, Transport, Upstreams, verdict,
};
pub use facts::{Fact, FactState, facts, owner_of, ranges, resolver};
pub use host::HostNetwork;
pub use ipnet::Ipv4Net;
pub use none::NoNetwork;
pub use rules::Ranges;
pub use settings::{HostSettings, Pool};
