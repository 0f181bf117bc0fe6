//! Which IPv6 addresses are public. Everything outside the range of global addresses is closed, and so is what leads back to an IPv4
//! address that is closed.

use std::net::{Ipv4Addr, Ipv6Addr};

use super::Closed;

/// What an IPv6 address stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    /// Packets reach this IPv4 address: the address is mapped, or a translator or tunnel forwards them.
    Contains(Ipv4Addr),
    Closed(Closed),
    Public,
}

/// Of Amazon's metadata service.
const METADATA: Ipv6Addr = Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254);

/// Which rules apply to an address.
pub fn classify(address: Ipv6Addr) -> Class {
    if address == METADATA {
        return Class::Closed(Closed::Metadata);
    }
    match address.segments() {
        [0, 0, 0, 0, 0, 0, 0, 0] => Class::Closed(Closed::ThisNetwork),
        [0, 0, 0, 0, 0, 0, 0, 1] => Class::Closed(Closed::Loopback),
        // IPv4-mapped, NAT64, and 6to4.
        [0, 0, 0, 0, 0, 0xffff, high, low] | [0x64, 0xff9b, 0, 0, 0, 0, high, low] => contains(high, low),
        [0x2002, high, low, ..] => contains(high, low),
        // For translators within a network.
        [0x64, 0xff9b, 1, ..] => Class::Closed(Closed::Private),
        [first, ..] if first & 0xffc0 == 0xfe80 => Class::Closed(Closed::LinkLocal),
        [first, ..] if first & 0xff00 == 0xff00 => Class::Closed(Closed::Multicast),
        // Unique local addresses, and the former site-local ones.
        [first, ..] if first & 0xfe00 == 0xfc00 || first & 0xffc0 == 0xfec0 => Class::Closed(Closed::Private),
        // Protocol assignments such as Teredo, which contains IPv4 addresses.
        [0x2001, second, ..] if second < 0x200 => Class::Closed(Closed::Reserved),
        [first, ..] if first & 0xe000 == 0x2000 => Class::Public,
        _ => Class::Closed(Closed::Reserved),
    }
}

fn contains(high: u16, low: u16) -> Class {
    Class::Contains(Ipv4Addr::from((u32::from(high) << 16) | u32::from(low)))
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::*;
    use crate::{AddressOwner, Ranges};

    #[test]
    fn only_global_addresses_that_contain_no_closed_one_are_public() {
        let ranges = Ranges::new(Some("10.200.0.0/16".parse().unwrap()), Vec::new());
        let closed = |text: &str| ranges.closed_of_any_family(text.parse().unwrap(), AddressOwner::Other);
        for (text, why) in [
            ("::", Closed::ThisNetwork),
            ("::1", Closed::Loopback),
            ("::127.0.0.1", Closed::Reserved),
            ("::ffff:127.0.0.1", Closed::Loopback),
            ("::ffff:169.254.169.254", Closed::Metadata),
            ("::ffff:10.1.2.3", Closed::Private),
            ("::ffff:10.200.0.1", Closed::Sandboxes),
            ("64:ff9b::192.168.1.1", Closed::Private),
            ("64:ff9b:1::8.8.8.8", Closed::Private),
            ("2002:7f00:1::1", Closed::Loopback),
            ("2002:a9fe:a9fe::", Closed::Metadata),
            ("2001:0:4136:e378:8000:63bf:3fff:fdd2", Closed::Reserved),
            ("fd00:ec2::254", Closed::Metadata),
            ("fd12:3456::1", Closed::Private),
            ("fec0::1", Closed::Private),
            ("fe80::1", Closed::LinkLocal),
            ("febf::1", Closed::LinkLocal),
            ("ff02::1", Closed::Multicast),
            ("100::1", Closed::Reserved),
            ("4000::1", Closed::Reserved),
            ("127.0.0.1", Closed::Loopback),
            ("0.0.0.0", Closed::ThisNetwork),
            ("168.63.129.16", Closed::Metadata),
        ] {
            assert_eq!(closed(text), Some(why), "{text}");
        }
        for text in
            ["2606:4700::1111", "2001:4860:4860::8888", "64:ff9b::8.8.8.8", "::ffff:8.8.8.8", "8.8.8.8"]
        {
            assert_eq!(closed(text), None, "{text}");
            let address: IpAddr = text.parse().unwrap();
            assert_eq!(
                ranges.closed_of_any_family(address, AddressOwner::Host),
                Some(Closed::Host),
                "{text}"
            );
        }
    }
}
