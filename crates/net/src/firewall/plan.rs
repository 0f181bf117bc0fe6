//! The text of the table.

use std::net::Ipv4Addr;

use ipnet::Ipv4Net;
use rules::{Ranges, network_text};

use crate::names::Scope;

/// The table, with names in braces for what differs between hosts.
pub const TEMPLATE: &str = include_str!("table.nft");
const BYTES_PER_MBIT: u64 = 125_000;
/// The burst of a rate limit: what the rate allows in a quarter of a second, and at least a few of TCP's largest packets.
const BURSTS_PER_SECOND: u64 = 4;
const BURST_BYTES_MIN: u64 = 512 << 10;

/// The names and ranges that the table is rendered from.
#[derive(Debug, Clone)]
pub struct TablePlan {
    pub scope: Scope,
    pub gateway: Ipv4Addr,
    pub proxy_port: u16,
    pub ranges: Ranges,
    /// Of each sandbox, in each direction. 0: unlimited.
    pub rate_mbit: u32,
    /// Connections of one sandbox that the kernel tracks.
    pub connections: u32,
}

impl TablePlan {
    /// Rules that limit what one sandbox sends and receives: packets above the rate are dropped, and TCP slows down.
    fn rate_rules(&self) -> [String; 2] {
        if self.rate_mbit == 0 {
            return [const { String::new() }; 2];
        }
        let rate_bytes = u64::from(self.rate_mbit) * BYTES_PER_MBIT;
        let burst_bytes = (rate_bytes / BURSTS_PER_SECOND).max(BURST_BYTES_MIN);
        let limit = format!("limit rate over {rate_bytes} bytes/second burst {burst_bytes} bytes");
        let links = self.scope.links();
        [
            format!("update @sent {{ ip saddr {limit} }} drop"),
            format!("oifname \"{links}*\" update @received {{ ip daddr {limit} }} drop"),
        ]
    }

    /// The table for `nft`.
    pub fn render(&self) -> String {
        let table = self.scope.table();
        let chains: Vec<&str> = TEMPLATE
            .lines()
            .filter_map(|line| line.trim().strip_prefix("chain ")?.strip_suffix(" {"))
            .collect();
        // A chain can be deleted only if no rule jumps to it, so all chains are flushed first.
        let mut forget: String = chains
            .iter()
            .map(|chain| format!("add chain inet {table} {chain}\nflush chain inet {table} {chain}\n"))
            .collect();
        forget.extend(chains.iter().map(|chain| format!("delete chain inet {table} {chain}\n")));
        let here: Vec<Ipv4Net> =
            self.ranges.opened().iter().filter(|range| range.prefix_len() == 32).copied().collect();
        let elements: String = [
            ("closed", Ranges::fixed().collect::<Vec<_>>()),
            ("opened", self.ranges.opened().to_vec()),
            ("opened_here", here),
            ("closed_by_operator", self.ranges.closed_by_operator().to_vec()),
        ]
        .into_iter()
        .filter(|(_, ranges)| !ranges.is_empty())
        .map(|(set, ranges)| {
            let list: Vec<String> = ranges.iter().map(network_text).collect();
            format!("add element inet {table} {set} {{ {} }}\n", list.join(", "))
        })
        .collect();
        let [rate_up, rate_down] = self.rate_rules();
        let pool = self.ranges.pool().map(|pool| pool.to_string()).unwrap_or_default();
        TEMPLATE
            .replace("@ELEMENTS@", &elements)
            .replace("@FORGET@", &forget)
            .replace("@TABLE@", &table)
            .replace("@LINKS@", &format!("{}*", self.scope.links()))
            .replace("@POOL@", &pool)
            .replace("@GATEWAY@", &self.gateway.to_string())
            .replace("@PROXY@", &self.proxy_port.to_string())
            .replace("@CONNECTIONS@", &self.connections.to_string())
            .replace("@RATE_UP@", &rate_up)
            .replace("@RATE_DOWN@", &rate_down)
            .replace("@UDP_CLOSED@", &port_list(&rules::UDP_PORTS_CLOSED))
            .replace("@WEB@", &port_list(&rules::WEB_PORTS))
            .replace("@RESOLVERS@", &port_list(&rules::RESOLVER_PORTS))
            .replace("@GROUP@", &self.scope.log_group().to_string())
    }
}

fn port_list(ports: &[u16]) -> String {
    let ports: Vec<String> = ports.iter().map(u16::to_string).collect();
    ports.join(", ")
}

/// The number of rules in a rendered table: each has a line of its own in a chain.
pub fn count_rules(text: &str) -> usize {
    // The lines before the table itself add sets and delete chains.
    let lines = text.lines().skip_while(|line| !line.starts_with("table ")).skip(1).map(str::trim);
    let is_rule = |line: &&str| {
        !line.is_empty() && !["#", "chain ", "type ", "}"].iter().any(|other| line.starts_with(other))
    };
    lines.filter(is_rule).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(rate_mbit: u32) -> TablePlan {
        let settings = crate::settings::HostSettings {
            data_dir: "/nowhere".into(),
            slots: 1,
            pool: crate::settings::Pool::Auto,
            resolver: egress::Upstreams::System,
            allow_private: vec!["10.1.0.0/16".parse().unwrap(), "10.2.0.5/32".parse().unwrap()],
            closed: vec!["203.0.113.0/24".parse().unwrap()],
            rate_mbit,
            connections: 77,
        };
        TablePlan {
            scope: Scope(0xff),
            gateway: Ipv4Addr::new(10, 64, 0, 1),
            proxy_port: 4321,
            ranges: settings.ranges(Some("10.64.0.0/20".parse().unwrap())),
            rate_mbit,
            connections: 77,
        }
    }

    #[test]
    fn a_rate_is_in_bytes_and_its_burst_is_a_quarter_of_a_second_or_a_few_packets() {
        for (mbit, rate, burst) in
            [(1, 125_000, 524_288), (16, 2_000_000, 524_288), (100, 12_500_000, 3_125_000)]
        {
            let limit = format!("limit rate over {rate} bytes/second burst {burst} bytes");
            let [sent, received] = plan(mbit).rate_rules();
            assert_eq!(sent, format!("update @sent {{ ip saddr {limit} }} drop"));
            assert_eq!(
                received,
                format!("oifname \"sb00ff-*\" update @received {{ ip daddr {limit} }} drop")
            );
        }
        assert_eq!(plan(0).rate_rules(), ["", ""], "0 is no limit");
    }

    #[test]
    fn a_rendered_table_has_no_placeholder_left() {
        let text = plan(8).render();
        // Sets are named with an at sign, in lower case; comments explain placeholders.
        let is_placeholder = |word: &&str| {
            word.len() > 1 && word.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'_')
        };
        let rules = text.lines().filter(|line| !line.trim().starts_with('#'));
        let placeholders: Vec<&str> = rules.flat_map(|line| line.split('@')).filter(is_placeholder).collect();
        assert_eq!(placeholders, [""; 0]);
        for part in ["table inet sandboxd_00ff {", "sb00ff-*", "10.64.0.1", "4321", "10.64.0.0/20"] {
            assert!(text.contains(part), "{part}");
        }
    }

    #[test]
    fn the_ranges_of_the_operator_are_elements() {
        let text = plan(0).render();
        for element in [
            "add element inet sandboxd_00ff opened { 10.1.0.0/16, 10.2.0.5 }",
            // A single address may be one of this host.
            "add element inet sandboxd_00ff opened_here { 10.2.0.5 }",
            "add element inet sandboxd_00ff closed_by_operator { 203.0.113.0/24 }",
        ] {
            assert!(text.lines().any(|line| line == element), "{element} in\n{text}");
        }
        assert!(text.contains("add element inet sandboxd_00ff closed { "));
    }

    #[test]
    fn every_chain_is_flushed_before_any_is_deleted() {
        let text = plan(0).render();
        let lines: Vec<&str> = text.lines().collect();
        let last_flush = lines.iter().rposition(|line| line.starts_with("flush chain ")).unwrap();
        let first_delete = lines.iter().position(|line| line.starts_with("delete chain ")).unwrap();
        assert!(last_flush < first_delete);
        let count = |start: &str| lines.iter().filter(|line| line.starts_with(start)).count();
        assert_eq!(count("flush chain "), count("delete chain "));
    }

    #[test]
    fn each_line_of_a_chain_is_a_rule() {
        let text = "add chain inet t a\ntable inet t {\n  # why\n  chain a {\n    type filter hook input priority 0;\n    \
                    ip saddr 1.2.3.4 drop\n\n    accept\n  }\n}\n";
        assert_eq!(count_rules(text), 2);
        assert_eq!(count_rules(""), 0);
        assert_eq!(count_rules(&plan(8).render()), count_rules(&plan(0).render()) + 2);
    }
}
