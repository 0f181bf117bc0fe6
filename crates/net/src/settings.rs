//! What an operator says about the network.

use std::net::Ipv4Addr;
use std::path::PathBuf;

use egress::Upstreams;
use ipnet::Ipv4Net;
use rules::Ranges;

/// Everything that [`crate::HostNetwork`] is told.
#[derive(Debug, Clone)]
pub struct HostSettings {
    /// Of the daemon: what is to be remembered is kept here, and every daemon on a host has its own.
    pub data_dir: PathBuf,
    /// Sandboxes at a time; their slots count from 0.
    pub slots: u32,
    pub pool: Pool,
    pub resolver: Upstreams,
    /// What sandboxes may reach of the ranges that are closed to them.
    pub allow_private: Vec<Ipv4Net>,
    /// What sandboxes may not reach of what is open to them. Goes before `allow_private`.
    pub closed: Vec<Ipv4Net>,
}

impl HostSettings {
    pub(crate) fn ranges(&self, pool: Option<Ipv4Net>) -> Ranges {
        Ranges::new(pool, self.allow_private.clone()).closing(self.closed.clone())
    }
}

/// Where the addresses of sandboxes come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pool {
    /// A free block, chosen once and kept.
    Auto,
    Block(Ipv4Net),
}

/// A block that was chosen, and who has which address of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Block(pub Ipv4Net);

impl Block {
    /// The network itself, the gateway, and the broadcast address of the block are nobody's.
    const TAKEN: u32 = 3;

    pub fn holds(self, slots: u32) -> bool {
        let size = 1_u64 << (32 - u32::from(self.0.prefix_len()));
        u64::from(slots) + u64::from(Self::TAKEN) <= size
    }

    pub fn gateway(self) -> Ipv4Addr {
        self.nth(1)
    }

    pub fn of_slot(self, slot: u32) -> Ipv4Addr {
        self.nth(2 + slot)
    }

    fn nth(self, number: u32) -> Ipv4Addr {
        Ipv4Addr::from(u32::from(self.0.network()).wrapping_add(number))
    }
}
