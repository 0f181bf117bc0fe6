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

use crate::strict::OneOrMore;
use crate::{IgnoredFields, Parsed, RequestRefusal, strict};

/// The body of an endpoint. Clients serialize the same type, and the OpenAPI document describes it.
pub trait RequestBody: Sized {
    /// Whether the body may be missing. Then one that is not declared as JSON is ignored.
    const OPTIONAL: bool = false;
    /// The fields as they were sent, with the right types.
    type Content;
    /// The rules for its values.
    type Rules;
    /// The checked content, with defaults filled in.
    type Validated;

    /// Parses the fields. What a body has beside them does not depend on rules, so this part can be repeated at any time.
    fn parse(body: &[u8]) -> Result<Parsed<Self::Content>, RequestRefusal>;

    /// Checks the values.
    fn check(content: Self::Content, rules: &Self::Rules) -> Result<Self::Validated, RequestRefusal>;

    /// Parses and checks the body, for a caller that lists no ignored fields.
    fn read(body: &[u8], rules: &Self::Rules) -> Result<Self::Validated, RequestRefusal> {
        Self::check(Self::parse(body)?.content, rules)
    }
}

impl RequestBody for CreateBody {
    type Content = Self;
    type Rules = ConfigRules;
    type Validated = SandboxConfig;

    fn parse(body: &[u8]) -> Result<Parsed<Self>, RequestRefusal> {
        strict::body(body)
    }

    fn check(content: Self, rules: &ConfigRules) -> Result<SandboxConfig, RequestRefusal> {
        rules::sandbox_config(content, rules).map_err(|error| readable(error).into())
    }
}

/// A change of a network policy: the type of the field `network` in a create request.
impl RequestBody for CreateNetwork {
    type Content = Self;
    type Rules = ConfigRules;
    type Validated = NetworkChange;

    fn parse(body: &[u8]) -> Result<Parsed<Self>, RequestRefusal> {
        strict::body(body)
    }

    fn check(content: Self, rules: &ConfigRules) -> Result<NetworkChange, RequestRefusal> {
        rules::network_change(content, rules).map_err(|error| readable(error).into())
    }
}

/// A new timeout in ms.
impl RequestBody for TimeoutBody {
    type Content = Self;
    type Rules = ConfigRules;
    type Validated = u64;

    fn parse(body: &[u8]) -> Result<Parsed<Self>, RequestRefusal> {
        strict::body(body)
    }

    fn check(content: Self, rules: &ConfigRules) -> Result<u64, RequestRefusal> {
        rules::new_timeout(content, rules).map_err(|error| readable(error).into())
    }
}

/// A checked command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ValidatedCommand {
    Attached(ExecuteRequest),
    Detached(DetachedCommand),
}

impl RequestBody for CommandBody {
    type Content = Self;
    type Rules = ExecuteRules;
    type Validated = ValidatedCommand;

    /// A detached command has fields that an attached one ignores, so the body is parsed again.
    fn parse(body: &[u8]) -> Result<Parsed<Self>, RequestRefusal> {
        let attached: Parsed<ExecuteBody> = strict::body(body)?;
        if attached.content.detached != Some(true) {
            return Ok(attached.map(Self::Attached));
        }
        drop(attached);
        let detached: Parsed<DetachedBody> = strict::body(body)?;
        Ok(detached.map(Self::Detached))
    }

    fn check(content: Self, rules: &ExecuteRules) -> Result<ValidatedCommand, RequestRefusal> {
        let checked = match content {
            Self::Attached(command) => rules::execute_request(command, rules).map(ValidatedCommand::Attached),
            Self::Detached(command) => {
                rules::detached_command(command, rules).map(ValidatedCommand::Detached)
            }
        };
        checked.map_err(refused)
    }
}

impl RequestBody for CodeBody {
    type Content = Self;
    type Rules = ExecuteRules;
    type Validated = CodeRequest;

    fn parse(body: &[u8]) -> Result<Parsed<Self>, RequestRefusal> {
        strict::body(body)
    }

    fn check(content: Self, rules: &ExecuteRules) -> Result<CodeRequest, RequestRefusal> {
        rules::code_request(content, rules).map_err(|error| readable(error).into())
    }
}

impl RequestBody for CodeContextBody {
    type Content = Self;
    type Rules = ();
    type Validated = Self;

    fn parse(body: &[u8]) -> Result<Parsed<Self>, RequestRefusal> {
        strict::body(body)
    }

    fn check(content: Self, (): &()) -> Result<Self, RequestRefusal> {
        rules::code_context(content).map_err(|error| readable(error).into())
    }
}

impl RequestBody for TerminalBody {
    type Content = Self;
    type Rules = ExecuteRules;
    type Validated = DetachedCommand;

    fn parse(body: &[u8]) -> Result<Parsed<Self>, RequestRefusal> {
        strict::body(body)
    }

    fn check(content: Self, rules: &ExecuteRules) -> Result<DetachedCommand, RequestRefusal> {
        rules::terminal_command(content, rules).map_err(refused)
    }
}

impl RequestBody for SignalBody {
    type Content = Self;
    type Rules = ();
    /// The signal's number.
    type Validated = i32;

    fn parse(body: &[u8]) -> Result<Parsed<Self>, RequestRefusal> {
        strict::body(body)
    }

    fn check(content: Self, (): &()) -> Result<i32, RequestRefusal> {
        let Self { signal } = content;
        signal_number(&signal).ok_or_else(|| {
            let names: Vec<String> = api::SIGNALS.iter().map(|(name, _)| (*name).to_owned()).collect();
            let allowed = alternatives(&names);
            ConfigError { field: "signal".to_owned(), got: quoted(&signal), allowed }.into()
        })
    }
}

impl RequestBody for ExposeBody {
    type Content = Self;
    type Rules = ();
    type Validated = ExposeRequest;

    fn parse(body: &[u8]) -> Result<Parsed<Self>, RequestRefusal> {
        strict::body(body)
    }

    fn check(content: Self, (): &()) -> Result<ExposeRequest, RequestRefusal> {
        rules::expose_request(&content).map_err(|error| readable(error).into())
    }
}

impl RequestBody for TokenBody {
    type Content = Self;
    type Rules = ();
    /// The lifetime in milliseconds.
    type Validated = u64;

    fn parse(body: &[u8]) -> Result<Parsed<Self>, RequestRefusal> {
        strict::body(body)
    }

    fn check(content: Self, (): &()) -> Result<u64, RequestRefusal> {
        rules::token_lifetime_ms(&content).map_err(|error| readable(error).into())
    }
}

impl RequestBody for SnapshotBody {
    type Content = Self;
    type Rules = ConfigRules;
    type Validated = SnapshotRequest;

    fn parse(body: &[u8]) -> Result<Parsed<Self>, RequestRefusal> {
        strict::body(body)
    }

    fn check(content: Self, rules: &ConfigRules) -> Result<SnapshotRequest, RequestRefusal> {
        rules::snapshot_request(content, rules).map_err(|error| readable(error).into())
    }
}

impl RequestBody for TemplateBody {
    type Content = Self;
    type Rules = ConfigRules;
    type Validated = TemplateRequest;

    fn parse(body: &[u8]) -> Result<Parsed<Self>, RequestRefusal> {
        strict::body(body)
    }

    fn check(content: Self, rules: &ConfigRules) -> Result<TemplateRequest, RequestRefusal> {
        rules::template_request(content, rules).map_err(|error| readable(error).into())
    }
}

impl RequestBody for RollbackBody {
    type Content = Self;
    type Rules = ();
    /// Not checked: a text that is not an id names no snapshot.
    type Validated = Self;

    fn parse(body: &[u8]) -> Result<Parsed<Self>, RequestRefusal> {
        strict::body(body)
    }

    fn check(content: Self, (): &()) -> Result<Self, RequestRefusal> {
        Ok(content)
    }
}

impl RequestBody for PauseBody {
    const OPTIONAL: bool = true;
    type Content = Self;
    type Rules = ();
    type Validated = Self;

    fn parse(body: &[u8]) -> Result<Parsed<Self>, RequestRefusal> {
        optional_body(body)
    }

    fn check(content: Self, (): &()) -> Result<Self, RequestRefusal> {
        Ok(content)
    }
}

impl RequestBody for ResumeBody {
    const OPTIONAL: bool = true;
    type Content = Self;
    type Rules = ();
    type Validated = Self;

    fn parse(body: &[u8]) -> Result<Parsed<Self>, RequestRefusal> {
        optional_body(body)
    }

    fn check(content: Self, (): &()) -> Result<Self, RequestRefusal> {
        Ok(content)
    }
}

fn optional_body<T: DeserializeOwned + Default>(body: &[u8]) -> Result<Parsed<T>, RequestRefusal> {
    if body.trim_ascii().is_empty() {
        return Ok(Parsed { content: T::default(), ignored: IgnoredFields::default() });
    }
    strict::body(body)
}

impl RequestBody for ForkBody {
    type Content = Self;
    type Rules = ConfigRules;
    type Validated = ForkRequest;

    fn parse(body: &[u8]) -> Result<Parsed<Self>, RequestRefusal> {
        strict::body(body)
    }

    fn check(content: Self, rules: &ConfigRules) -> Result<ForkRequest, RequestRefusal> {
        rules::fork_request(content, rules).map_err(|error| readable(error).into())
    }
}

impl RequestBody for EventsBody {
    type Content = OneOrMore<EventBody>;
    type Rules = ();
    type Validated = Vec<EventBody>;

    fn parse(body: &[u8]) -> Result<Parsed<OneOrMore<EventBody>>, RequestRefusal> {
        strict::one_or_more(body, Self::MAX)
    }

    fn check(content: OneOrMore<EventBody>, (): &()) -> Result<Vec<EventBody>, RequestRefusal> {
        let field: fn(usize) -> String = match content {
            OneOrMore::One(_) => |_| "data".to_owned(),
            OneOrMore::More(_) => |index| format!("[{index}].data"),
        };
        let events = content.into_vec();
        for (index, event) in events.iter().enumerate() {
            let bytes = serde_json::to_string(&event.data).map_or(usize::MAX, |text| text.len());
            if bytes > EVENT_DATA_BYTES {
                let got = format!("{bytes} bytes of JSON");
                let allowed = format!("at most {EVENT_DATA_BYTES} bytes");
                return Err(ConfigError { field: field(index), got, allowed }.into());
            }
        }
        Ok(events)
    }
}

/// The number of a signal by its name.
pub fn signal_number(name: &str) -> Option<i32> {
    api::SIGNALS.iter().find(|(known, _)| *known == name).map(|(_, number)| i32::from(*number))
}

fn refused(refusal: ExecuteRefusal) -> RequestRefusal {
    match refusal {
        ExecuteRefusal::CommandTooLong { bytes, most } => RequestRefusal::CommandTooLong { bytes, most },
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
