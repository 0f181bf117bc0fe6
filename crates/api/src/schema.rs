//! Schemas that a derive cannot say: sets of numbers, the bounds of maps, patterns that several fields share.
//!
//! Only for the feature `openapi`. What these say has to be what `rules` accepts; bounds in bytes are left to the prose, for a
//! schema counts characters.

use utoipa::openapi::schema::{AdditionalProperties, Schema, SchemaFormat, SchemaType, Type};
use utoipa::openapi::{ArrayBuilder, KnownFormat, ObjectBuilder, RefOr};

const NO_NUL: &str = r"^[^\x00]*$";
const ABSOLUTE_PATH: &str = r"^(/[^/\x00]{0,255})+$";
/// A name, or `*.` and a name; the last label is no number, for that would be an address.
const DOMAIN: &str = concat!(
    r"^(\*\.)?([A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?\.)*",
    r"(?![0-9]+$)[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?$"
);

fn text() -> ObjectBuilder {
    ObjectBuilder::new().schema_type(SchemaType::Type(Type::String))
}

fn integer() -> ObjectBuilder {
    ObjectBuilder::new()
        .schema_type(SchemaType::Type(Type::Integer))
        .format(Some(SchemaFormat::KnownFormat(KnownFormat::Int32)))
}

fn map(keys: ObjectBuilder, values: ObjectBuilder) -> ObjectBuilder {
    ObjectBuilder::new()
        .property_names(Some(keys))
        .additional_properties(Some(AdditionalProperties::from(Schema::from(values))))
}

fn cpu_of_a_set() -> ObjectBuilder {
    integer().enum_values(Some([2, 4, 8])).description(Some("Virtual processors."))
}

pub(crate) fn cpu() -> RefOr<Schema> {
    cpu_of_a_set().examples([2]).into()
}

pub(crate) fn cpu_asked() -> RefOr<Schema> {
    cpu_of_a_set().default(Some(2.into())).into()
}

pub(crate) fn env() -> RefOr<Schema> {
    map(text().min_length(Some(1)).pattern(Some(r"^[^=\x00]+$")), text().pattern(Some(NO_NUL)))
        .max_properties(Some(1000))
        .description(Some("Environment variables. At most 256 KiB in all, names and values together."))
        .examples([serde_json::json!({"NODE_ENV": "production"})])
        .into()
}

pub(crate) fn metadata() -> RefOr<Schema> {
    map(text().min_length(Some(1)).max_length(Some(256)), text().max_length(Some(256)))
        .max_properties(Some(20))
        .description(Some("Tags of yours, by which lists can be filtered."))
        .examples([serde_json::json!({"userId": "user_123"})])
        .into()
}

fn absolute_path() -> ObjectBuilder {
    text().pattern(Some(ABSOLUTE_PATH)).max_length(Some(4095)).examples(["/workspace"])
}

pub(crate) fn path() -> RefOr<Schema> {
    absolute_path()
        .description(Some("Working directory; the sandbox's `workdir` where it is left out."))
        .into()
}

pub(crate) fn workdir() -> RefOr<Schema> {
    absolute_path()
        .default(Some("/workspace".into()))
        .description(Some("Default working directory of commands; made if it is not there."))
        .into()
}

pub(crate) fn domains() -> RefOr<Schema> {
    ArrayBuilder::new()
        .items(text().pattern(Some(DOMAIN)).max_length(Some(253)))
        .max_items(Some(1000))
        .description(Some(
            "Domains that egress is allowed to: `example.com` is that name alone, `*.example.com` every name below it.",
        ))
        .examples([serde_json::json!(["example.com", "*.example.org"])])
        .into()
}

pub(crate) fn ports() -> RefOr<Schema> {
    ArrayBuilder::new()
        .items(integer().minimum(Some(1)).maximum(Some(65_535)))
        .max_items(Some(100))
        .description(Some("Inbound ports to allow."))
        .examples([serde_json::json!([3000])])
        .into()
}

pub(crate) fn details() -> RefOr<Schema> {
    ObjectBuilder::new()
        .additional_properties(Some(AdditionalProperties::<Schema>::FreeForm(true)))
        .description(Some("More for programs; empty where there is no more. For a sandbox that is not there: its `sandboxId`."))
        .examples([serde_json::json!({"sandboxId": "sb_4h1v8x2k9qz7m3t5w0ry"})])
        .into()
}

pub(crate) fn event_data() -> RefOr<Schema> {
    ObjectBuilder::new()
        .additional_properties(Some(AdditionalProperties::<Schema>::FreeForm(true)))
        .description(Some("What there is to say of it; which fields, is a matter of its type."))
        .examples([serde_json::json!({"tool": "search"})])
        .into()
}

/// A time in a request: what can be read for sure, which is less than what is.
pub(crate) fn moment() -> RefOr<Schema> {
    let pattern = r"^20[0-9]{2}-(0[1-9]|1[0-2])-(0[1-9]|1[0-9]|2[0-8])T([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\.[0-9]{1,9})?Z$";
    text()
        .pattern(Some(pattern))
        .description(Some("A point in time of RFC 3339, from 1970 on, with any offset."))
        .examples(["2026-01-02T03:04:05.678Z"])
        .into()
}

pub(crate) fn kind(kinds: impl Iterator<Item = &'static str>) -> RefOr<Schema> {
    text().enum_values(Some(kinds)).description(Some("What happened.")).examples(["exec.completed"]).into()
}

/// A kind, or all of a sort.
pub(crate) fn kinds(kinds: impl Iterator<Item = &'static str>) -> RefOr<Schema> {
    let sorts = ["sandbox.*", "exec.*", "file.*", "port.*", "agent.*", "cost.*"];
    text().enum_values(Some(kinds.chain(sorts))).examples(["exec.*"]).into()
}

pub(crate) fn posted_kind() -> RefOr<Schema> {
    text()
        .enum_values(Some([
            "agent.thinking",
            "agent.tool_call",
            "agent.tool_result",
            "agent.error",
            "cost.llm",
        ]))
        .description(Some("The kinds that clients post."))
        .examples(["agent.tool_call"])
        .into()
}

/// Where to begin in an output: what its events have as ids.
pub(crate) fn output_place() -> RefOr<Schema> {
    text()
        .pattern(Some(r"^(0|[1-9][0-9]{0,14})(\.(0|[1-9][0-9]{0,14}))?$"))
        .description(Some("A place in the output of an execution: bytes of stdout and of stderr before it."))
        .examples(["512.0"])
        .into()
}

pub(crate) fn output_place_asked() -> RefOr<Schema> {
    text()
        .pattern(Some(r"^((0|[1-9][0-9]{0,14})(\.(0|[1-9][0-9]{0,14}))?|end)$"))
        .description(Some("The id of an event of an output; a number alone is one of stdout."))
        .examples(["512.0"])
        .into()
}

pub(crate) fn signal() -> RefOr<Schema> {
    text()
        .enum_values(Some(crate::signals::SIGNALS.iter().map(|(name, _)| *name)))
        .description(Some("Name of the signal."))
        .examples(["SIGINT"])
        .into()
}

fn boolean(value: bool, description: &str) -> RefOr<Schema> {
    ObjectBuilder::new()
        .schema_type(SchemaType::Type(Type::Boolean))
        .enum_values(Some([value]))
        .description(Some(description))
        .into()
}

pub(crate) fn always() -> RefOr<Schema> {
    boolean(true, "The answer comes at once, and the command goes on.")
}

pub(crate) fn never() -> RefOr<Schema> {
    boolean(false, "`true` has other fields: see `DetachedBody`.")
}

#[cfg(test)]
mod tests;
