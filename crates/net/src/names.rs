//! What this daemon's things in the kernel are called. Several daemons can live on one host: each has a scope of its own.

use std::fmt;

/// Sixteen bits that tell the daemons of a host apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Scope(pub u16);

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04x}", self.0)
    }
}

impl Scope {
    pub fn parse(text: &str) -> Option<Self> {
        u16::from_str_radix(text, 16).ok().map(Self)
    }

    /// The nft table, of family inet.
    pub fn table(self) -> String {
        format!("sandboxd_{self}")
    }

    /// What the names of all links begin with.
    pub fn links(self) -> String {
        format!("sb{self}-")
    }

    /// The link that bears the gateway's address.
    pub fn gateway(self) -> String {
        format!("sb{self}-gw")
    }

    /// The host's end of a sandbox's link: 15 bytes at most, as the kernel has it.
    pub fn link(self, slot: u32) -> String {
        format!("sb{self}-{slot}")
    }

    /// The group that the kernel logs to. 0 is the kernel's own and everybody's.
    pub fn log_group(self) -> u16 {
        self.0.max(1)
    }
}
