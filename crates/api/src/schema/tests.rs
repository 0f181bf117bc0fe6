use serde_json::{Value, json};
use utoipa::PartialSchema;

use crate::{
    CreateBody, CreateEgress, CreateIngress, CreateNetwork, CreateResources, Done, ErrorCode, ErrorObject,
    ExecuteBody, ExecutionResult, NetworkPolicy, Resources, SandboxId, SandboxItem, SandboxView, Timestamp,
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
