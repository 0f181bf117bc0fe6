//! Checks of the network of sandboxes.

use driver_oci::{Flavour, Settings};
use net::FactState;

use super::Finding;
use crate::app::{self, network};
use crate::config::Config;
use crate::error::chain_text;

const WHAT: &str = "network";

pub fn all(config: &Config) -> Vec<Finding> {
    let flavour = app::runtime(config).map_or(Flavour::Native, |path| Settings::flavour_of(&path));
    if let Some(reason) = network::why_none(config, flavour) {
        let found = format!("sandboxes have only a loopback interface: {reason}");
        return vec![match flavour {
            Flavour::Gvisor => {
                Finding::fair(WHAT, found, "set runtime.path to runc or crun to give sandboxes a network")
            }
            Flavour::Native => Finding::good(WHAT, found),
        }];
    }
    let settings = match network::settings(config, &app::server_scope(config)) {
        Ok(settings) => settings,
        Err(error) => {
            return vec![Finding::bad(
                WHAT,
                chain_text(&*error),
                "correct the table [egress] of the configuration",
            )];
        }
    };
    net::facts(&settings).into_iter().map(finding).collect()
}

fn finding(fact: net::Fact) -> Finding {
    let remedy = fact.remedy.unwrap_or_default();
    match fact.state {
        FactState::Good => Finding::good(fact.name, fact.message),
        FactState::Warning => Finding::fair(fact.name, fact.message, remedy),
        FactState::Bad => Finding::bad(fact.name, fact.message, remedy),
    }
}
