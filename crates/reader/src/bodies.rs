//! Request bodies: the type of each, and the order that results from its check.

use api::bounds::EVENT_DATA_BYTES;
use api::{
    CodeBody, CodeContextBody, CodeRequest, CommandBody, CreateBody, CreateNetwork, DetachedBody, EventBody,
    EventsBody, ExecuteBody, ExecuteRequest, ExposeBody, ForkBody, PauseBody, ResumeBody, RollbackBody,
    SandboxConfig, SignalBody, SnapshotBody, TemplateBody, TerminalBody, TimeoutBody, TokenBody,
};
use rules::{
    ConfigError, ConfigRules, DetachedCommand, ExecuteRefusal, ExecuteRules, ExposeRequest, ForkRequest,
    Integer, NetworkChange, SnapshotRequest, TemplateRequest, alternatives, quoted,
};

use serde::de::DeserializeOwned;

use crate::{Refusal, strict};

/// The body of an endpoint. Clients serialize the same type, and the OpenAPI document describes it.
pub trait RequestBody: Sized {
    /// Whether the body may be missing. Then one that is not declared as JSON is ignored.
    const OPTIONAL: bool = false;
    /// The rules for its values.
    type Rules;
    /// The checked content, with defaults filled in.
    type Validated;

    fn read(body: &[u8], rules: &Self::Rules) -> Result<Self::Validated, Refusal>;
}

impl RequestBody for CreateBody {
    type Rules = ConfigRules;
    type Validated = SandboxConfig;

    fn read(body: &[u8], rules: &ConfigRules) -> Result<SandboxConfig, Refusal> {
        rules::sandbox_config(strict::body(body)?, rules).map_err(|error| readable(error).into())
    }
}

/// A change of a network policy: the type of the field `network` in a create request.
impl RequestBody for CreateNetwork {
    type Rules = ConfigRules;
    type Validated = NetworkChange;

    fn read(body: &[u8], rules: &ConfigRules) -> Result<NetworkChange, Refusal> {
        rules::network_change(strict::body(body)?, rules).map_err(|error| readable(error).into())
    }
}

/// A new timeout in ms.
impl RequestBody for TimeoutBody {
    type Rules = ConfigRules;
    type Validated = u64;

    fn read(body: &[u8], rules: &ConfigRules) -> Result<u64, Refusal> {
        rules::new_timeout(strict::body(body)?, rules).map_err(|error| readable(error).into())
    }
}

/// A checked command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ValidatedCommand {
    Attached(ExecuteRequest),
    Detached(DetachedCommand),
}

impl RequestBody for CommandBody {
    type Rules = ExecuteRules;
    type Validated = ValidatedCommand;

    /// A detached command has fields that an attached one ignores, so the body is parsed again.
    fn read(body: &[u8], rules: &ExecuteRules) -> Result<ValidatedCommand, Refusal> {
        let command: ExecuteBody = strict::body(body)?;
        if command.detached == Some(true) {
            let command: DetachedBody = strict::body(body)?;
            return rules::detached_command(command, rules).map(ValidatedCommand::Detached).map_err(refused);
        }
        rules::execute_request(command, rules).map(ValidatedCommand::Attached).map_err(refused)
    }
}

impl RequestBody for CodeBody {
    type Rules = ExecuteRules;
    type Validated = CodeRequest;

    fn read(body: &[u8], rules: &ExecuteRules) -> Result<CodeRequest, Refusal> {
        rules::code_request(strict::body(body)?, rules).map_err(|error| readable(error).into())
    }
}

impl RequestBody for CodeContextBody {
    type Rules = ();
    type Validated = Self;

    fn read(body: &[u8], (): &()) -> Result<Self, Refusal> {
        rules::code_context(strict::body(body)?).map_err(|error| readable(error).into())
    }
}

impl RequestBody for TerminalBody {
    type Rules = ExecuteRules;
    type Validated = DetachedCommand;

    fn read(body: &[u8], rules: &ExecuteRules) -> Result<DetachedCommand, Refusal> {
        rules::terminal_command(strict::body(body)?, rules).map_err(refused)
    }
}

impl RequestBody for SignalBody {
    type Rules = ();
    /// The signal's number.
    type Validated = i32;

    fn read(body: &[u8], (): &()) -> Result<i32, Refusal> {
        let Self { signal } = strict::body(body)?;
        signal_number(&signal).ok_or_else(|| {
            let names: Vec<String> = api::SIGNALS.iter().map(|(name, _)| (*name).to_owned()).collect();
            let allowed = alternatives(&names);
            ConfigError { field: "signal".to_owned(), got: quoted(&signal), allowed }.into()
        })
    }
}

impl RequestBody for ExposeBody {
    type Rules = ();
    type Validated = ExposeRequest;

    fn read(body: &[u8], (): &()) -> Result<ExposeRequest, Refusal> {
        rules::expose_request(&strict::body(body)?).map_err(|error| readable(error).into())
    }
}

impl RequestBody for TokenBody {
    type Rules = ();
    /// The lifetime in milliseconds.
    type Validated = u64;

    fn read(body: &[u8], (): &()) -> Result<u64, Refusal> {
        rules::token_lifetime_ms(&strict::body(body)?).map_err(|error| readable(error).into())
    }
}

impl RequestBody for SnapshotBody {
    type Rules = ConfigRules;
    type Validated = SnapshotRequest;

    fn read(body: &[u8], rules: &ConfigRules) -> Result<SnapshotRequest, Refusal> {
        rules::snapshot_request(strict::body(body)?, rules).map_err(|error| readable(error).into())
    }
}

impl RequestBody for TemplateBody {
    type Rules = ConfigRules;
    type Validated = TemplateRequest;

    fn read(body: &[u8], rules: &ConfigRules) -> Result<TemplateRequest, Refusal> {
        rules::template_request(strict::body(body)?, rules).map_err(|error| readable(error).into())
    }
}

impl RequestBody for RollbackBody {
    type Rules = ();
    /// Not checked: a text that is not an id names no snapshot.
    type Validated = Self;

    fn read(body: &[u8], (): &()) -> Result<Self, Refusal> {
        strict::body(body)
    }
}

impl RequestBody for PauseBody {
    const OPTIONAL: bool = true;
    type Rules = ();
    type Validated = Self;

    fn read(body: &[u8], (): &()) -> Result<Self, Refusal> {
        optional_body(body)
    }
}

impl RequestBody for ResumeBody {
    const OPTIONAL: bool = true;
    type Rules = ();
    type Validated = Self;

    fn read(body: &[u8], (): &()) -> Result<Self, Refusal> {
        optional_body(body)
    }
}

fn optional_body<T: DeserializeOwned + Default>(body: &[u8]) -> Result<T, Refusal> {
    if body.trim_ascii().is_empty() { Ok(T::default()) } else { strict::body(body) }
}

impl RequestBody for ForkBody {
    type Rules = ConfigRules;
    type Validated = ForkRequest;

    fn read(body: &[u8], rules: &ConfigRules) -> Result<ForkRequest, Refusal> {
        rules::fork_request(strict::body(body)?, rules).map_err(|error| readable(error).into())
    }
}

impl RequestBody for EventsBody {
    type Rules = ();
    type Validated = Vec<EventBody>;

    fn read(body: &[u8], (): &()) -> Result<Vec<EventBody>, Refusal> {
        let (events, is_array) = strict::one_or_more::<EventBody>(body, Self::MAX)?;
        for (index, event) in events.iter().enumerate() {
            let bytes = serde_json::to_string(&event.data).map_or(usize::MAX, |text| text.len());
            if bytes > EVENT_DATA_BYTES {
                let field = if is_array { format!("[{index}].data") } else { "data".to_owned() };
                let got = format!("{bytes} bytes of JSON");
                let allowed = format!("at most {EVENT_DATA_BYTES} bytes");
                return Err(ConfigError { field, got, allowed }.into());
            }
        }
        Ok(events)
    }
}

/// The number of a signal by its name.
pub fn signal_number(name: &str) -> Option<i32> {
    api::SIGNALS.iter().find(|(known, _)| *known == name).map(|(_, number)| i32::from(*number))
}

fn refused(refusal: ExecuteRefusal) -> Refusal {
    match refusal {
        ExecuteRefusal::CommandTooLong { bytes, most } => Refusal::CommandTooLong { bytes, most },
        ExecuteRefusal::Invalid(error) => readable(error).into(),
    }
}

/// A number outside [`Integer`] was replaced by its nearest bound: the message must not show that.
fn readable(error: ConfigError) -> ConfigError {
    let got = match error.got.parse::<Integer>() {
        Ok(Integer::MAX) => "above 10^38".to_owned(),
        Ok(Integer::MIN) => "below -10^38".to_owned(),
        _ => return error,
    };
    ConfigError { got, ..error }
}
