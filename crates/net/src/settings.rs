//! The operator's settings of the network.

use std::net::Ipv4Addr;
use std::path::PathBuf;

use egress::Upstreams;
use ipnet::Ipv4Net;
use rules::Ranges;

/// The settings of [`crate::HostNetwork`].
#[derive(Debug, Clone)]
pub struct HostSettings {
    /// The daemon's data directory. Each daemon on a host has its own.
    pub data_dir: PathBuf,
    /// The maximum number of sandboxes; their slots count from 0.
    pub slots: u32,
    pub pool: Pool,
    pub resolver: Upstreams,
    /// Open parts of the ranges that are closed to sandboxes.
    pub allow_private: Vec<Ipv4Net>,
    /// Further closed ranges. Take precedence over `allow_private`.
    pub closed: Vec<Ipv4Net>,
    /// The rate of each sandbox, in each direction. 0: unlimited.
    pub rate_mbit: u32,
    /// Connections of one sandbox that the kernel tracks.
    pub connections: u32,
}

impl HostSettings {
    pub(crate) fn ranges(&self, pool: Option<Ipv4Net>) -> Ranges {
        Ranges::new(pool, self.allow_private.clone()).closing(self.closed.clone())
    }
}

/// Where the addresses of sandboxes come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pool {
    /// A free block, chosen at the first start and kept.
    Auto,
    Block(Ipv4Net),
}

/// The block of addresses in use, and which address belongs to whom.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Block(pub Ipv4Net);

impl Block {
    /// The network address, the gateway and the broadcast address belong to no sandbox.
    const RESERVED: u32 = 3;

    /// Whether there is an address for each slot.
    pub fn holds(self, slots: u32) -> bool {
        let size = 1_u64 << (32 - u32::from(self.0.prefix_len()));
        u64::from(slots) + u64::from(Self::RESERVED) <= size
    }

    /// The address of the host.
    pub fn gateway(self) -> Ipv4Addr {
        self.nth(1)
    }

    /// The address of the sandbox in a slot.
    pub fn of_slot(self, slot: u32) -> Ipv4Addr {
        self.nth(2 + slot)
    }

    fn nth(self, number: u32) -> Ipv4Addr {
        Ipv4Addr::from(u32::from(self.0.network()).wrapping_add(number))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_holds_as_many_sandboxes_as_it_has_addresses_beside_its_own() {
        let block = Block("10.64.0.0/20".parse().unwrap());
        assert!(block.holds(4096 - Block::RESERVED) && !block.holds(4096 - Block::RESERVED + 1));
        let last = block.of_slot(4096 - Block::RESERVED - 1);
        assert!(block.0.contains(&last) && last != block.0.broadcast());
        assert_ne!(block.of_slot(0), block.gateway());
    }
}
