//! The choice of a block.

use super::*;

fn net(text: &str) -> Ipv4Net {
    text.parse().unwrap()
}

fn route(text: &str) -> RouteEntry {
    RouteEntry { range: net(text), link: None, is_ours: false }
}

#[test]
fn a_route_overlaps_from_either_side_and_the_default_route_does_not() {
    let block = net("10.64.0.0/18");
    for around in ["10.0.0.0/8", "10.64.0.0/18", "10.64.63.255/32", "10.64.1.0/24"] {
        assert_eq!(
            overlapping(block, &[route("0.0.0.0/0"), route(around)]),
            Some(&route(around)),
            "{around}"
        );
    }
    for beside in ["10.64.64.0/18", "10.63.255.255/32", "192.0.2.0/24"] {
        assert_eq!(overlapping(block, &[route("0.0.0.0/0"), route(beside)]), None, "{beside}");
    }
}

#[test]
fn candidates_are_all_blocks_of_the_range() {
    let all: Vec<Ipv4Net> = candidates(77, 500).collect();
    let different: std::collections::HashSet<_> = all.iter().collect();
    assert_eq!((all.len(), different.len()), (256, 256));
    assert!(all.iter().all(|block| net("10.64.0.0/10").contains(block)));
    assert_ne!(candidates(1, 500).next(), candidates(2, 500).next());
}

#[test]
fn more_sandboxes_get_larger_blocks() {
    assert_eq!(candidates(0, 16_381).next().unwrap().prefix_len(), 18);
    assert_eq!(candidates(0, 16_382).next().unwrap().prefix_len(), 17);
    assert_eq!(candidates(0, 100_000).next().unwrap().prefix_len(), 15);
}

#[test]
fn a_block_excludes_its_ends_and_the_gateway() {
    let block = Block(net("198.51.100.0/29"));
    assert_eq!(block.gateway(), Ipv4Addr::new(198, 51, 100, 1));
    assert_eq!(block.of_slot(0), Ipv4Addr::new(198, 51, 100, 2));
    assert!(block.holds(5));
    assert!(!block.holds(6));
}
