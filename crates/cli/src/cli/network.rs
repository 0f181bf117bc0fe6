//! Arguments of `sbx network`, and the network of a new sandbox.

use clap::Subcommand;

/// The commands of `sbx network`.
#[derive(Debug, Subcommand)]
pub enum NetworkCommand {
    /// Show the network policy and the traffic of a sandbox
    Show {
        /// Id or name of the sandbox
        #[arg(value_name = "SANDBOX")]
        id: String,
    },
    /// Allow connections to domains and networks, besides those that are allowed
    Allow {
        /// Id or name of the sandbox
        #[arg(value_name = "SANDBOX")]
        id: String,
        /// Domains, such as example.com or *.example.org, and IPv4 networks, such as 192.0.2.0/24
        #[arg(value_name = "DOMAIN", required_unless_present = "all", value_parser = target)]
        targets: Vec<String>,
        /// Allow these and nothing else
        #[arg(long)]
        only: bool,
        /// Allow connections to all public addresses
        #[arg(long, conflicts_with_all = ["targets", "only"])]
        all: bool,
    },
    /// Deny connections to domains and networks that are allowed
    Deny {
        /// Id or name of the sandbox
        #[arg(value_name = "SANDBOX")]
        id: String,
        /// Domains and IPv4 networks
        #[arg(value_name = "DOMAIN", required = true, value_parser = target)]
        targets: Vec<String>,
    },
    /// Deny all outgoing connections
    Offline {
        /// Id or name of the sandbox
        #[arg(value_name = "SANDBOX")]
        id: String,
    },
}

/// The network of a new sandbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NetworkChoice {
    /// All public addresses.
    Open,
    /// No outgoing connections.
    Offline,
    /// Only these domains.
    Only(Vec<String>),
}

/// Parses a domain or a network. The host of a URL is named, because a policy has no other parts of it; the service checks the rest.
pub fn target(text: &str) -> Result<String, String> {
    match host_of(text) {
        Some(host) => Err(format!("a policy names hosts, without scheme, port and path: write {host}")),
        None => Ok(text.to_owned()),
    }
}

/// The host of a URL, with or without its scheme. `None` for what is no URL, such as a domain or an IPv4 network.
fn host_of(text: &str) -> Option<&str> {
    let rest = text.split_once("://").map_or(text, |(_, rest)| rest);
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let host = authority.rsplit('@').next().unwrap_or_default();
    let host = host.split_once(':').map_or(host, |(host, port)| {
        // An IPv6 address has several colons.
        if port.contains(':') { authority } else { host }
    });
    let is_network = rest.len() == text.len() && host.parse::<std::net::Ipv4Addr>().is_ok();
    (host != text && host.contains('.') && !is_network).then_some(host)
}

/// Parses the value of `--network`.
pub fn network_choice(text: &str) -> Result<NetworkChoice, String> {
    match text {
        "open" => return Ok(NetworkChoice::Open),
        "none" | "offline" => return Ok(NetworkChoice::Offline),
        _ => {}
    }
    let domains = text.split(',').map(|domain| target(domain.trim())).collect::<Result<Vec<_>, _>>()?;
    // A typing error such as `non` must not become a domain: domains have a dot.
    if domains.iter().all(|domain| domain.contains('.')) {
        Ok(NetworkChoice::Only(domains))
    } else {
        Err("expected open, none, or domains separated by commas, such as example.com,*.example.org"
            .to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_is_open_none_or_a_list_of_domains() {
        assert_eq!(network_choice("open"), Ok(NetworkChoice::Open));
        for none in ["none", "offline"] {
            assert_eq!(network_choice(none), Ok(NetworkChoice::Offline));
        }
        let domains = vec!["example.com".to_owned(), "*.example.org".to_owned()];
        assert_eq!(network_choice("example.com, *.example.org"), Ok(NetworkChoice::Only(domains)));
        for wrong in ["", "host", "non", "example.com,", "example.com,x", "https://example.com"] {
            assert!(network_choice(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_host_of_a_url_is_named() {
        for url in
            ["https://example.com/", "http://a@example.com:80/x?y", "example.com/path", "example.com:443"]
        {
            assert!(target(url).unwrap_err().ends_with("write example.com"), "{url}");
        }
        for other in [
            "example.com",
            "*.example.org",
            "192.0.2.0/24",
            "192.0.2.1",
            "192.0.2.0/99",
            "2001:db8::1/32",
            "localhost/x",
        ] {
            assert_eq!(target(other).as_deref(), Ok(other), "{other}");
        }
    }
}
