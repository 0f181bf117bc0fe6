//! The transport protocols of flows.

use std::fmt;

/// The protocol of refused traffic.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Transport {
    Tcp,
    Udp,
    Icmp,
    /// Another protocol, by its IP protocol number.
    Other(u8),
}

impl fmt::Display for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp => f.write_str("tcp"),
            Self::Udp => f.write_str("udp"),
            Self::Icmp => f.write_str("icmp"),
            Self::Other(number) => write!(f, "protocol {number}"),
        }
    }
}
