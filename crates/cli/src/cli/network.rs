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
        #[arg(value_name = "DOMAIN", required_unless_present = "all")]
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
        #[arg(value_name = "DOMAIN", required = true)]
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

/// Parses the value of `--network`.
pub fn network_choice(text: &str) -> Result<NetworkChoice, String> {
    match text {
        "open" => return Ok(NetworkChoice::Open),
        "none" | "offline" => return Ok(NetworkChoice::Offline),
        _ => {}
    }
    let domains: Vec<String> = text.split(',').map(|domain| domain.trim().to_owned()).collect();
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
        for wrong in ["", "host", "non", "example.com,", "example.com,x"] {
            assert!(network_choice(wrong).is_err(), "{wrong}");
        }
    }
}
