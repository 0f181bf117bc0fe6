//! Schemas that a derive cannot express: sets of numbers, bounds of maps, patterns that several fields share.
//!
//! Only for the feature `openapi`. They must describe exactly what `rules` accepts. Bounds in bytes are in the descriptions, because
//! a schema counts characters.

use serde_json::Value;
use utoipa::openapi::schema::{AdditionalProperties, Schema, SchemaFormat, SchemaType, Type};
use utoipa::openapi::{ArrayBuilder, KnownFormat, ObjectBuilder, RefOr};

use crate::bounds::{
    CPU, CPU_DEFAULT, DOMAIN_BYTES, EGRESS_ENTRIES, EGRESS_NETWORKS, ENV_BYTES, ENV_VARIABLES,
    EVENT_DATA_BYTES, INGRESS_PORTS, LABEL_BYTES, METADATA_KEY_CHARS, METADATA_KEYS, METADATA_VALUE_CHARS,
    PATH_BYTES, PATH_PART_BYTES, PORT, SANDBOX_NAME_CHARS, SIGNALS, WORKDIR_DEFAULT,
};

const NO_NUL: &str = r"^[^\x00]*$";

/// A name, or `*.` and a name. The last label is not a number: that would be an address.
fn domain_pattern() -> String {
    // Its first and last characters are in other sets.
    let inner = LABEL_BYTES - 2;
    let label = format!("[A-Za-z0-9_]([A-Za-z0-9_-]{{0,{inner}}}[A-Za-z0-9_])?");
    format!(r"^(?!([^.]*\.)*[0-9]+$)(\*\.)?({label}\.)*{label}$")
}

/// An IPv4 address, with a prefix length or without.
fn network_pattern() -> String {
    let octet = "(25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])";
    format!(r"^({octet}\.){{3}}{octet}(/(3[0-2]|[12]?[0-9]))?$")
}

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

fn cpu_schema() -> ObjectBuilder {
    integer().enum_values(Some(CPU)).description(Some("Number of vCPUs."))
}

pub(crate) fn cpu() -> RefOr<Schema> {
    cpu_schema().examples([2]).into()
}

pub(crate) fn requested_cpu() -> RefOr<Schema> {
    cpu_schema().default(Some(CPU_DEFAULT.into())).into()
}

pub(crate) fn env() -> RefOr<Schema> {
    environment("Environment variables.")
}

/// The variables of one command.
pub(crate) fn command_env() -> RefOr<Schema> {
    environment(
        "Environment variables, added to those of the sandbox. They override variables of the same name.",
    )
}

/// The values of build arguments.
pub(crate) fn build_args() -> RefOr<Schema> {
    environment(
        "Values of build arguments. They replace the defaults of `ARG`, and are part of the record of the template: not for secrets.",
    )
}

fn environment(description: &str) -> RefOr<Schema> {
    let description =
        format!("{description} Names and values together have at most {} KiB.", ENV_BYTES >> 10);
    map(text().min_length(Some(1)).pattern(Some(r"^[^=\x00]+$")), text().pattern(Some(NO_NUL)))
        .max_properties(Some(ENV_VARIABLES))
        .description(Some(description))
        .examples([serde_json::json!({"NODE_ENV": "production"})])
        .into()
}

/// The pattern excludes what resembles an id.
pub(crate) fn sandbox_name() -> RefOr<Schema> {
    let more = SANDBOX_NAME_CHARS - 1;
    text()
        .pattern(Some(format!("^(?!{})[A-Za-z0-9][A-Za-z0-9_.-]{{0,{more}}}$", crate::SandboxId::PREFIX)))
        .description(Some(
            "A name of the sandbox, which paths accept in place of the id. At most one sandbox of the account that is not \
             terminated has it.",
        ))
        .examples(["web"])
        .into()
}

pub(crate) fn metadata() -> RefOr<Schema> {
    tags("Your own tags. Lists can be filtered by them.")
}

pub(crate) fn fork_metadata() -> RefOr<Schema> {
    tags(
        "Tags of the new sandboxes, in place of those of the sandbox. Without it they have the tags of the sandbox.",
    )
}

fn tags(description: &str) -> RefOr<Schema> {
    let keys = text().min_length(Some(1)).max_length(Some(METADATA_KEY_CHARS));
    map(keys, text().max_length(Some(METADATA_VALUE_CHARS)))
        .max_properties(Some(METADATA_KEYS))
        .description(Some(description))
        .examples([serde_json::json!({"userId": "user_123"})])
        .into()
}

/// The id of an uploaded context, or base64 with padding.
pub(crate) fn build_context() -> RefOr<Schema> {
    let digit = "[A-Za-z0-9+/]";
    let last = format!("{digit}{{4}}|{digit}{{2}}[AEIMQUYcgkosw048]=|{digit}[AQgw]==");
    let pattern = format!("^(ctx_[a-z0-9]{{8,40}}|({digit}{{4}})*({last}))$");
    text()
        .pattern(Some(pattern))
        .description(Some(
            "The build context: the id of an uploaded one, or a tar archive in base64, which may be compressed with gzip.",
        ))
        .examples(["ctx_5w4h1v8x2k9qz0ry7m3t"])
        .into()
}

fn absolute_path() -> ObjectBuilder {
    let pattern = format!(r"^(/[^/\x00]{{0,{PATH_PART_BYTES}}})+$");
    text().pattern(Some(pattern)).max_length(Some(PATH_BYTES)).examples(["/workspace"])
}

pub(crate) fn path() -> RefOr<Schema> {
    absolute_path().description(Some("Working directory. Default: the sandbox's `workdir`.")).into()
}

pub(crate) fn workdir() -> RefOr<Schema> {
    absolute_path()
        .default(Some(WORKDIR_DEFAULT.into()))
        .description(Some("Default working directory of commands. Created if it does not exist."))
        .into()
}

pub(crate) fn domains() -> RefOr<Schema> {
    ArrayBuilder::new()
        .items(text().pattern(Some(domain_pattern())).max_length(Some(DOMAIN_BYTES)))
        .max_items(Some(EGRESS_ENTRIES))
        .description(Some(
            "Allowed domains. `example.com` matches only that name; `*.example.com` matches every name below it, but not `example.com`.",
        ))
        .examples([serde_json::json!(["example.com", "*.example.org"])])
        .into()
}

pub(crate) fn allowed_networks() -> RefOr<Schema> {
    networks("Allowed IPv4 networks and addresses. They take precedence over `denyNetworks`.")
}

pub(crate) fn denied_networks() -> RefOr<Schema> {
    networks("Denied IPv4 networks and addresses. Without effect if `default` is `deny`.")
}

fn networks(description: &str) -> RefOr<Schema> {
    ArrayBuilder::new()
        .items(text().pattern(Some(network_pattern())))
        .max_items(Some(EGRESS_NETWORKS))
        .description(Some(description))
        .examples([serde_json::json!(["203.0.113.0/24", "198.51.100.7"])])
        .into()
}

pub(crate) fn ports() -> RefOr<Schema> {
    ArrayBuilder::new()
        .items(integer().minimum(Some(PORT.min)).maximum(Some(PORT.max)))
        .max_items(Some(INGRESS_PORTS))
        .description(Some("Ports that may be exposed. If absent, all ports may be exposed; if empty, none."))
        .examples([serde_json::json!([3000])])
        .into()
}

pub(crate) fn details() -> RefOr<Schema> {
    ObjectBuilder::new()
        .additional_properties(Some(AdditionalProperties::<Schema>::FreeForm(true)))
        .description(Some(
            "Details for programs; an empty object if there are none. `field` for an invalid field, `sandboxId` if the error \
             is about a sandbox.",
        ))
        .examples([serde_json::json!({"sandboxId": "sb_4h1v8x2k9qz7m3t5w0ry"})])
        .into()
}

pub(crate) fn event_data() -> RefOr<Schema> {
    let posted = format!("Posted events: at most {} KiB as JSON.", EVENT_DATA_BYTES >> 10);
    ObjectBuilder::new()
        .additional_properties(Some(AdditionalProperties::<Schema>::FreeForm(true)))
        .description(Some(format!("Fields that depend on the type. {posted}")))
        .examples([serde_json::json!({"tool": "search"})])
        .into()
}

/// A time in a request. The pattern is narrower than what the server accepts, so that every match is a valid time.
pub(crate) fn moment() -> RefOr<Schema> {
    let pattern = r"^20[0-9]{2}-(0[1-9]|1[0-2])-(0[1-9]|1[0-9]|2[0-8])T([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\.[0-9]{1,9})?Z$";
    text()
        .pattern(Some(pattern))
        .description(Some("A time in RFC 3339 format, from 1970 on, with any UTC offset."))
        .examples(["2026-01-02T03:04:05.678Z"])
        .into()
}

pub(crate) fn kind(kinds: impl Iterator<Item = &'static str>, example: &str) -> RefOr<Schema> {
    text().enum_values(Some(kinds)).description(Some("Type of the event.")).examples([example]).into()
}

/// An event type, or a group such as `exec.*`.
pub(crate) fn kinds(kinds: impl Iterator<Item = &'static str>) -> RefOr<Schema> {
    let groups = [
        "sandbox.*",
        "snapshot.*",
        "template.*",
        "exec.*",
        "file.*",
        "port.*",
        "network.*",
        "agent.*",
        "cost.*",
    ];
    text().enum_values(Some(kinds.chain(groups))).examples(["exec.*"]).into()
}

pub(crate) fn posted_kind(kinds: impl Iterator<Item = &'static str>, example: &str) -> RefOr<Schema> {
    text()
        .enum_values(Some(kinds))
        .description(Some("Type of the event. Clients can post only these types."))
        .examples([example])
        .into()
}

/// An output offset, as the ids of output events have it.
pub(crate) fn output_offset() -> RefOr<Schema> {
    text()
        .pattern(Some(r"^(0|[1-9][0-9]{0,14})(\.(0|[1-9][0-9]{0,14}))?$"))
        .description(Some("An output offset, `STDOUT.STDERR`: the number of bytes of each stream before it."))
        .examples(["512.0"])
        .into()
}

pub(crate) fn requested_output_offset() -> RefOr<Schema> {
    text()
        .pattern(Some(r"^((0|[1-9][0-9]{0,14})(\.(0|[1-9][0-9]{0,14}))?|end)$"))
        .description(Some(
            "An output offset, such as the `id` of an output event. A single number is an offset in stdout. `end` is the id \
             of the last event of a stream; on `attach` it means new output only.",
        ))
        .examples(["512.0"])
        .into()
}

pub(crate) fn signal() -> RefOr<Schema> {
    text()
        .enum_values(Some(SIGNALS.iter().map(|(name, _)| *name)))
        .description(Some("Name of the signal, such as `SIGINT`."))
        .examples(["SIGINT"])
        .into()
}

fn constant(value: Value, description: &str) -> RefOr<Schema> {
    ObjectBuilder::new()
        .schema_type(SchemaType::Type(Type::Boolean))
        .enum_values(Some([value]))
        .description(Some(description))
        .into()
}

pub(crate) fn always() -> RefOr<Schema> {
    constant(
        Value::Bool(true),
        "`true`: the response is sent immediately, and the command continues without its client.",
    )
}

pub(crate) fn never() -> RefOr<Schema> {
    constant(Value::Bool(false), "With `true` the body has the fields of `DetachedBody`.")
}

#[cfg(test)]
mod tests;
