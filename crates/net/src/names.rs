//! The names of this daemon's objects in the kernel. Several daemons can share a host: each has a scope of its own.

use std::fmt;

/// Sixteen bits that distinguish the daemons of a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Scope(pub u16);

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04x}", self.0)
    }
}

impl Scope {
    /// The scope of a name that this module made; `None` for any other.
    pub fn parse(text: &str) -> Option<Self> {
        u16::from_str_radix(text, 16).ok().map(Self)
    }

    /// The nft table, of family inet.
    pub fn table(self) -> String {
        format!("sandboxd_{self}")
    }

    /// The prefix of the names of all links.
    pub fn links(self) -> String {
        format!("sb{self}-")
    }

    /// The link with the gateway's address.
    pub fn gateway(self) -> String {
        format!("sb{self}-gw")
    }

    /// The host's end of a sandbox's link. The kernel allows 15 bytes.
    pub fn link(self, slot: u32) -> String {
        format!("sb{self}-{slot}")
    }

    /// The kernel's log group. Group 0 is the kernel's own.
    pub fn log_group(self) -> u16 {
        self.0.max(1)
    }
}
