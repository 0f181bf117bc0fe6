//! The bodies of create (section 4.1) and execute (section 4.7), and of a change of the network policy.

use api::SandboxConfig;
use rules::{
    ConfigError, ConfigRules, CreateInput, ExecuteInput, ExecuteRefusal, Integer, NetworkChange, NetworkInput,
};

use crate::Refusal;
use crate::fields::Fields;

const CREATE: &[&str] =
    &["image", "resources", "env", "workdir", "timeoutMs", "idleTimeoutMs", "metadata", "network"];
const RESOURCES: &[&str] = &["cpu", "memoryMb", "diskMb"];
const NETWORK: &[&str] = &["egress", "ingress"];
const EGRESS: &[&str] = &["allow", "default"];
const INGRESS: &[&str] = &["allowPorts"];
pub const EXECUTE: &[&str] = &["command", "cwd", "env", "timeoutMs", "stdin", "autoResume"];

/// Reads a body of create and puts the defaults in.
pub fn create(body: &[u8], rules: &ConfigRules) -> Result<SandboxConfig, Refusal> {
    let fields = Fields::of_body(body, CREATE)?;
    let mut input = CreateInput {
        image: fields.required_text("image")?,
        env: fields.map("env")?,
        workdir: fields.text("workdir")?,
        timeout_ms: fields.integer("timeoutMs")?,
        idle_timeout_ms: fields.integer("idleTimeoutMs")?,
        metadata: fields.map("metadata")?,
        ..CreateInput::default()
    };
    if let Some(resources) = fields.object("resources", RESOURCES)? {
        input.cpu = resources.integer("cpu")?;
        input.memory_mb = resources.integer("memoryMb")?;
        input.disk_mb = resources.integer("diskMb")?;
    }
    if let Some(network) = fields.object("network", NETWORK)? {
        input.network = policy(&network)?;
    }
    rules::sandbox_config(input, rules).map_err(|error| readable(error).into())
}

/// Reads a body that changes a network policy: what stands at `network` in a body of create.
pub fn network(body: &[u8], rules: &ConfigRules) -> Result<NetworkChange, Refusal> {
    let input = policy(&Fields::of_body(body, NETWORK)?)?;
    rules::network_change(input, rules).map_err(|error| readable(error).into())
}

fn policy(network: &Fields<'_>) -> Result<NetworkInput, Refusal> {
    let mut input = NetworkInput::default();
    if let Some(egress) = network.object("egress", EGRESS)? {
        input.egress_allow = egress.texts("allow")?;
        input.egress_default = egress.text("default")?;
    }
    if let Some(ingress) = network.object("ingress", INGRESS)? {
        input.ingress_allow_ports = ingress.integers("allowPorts")?;
    }
    Ok(input)
}

/// What every body of a command has.
pub fn execute_input(fields: &Fields<'_>, command: String) -> Result<ExecuteInput, Refusal> {
    Ok(ExecuteInput {
        command,
        cwd: fields.text("cwd")?,
        env: fields.map("env")?,
        timeout_ms: fields.integer("timeoutMs")?,
        stdin: fields.text("stdin")?,
        auto_resume: fields.boolean("autoResume")?,
    })
}

pub fn refused(refusal: ExecuteRefusal) -> Refusal {
    match refusal {
        ExecuteRefusal::CommandTooLong { bytes, most } => Refusal::CommandTooLong { bytes, most },
        ExecuteRefusal::Invalid(error) => readable(error).into(),
    }
}

/// A number past [`Integer`] was read as the nearest in it, which is not what the client wrote.
pub(crate) fn readable(error: ConfigError) -> ConfigError {
    let got = match error.got.parse::<Integer>() {
        Ok(Integer::MAX) => "above 10^38".to_owned(),
        Ok(Integer::MIN) => "below -10^38".to_owned(),
        _ => return error,
    };
    ConfigError { got, ..error }
}
