use serde_json::{Value, json};
use utoipa::PartialSchema;

use crate::bounds::{
    self, COLS, COMMAND_BYTES, DETACHED_TIMEOUT_MS_MAX, DISK_MB, EXECUTE_TIMEOUT_MS, IDLE_TIMEOUT_MS,
    MAX_SAFE_INTEGER, MEMORY_MB, PAGE_LIMIT, PORT, READER_TIMEOUT_MS, ROWS, TIMEOUT_MS, TOKEN_LIFETIME_MS,
};
use crate::{
    CreateBody, CreateEgress, CreateIngress, CreateNetwork, CreateResources, DetachedBody, Done, ErrorCode,
    ErrorObject, EventId, EventsBody, EventsRecorded, ExecuteBody, ExecutionId, ExecutionResult, ExposeBody,
    NetworkPolicy, NetworkUsage, Pagination, Port, PortClosed, Resources, RunId, SandboxId, SandboxItem,
    SandboxView, TerminalBody, TerminalSize, Timestamp, TokenBody,
};

fn schema<T: PartialSchema>() -> Value {
    serde_json::to_value(T::schema()).unwrap()
}

fn required<T: PartialSchema>() -> Vec<String> {
    let required = schema::<T>()["required"].clone();
    if required.is_null() { Vec::new() } else { serde_json::from_value(required).unwrap() }
}

/// `null` is a wrong type in a request, so no schema of one may let it through.
#[test]
fn requests_take_no_null() {
    for schema in [
        schema::<CreateBody>(),
        schema::<CreateResources>(),
        schema::<CreateNetwork>(),
        schema::<CreateEgress>(),
        schema::<CreateIngress>(),
        schema::<ExecuteBody>(),
    ] {
        assert!(!schema.to_string().contains("null"), "{schema}");
    }
}

/// The server refuses unknown fields in these, and only in these.
#[test]
fn objects_that_bound_a_sandbox_have_no_additional_properties() {
    for schema in [
        schema::<CreateResources>(),
        schema::<CreateNetwork>(),
        schema::<CreateEgress>(),
        schema::<CreateIngress>(),
    ] {
        assert_eq!(schema["additionalProperties"], json!(false), "{schema}");
    }
    for schema in [schema::<CreateBody>(), schema::<ExecuteBody>(), schema::<ExposeBody>()] {
        assert!(schema.get("additionalProperties").is_none(), "{schema}");
    }
}

#[test]
fn required_fields_are_in_the_schema() {
    assert_eq!(required::<CreateBody>(), ["image"]);
    assert_eq!(required::<ExecuteBody>(), ["command"]);
    for optional in [
        required::<CreateResources>(),
        required::<CreateNetwork>(),
        required::<CreateEgress>(),
        required::<CreateIngress>(),
    ] {
        assert_eq!(optional, Vec::<String>::new());
    }
    assert_eq!(required::<ErrorObject>(), ["code", "message", "details", "requestId"]);
    assert_eq!(required::<ExecutionResult>(), ["stdout", "stderr", "exitCode", "durationMs", "signal"]);
    assert_eq!(required::<Done>(), ["exitCode", "durationMs", "signal"]);
    assert_eq!(required::<SandboxItem>(), ["id", "state", "image", "resources", "createdAt"]);
    assert_eq!(required::<NetworkPolicy>(), ["egress"]);
    assert_eq!(required::<Resources>(), ["cpu", "memoryMb", "diskMb"]);
}

#[test]
fn only_specified_fields_are_nullable() {
    for result in [schema::<ExecutionResult>(), schema::<Done>()] {
        assert_eq!(result["properties"]["exitCode"]["type"], json!(["integer", "null"]));
        assert_eq!(result["properties"]["signal"]["type"], json!(["string", "null"]));
    }
    assert!(!schema::<SandboxView>().to_string().contains("null"));
    assert!(!schema::<SandboxItem>().to_string().contains("null"));
}

#[test]
fn ranges_defaults_and_sets_are_those_of_the_specification() {
    let resources = schema::<CreateResources>()["properties"].clone();
    assert_eq!((&resources["cpu"]["enum"], &resources["cpu"]["default"]), (&json!([2, 4, 8]), &json!(2)));
    let create = schema::<CreateBody>()["properties"].clone();
    let execute = schema::<ExecuteBody>()["properties"].clone();
    for (field, minimum, maximum, default) in [
        (&resources["memoryMb"], 2048, 16_384, 4096),
        (&resources["diskMb"], 5120, 51_200, 10_240),
        (&create["timeoutMs"], 1, 86_400_000, 300_000),
        (&create["idleTimeoutMs"], 0, 9_007_199_254_740_991_u64, 120_000),
        (&execute["timeoutMs"], 1, 300_000, 60_000),
    ] {
        assert_eq!(
            (&field["minimum"], &field["maximum"], &field["default"]),
            (&json!(minimum), &json!(maximum), &json!(default))
        );
    }
    assert_eq!(create["workdir"]["default"], "/workspace");
    assert_eq!(create["metadata"]["maxProperties"], 20);
    assert_eq!(create["metadata"]["additionalProperties"]["maxLength"], 256);
    assert_eq!(execute["command"]["maxLength"], 65_536);
    let ports = &schema::<CreateIngress>()["properties"]["allowPorts"];
    assert_eq!((&ports["items"]["minimum"], &ports["items"]["maximum"]), (&json!(1), &json!(65_535)));
}

#[test]
fn text_formats_are_in_the_schema() {
    assert_eq!(schema::<Timestamp>()["format"], "date-time");
    assert_eq!(schema::<SandboxId>()["pattern"], "^sb_[a-z0-9]{8,40}$");
    let codes: Vec<&str> = ErrorCode::ALL.iter().map(|code| code.as_str()).collect();
    assert_eq!(schema::<ErrorCode>()["enum"], json!(codes));
}

fn property<T: PartialSchema>(name: &str) -> Value {
    schema::<T>()["properties"][name].clone()
}

/// The default is compared if the document has one.
fn assert_range<T: serde::Serialize>(field: &Value, range: &bounds::Range<T>) {
    assert_eq!((&field["minimum"], &field["maximum"]), (&json!(range.min), &json!(range.max)), "{field}");
    if let Some(default) = field.get("default") {
        assert_eq!(default, &json!(range.default), "{field}");
    }
}

/// Attributes take only literals.
#[test]
fn numbers_in_attributes_are_the_bounds() {
    for field in [property::<CreateResources>("memoryMb"), property::<Resources>("memoryMb")] {
        assert_range(&field, &MEMORY_MB);
    }
    for field in [property::<CreateResources>("diskMb"), property::<Resources>("diskMb")] {
        assert_range(&field, &DISK_MB);
    }
    for field in [property::<CreateBody>("timeoutMs"), property::<SandboxView>("timeoutMs")] {
        assert_range(&field, &TIMEOUT_MS);
    }
    for field in [property::<CreateBody>("idleTimeoutMs"), property::<SandboxView>("idleTimeoutMs")] {
        assert_range(&field, &IDLE_TIMEOUT_MS);
    }
    assert_range(&property::<ExecuteBody>("timeoutMs"), &EXECUTE_TIMEOUT_MS);
    for field in [property::<DetachedBody>("timeoutMs"), property::<TerminalBody>("timeoutMs")] {
        assert_eq!((&field["minimum"], &field["maximum"]), (&json!(1), &json!(DETACHED_TIMEOUT_MS_MAX)));
    }
    assert_range(&property::<DetachedBody>("readerTimeoutMs"), &READER_TIMEOUT_MS);
    for field in [property::<TerminalBody>("cols"), property::<TerminalSize>("cols")] {
        assert_range(&field, &COLS);
    }
    for field in [property::<TerminalBody>("rows"), property::<TerminalSize>("rows")] {
        assert_range(&field, &ROWS);
    }
    assert_range(&property::<ExposeBody>("port"), &PORT);
    for field in [property::<Port>("port"), property::<PortClosed>("port")] {
        assert_eq!(field["minimum"], json!(PORT.min));
    }
    assert_range(&property::<TokenBody>("expiresInMs"), &TOKEN_LIFETIME_MS);
    assert_range(&property::<Pagination>("limit"), &PAGE_LIMIT);
    for name in ["bytesOut", "bytesIn", "connections"] {
        assert_eq!(property::<NetworkUsage>(name)["maximum"], json!(MAX_SAFE_INTEGER), "{name}");
    }
    assert_eq!(property::<EventsRecorded>("recorded")["maximum"], json!(EventsBody::MAX));
}

/// Attributes take only literals.
#[test]
fn lengths_and_patterns_in_attributes_are_the_bounds() {
    let image = property::<CreateBody>("image");
    assert_eq!((&image["minLength"], &image["maxLength"]), (&json!(1), &json!(bounds::IMAGE_CHARS)));
    for command in [
        property::<ExecuteBody>("command"),
        property::<DetachedBody>("command"),
        property::<TerminalBody>("command"),
    ] {
        assert_eq!(command["maxLength"], json!(COMMAND_BYTES));
    }
    for user in
        [property::<ExecuteBody>("user"), property::<DetachedBody>("user"), property::<TerminalBody>("user")]
    {
        assert_eq!(user["pattern"], r"^[^\x00-\x1f\x7f:]*$", "what the service refuses");
    }
    let name = property::<CreateBody>("name")["pattern"].clone();
    assert_eq!(name, "^(?!sb_)[A-Za-z0-9][A-Za-z0-9_.-]{0,62}$", "what SandboxName accepts");
    let (least, most) = (crate::ids::OPAQUE_MIN, crate::ids::OPAQUE_MAX);
    assert_eq!(schema::<SandboxId>()["pattern"], format!("^sb_[a-z0-9]{{{least},{most}}}$"));
    let opaque = crate::exec::executions::OPAQUE;
    assert_eq!(schema::<ExecutionId>()["pattern"], format!("^ex_[a-z0-9]{{{opaque}}}$"));
    let digits = crate::events::ID_DIGITS;
    assert_eq!(schema::<EventId>()["pattern"], format!("^ev_[0-9]{{{digits}}}$"));
    let run_id = format!(r"^[\x21-\x7e]{{1,{}}}$", bounds::RUN_ID_CHARS);
    assert_eq!(schema::<RunId>()["pattern"], run_id);
}
