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
        let scope = u16::from_str_radix(text, 16).ok().map(Self)?;
        // Only the form that is written: `sb1-x` and `sb+001-x` are links of others.
        (scope.to_string() == text).then_some(scope)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_as_they_are_written_are_those_of_a_daemon() {
        for scope in [Scope(0), Scope(1), Scope(0xabc), Scope(u16::MAX)] {
            assert_eq!(Scope::parse(&scope.to_string()), Some(scope));
        }
        for other in ["", "1", "0abc0", "ABCD", "+001", "00g0", "-001", " 001"] {
            assert_eq!(Scope::parse(other), None, "{other:?}");
        }
    }

    #[test]
    fn names_of_links_fit_into_what_the_kernel_allows_and_share_a_prefix() {
        let scope = Scope(0xff);
        assert_eq!((scope.table().as_str(), scope.gateway().as_str()), ("sandboxd_00ff", "sb00ff-gw"));
        for link in [scope.gateway(), scope.link(0), scope.link(99_999_999)] {
            assert!(link.len() <= 15 && link.starts_with(&scope.links()), "{link}");
        }
        assert!(!Scope(0xf).link(1).starts_with(&scope.links()), "another daemon");
    }

    #[test]
    fn the_log_group_of_the_kernel_is_never_used() {
        assert_eq!([0, 1, u16::MAX].map(|scope| Scope(scope).log_group()), [1, 1, u16::MAX]);
    }
}
