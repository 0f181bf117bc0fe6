//! Checks of the network of sandboxes.

use base::chain_text;
use net::FactState;

use super::Finding;
use crate::app::{self, network};
use crate::config::Config;

const WHAT: &str = "network";

pub fn all(config: &Config) -> Vec<Finding> {
    if let Some(reason) = network::why_none(config) {
        return vec![Finding::good(WHAT, format!("sandboxes have only a loopback interface: {reason}"))];
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
