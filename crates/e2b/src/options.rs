//! The options of a sandbox that only this API has. They are an extension of its configuration, which the engine does not read.

use admission::error::ApiError;
use api::SandboxConfig;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use store::SandboxRecord;

/// The name of the extension. Records have it.
const OWNER: &str = "e2b";

/// The options of a sandbox that was created through this API.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct E2bOptions {
    /// The template's name as the create named it.
    pub template: String,
    /// Running time in ms that a connect or resume without a timeout grants.
    pub timeout_ms: u64,
    /// Whether its files and processes need the access token.
    pub secure: bool,
    /// Whether its ports are open to everybody; otherwise they need the traffic token.
    pub public_ports: bool,
    /// The `Host` that programs get; `${PORT}` stands for the port.
    pub mask_request_host: Option<String>,
    /// The user of commands and files that name none, as the template says. Otherwise it is `user`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// The working directory of commands that name none, as the template says. Otherwise it is the home of the user.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workdir: Option<String>,
}

impl E2bOptions {
    /// The options of a sandbox; `None` if it was not created through this API. Fails if they are malformed, for example because a newer
    /// version of the service wrote the record.
    pub fn of(record: &SandboxRecord) -> Result<Option<Self>, ApiError> {
        Self::read(&record.config).map_err(|error| {
            ApiError::internal(format!(
                "the E2B options in the record of {} are malformed: {error}",
                record.id
            ))
        })
    }

    fn read(config: &SandboxConfig) -> Result<Option<Self>, serde_json::Error> {
        config.extensions.get(OWNER).filter(|options| options.is_object()).map(Self::deserialize).transpose()
    }

    /// Adds the options to the configuration of a new sandbox.
    pub fn add_to(self, config: &mut SandboxConfig) -> Result<(), serde_json::Error> {
        config.extensions.insert(OWNER.to_owned(), serde_json::to_value(self)?);
        Ok(())
    }
}

/// Whether a sandbox was created through this API. It does not show others.
pub fn has_options(config: &SandboxConfig) -> bool {
    config.extensions.get(OWNER).is_some_and(Value::is_object)
}

#[cfg(test)]
mod tests {
    use api::CreateBody;
    use rules::{ConfigRules, sandbox_config};
    use serde_json::json;

    use super::*;

    fn native() -> SandboxConfig {
        let image = "ubuntu:24.04".to_owned();
        sandbox_config(CreateBody { image, ..CreateBody::default() }, &ConfigRules::default()).unwrap()
    }

    #[test]
    fn options_are_read_back() {
        let mut config = native();
        assert!(!has_options(&config) && E2bOptions::read(&config).unwrap().is_none());
        let user = Some("app".to_owned());
        let options = E2bOptions { template: "base".to_owned(), secure: true, user, ..E2bOptions::default() };
        options.clone().add_to(&mut config).unwrap();
        assert!(has_options(&config));
        assert_eq!(E2bOptions::read(&config).unwrap(), Some(options));
    }

    #[test]
    fn malformed_options_are_an_error() {
        let mut config = native();
        config.extensions.insert(OWNER.to_owned(), json!({ "secure": "yes" }));
        assert!(has_options(&config) && E2bOptions::read(&config).is_err());
    }

    #[test]
    fn options_of_an_earlier_version_are_read() {
        let mut earlier = serde_json::to_value(native()).unwrap();
        earlier["e2b"] = json!({
            "template": "base", "timeoutMs": 300_000, "autoResume": true, "pauseWithoutMemory": true,
            "secure": false, "publicPorts": true, "maskRequestHost": "localhost:${PORT}", "workdir": "/srv",
        });
        let config: SandboxConfig = serde_json::from_value(earlier).unwrap();
        let expected = E2bOptions {
            template: "base".to_owned(),
            timeout_ms: 300_000,
            public_ports: true,
            mask_request_host: Some("localhost:${PORT}".to_owned()),
            workdir: Some("/srv".to_owned()),
            ..E2bOptions::default()
        };
        assert_eq!(E2bOptions::read(&config).unwrap(), Some(expected));
    }
}
