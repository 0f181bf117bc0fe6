//! Configurations in records, those of earlier versions included.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value};

use super::{ProcessesAtTimeout, SandboxConfig};

impl Serialize for SandboxConfig {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        Self::serialize(self, serializer)
    }
}

impl<'de> Deserialize<'de> for SandboxConfig {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut config = Self::deserialize(deserializer)?;
        if ends_processes(&mut config) {
            config.processes_at_timeout = ProcessesAtTimeout::Ended;
        }
        Ok(config)
    }
}

/// Takes what earlier versions had among the options of the E2B-compatible API.
fn ends_processes(config: &mut SandboxConfig) -> bool {
    let options = config.extensions.get_mut("e2b").and_then(Value::as_object_mut);
    let option = options.and_then(|options: &mut Map<String, Value>| options.remove("pauseWithoutMemory"));
    option == Some(Value::Bool(true))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// As the version before extensions wrote it.
    fn earlier() -> Value {
        json!({
            "image": "code-interpreter",
            "resources": {"cpu": 2, "memoryMb": 4096, "diskMb": 10240},
            "env": {"A": "1"},
            "workdir": "/workspace",
            "timeoutMs": 300_000,
            "idleTimeoutMs": 0,
            "onTimeout": "pause",
            "autoResume": false,
            "metadata": {"job": "7"},
            "network": {"egress": {"allow": [], "default": "allow"}},
            "isolation": "container",
            "defaultUser": true,
            "e2b": {
                "template": "base", "timeoutMs": 300_000, "autoResume": false, "pauseWithoutMemory": true,
                "secure": true, "publicPorts": false, "maskRequestHost": null, "workdir": "/srv",
            },
        })
    }

    #[test]
    fn options_of_an_earlier_version_become_an_extension_and_the_choice_about_processes() {
        let config: SandboxConfig = serde_json::from_value(earlier()).unwrap();
        assert_eq!(config.processes_at_timeout, ProcessesAtTimeout::Ended);
        assert_eq!((config.timeout_ms, config.default_user), (300_000, true));
        let mut options = earlier()["e2b"].clone();
        options.as_object_mut().unwrap().remove("pauseWithoutMemory");
        assert_eq!(config.extensions, [("e2b".to_owned(), options.clone())].into());

        let mut expected = earlier();
        expected["e2b"] = options;
        expected["processesAtTimeout"] = json!("ended");
        let stored = serde_json::to_value(&config).unwrap();
        assert_eq!(stored, expected);
        assert_eq!(serde_json::from_value::<SandboxConfig>(stored).unwrap(), config);
    }

    #[test]
    fn a_record_without_extensions_is_as_before() {
        let mut earlier = earlier();
        earlier.as_object_mut().unwrap().remove("e2b");
        let config: SandboxConfig = serde_json::from_value(earlier.clone()).unwrap();
        assert_eq!(config.processes_at_timeout, ProcessesAtTimeout::Kept);
        assert!(config.extensions.is_empty());
        assert_eq!(serde_json::to_value(&config).unwrap(), earlier);
    }
}
