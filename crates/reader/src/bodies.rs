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

fn checked<T, R, V, E: Into<ExecuteRefusal>>(
    content: T,
    rules: &R,
    check: impl FnOnce(T, &R) -> Result<V, E>,
) -> Result<V, RequestRefusal> {
    check(content, rules).map_err(refused)
}

/// Declares bodies of which nothing but the fields is parsed: the type, the rules, what the check returns, and the check.
macro_rules! plain_bodies {
    ($($body:ty, $rules:ty => $validated:ty: $check:expr;)*) => {$(
        impl RequestBody for $body {
            type Content = Self;
            type Rules = $rules;
            type Validated = $validated;

            fn parse(body: &[u8]) -> Result<Parsed<Self>, RequestRefusal> {
                strict::body(body)
            }

            fn check(content: Self, rules: &$rules) -> Result<$validated, RequestRefusal> {
                checked(content, rules, $check)
            }
        }
    )*};
}

plain_bodies! {
    CreateBody, ConfigRules => SandboxConfig: rules::sandbox_config;
    // A change of a network policy: the type of the field `network` in a create request.
    CreateNetwork, ConfigRules => NetworkChange: rules::network_change;
    // A new timeout in ms.
    TimeoutBody, ConfigRules => u64: rules::new_timeout;
    CodeBody, ExecuteRules => CodeRequest: rules::code_request;
    CodeContextBody, () => Self: |content, (): &()| rules::code_context(content);
    TerminalBody, ExecuteRules => DetachedCommand: rules::terminal_command;
    // The signal's number.
    SignalBody, () => i32: |content: Self, (): &()| signal(&content.signal);
    ExposeBody, () => ExposeRequest: |content: Self, (): &()| rules::expose_request(&content);
    // The lifetime in milliseconds.
    TokenBody, () => u64: |content: Self, (): &()| rules::token_lifetime_ms(&content);
    SnapshotBody, ConfigRules => SnapshotRequest: rules::snapshot_request;
    TemplateBody, ConfigRules => TemplateRequest: rules::template_request;
    // Not checked: a text that is not an id names no snapshot.
    RollbackBody, () => Self: |content, (): &()| Ok::<Self, ConfigError>(content);
    ForkBody, ConfigRules => ForkRequest: rules::fork_request;
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

fn signal(name: &str) -> Result<i32, ConfigError> {
    signal_number(name).ok_or_else(|| {
        let names: Vec<String> = api::SIGNALS.iter().map(|(name, _)| (*name).to_owned()).collect();
        ConfigError { field: "signal".to_owned(), got: quoted(name), allowed: alternatives(&names) }
    })
}

/// The number of a signal by its name.
pub fn signal_number(name: &str) -> Option<i32> {
    api::SIGNALS.iter().find(|(known, _)| *known == name).map(|(_, number)| i32::from(*number))
}

fn refused(refusal: impl Into<ExecuteRefusal>) -> RequestRefusal {
    match refusal.into() {
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
