//! Parameters as endpoints declare them for the OpenAPI document.

use api::bounds::{
    IDEMPOTENCY_KEY_CHARS, MAX_SAFE_INTEGER, PAGE_LIMIT, PATH_BYTES, PATH_PART_BYTES, PORT,
    SANDBOX_NAME_CHARS, SNAPSHOT_NAME_CHARS,
};
use serde_json::{Value, json};
use utoipa::{PartialSchema, ToSchema};

/// A parameter in the path, the query or a header.
#[derive(Clone, Copy)]
pub struct Parameter {
    name: &'static str,
    location: Location,
    required: bool,
    description: &'static str,
    schema: fn() -> Value,
    example: Option<Example>,
}

#[derive(Clone, Copy)]
enum Location {
    Path,
    Query,
    Header,
}

#[derive(Clone, Copy)]
enum Example {
    Text(&'static str),
    Number(u32),
}

impl Parameter {
    pub const SANDBOX_ID: Self = Self::path("id", "Id of the sandbox, or its name.", sandbox);
    pub const SNAPSHOT_ID: Self = Self::path("id", "Id of the snapshot, or its name.", snapshot);
    pub const TEMPLATE_ID: Self = Self::path("id", "Id of the template, or its name.", template);
    pub const EXECUTION_ID: Self =
        Self::path("execution", "Id of the execution.", reference::<api::ExecutionId>);
    pub const CONTEXT_ID: Self = Self::path("context", "Id of the context.", context_id);
    pub const PORT: Self = Self::path("port", "The port.", port).with_example(Example::Number(8080));
    pub const LIMIT: Self = Self::query("limit", "Items per page; default 20.", limit);
    pub const OFFSET: Self = Self::query("offset", "Items to skip; default 0.", offset);
    pub const AUTO_RESUME: Self =
        Self::flag("autoResume", "Whether to resume a paused sandbox; default `true`.");
    /// How a response has the output of a command.
    pub const ENCODING: Self = Self::query(
        "encoding",
        "`base64` for the exact bytes of the output, also if they are not UTF-8; default `text`. Events then have the bytes as \
         they come, independent of lines, and a field `encoding: base64` after their data; a result has `encoding`. Ignored for \
         a detached command.",
        inline::<api::OutputEncoding>,
    );
    /// The run of an endpoint's events.
    pub const RUN_ID: Self =
        Self::header("X-Run-Id", "The run to which the events of this request belong.", inline::<api::RunId>);
    pub const IDEMPOTENCY_KEY: Self = Self::header("Idempotency-Key", "Same as for create.", idempotency_key)
        .example("8e03978e-40d5-43dd-bc93-6894a57f9324");

    pub const fn path(name: &'static str, description: &'static str, schema: fn() -> Value) -> Self {
        Self { name, location: Location::Path, required: true, description, schema, example: None }
    }

    /// One that may be left out, as all in queries and headers unless [`Self::required`] says otherwise.
    pub const fn query(name: &'static str, description: &'static str, schema: fn() -> Value) -> Self {
        Self { name, location: Location::Query, required: false, description, schema, example: None }
    }

    pub const fn header(name: &'static str, description: &'static str, schema: fn() -> Value) -> Self {
        Self { name, location: Location::Header, required: false, description, schema, example: None }
    }

    /// `true` or `false` in the query.
    pub const fn flag(name: &'static str, description: &'static str) -> Self {
        Self::query(name, description, boolean)
    }

    /// A path in a sandbox's file system.
    pub const fn file_path(name: &'static str, example: &'static str) -> Self {
        const DESCRIPTION: &str = "Absolute, or relative to the working directory of the sandbox. Any bytes, \
             percent-encoded.";
        Self::query(name, DESCRIPTION, file_path).required().example(example)
    }

    /// A path that ends in the name of a file or directory.
    pub const fn named_path(name: &'static str, example: &'static str) -> Self {
        const DESCRIPTION: &str = "Absolute, or relative to the working directory of the sandbox. Its last part is a name, \
             not `.` or `..`. Any bytes, percent-encoded.";
        Self::query(name, DESCRIPTION, named_path).required().example(example)
    }

    /// The permission bits of a file.
    pub const fn mode(description: &'static str, example: &'static str) -> Self {
        Self::query("mode", description, mode).example(example)
    }

    pub const fn required(mut self) -> Self {
        self.required = true;
        self
    }

    pub const fn describe(mut self, description: &'static str) -> Self {
        self.description = description;
        self
    }

    pub const fn example(self, example: &'static str) -> Self {
        self.with_example(Example::Text(example))
    }

    const fn with_example(mut self, example: Example) -> Self {
        self.example = Some(example);
        self
    }

    /// The parameter as the OpenAPI document has it.
    pub fn document(&self) -> Value {
        let mut document = json!({
            "name": self.name,
            "in": match self.location {
                Location::Path => "path",
                Location::Query => "query",
                Location::Header => "header",
            },
            "required": self.required,
            "description": self.description,
            "schema": (self.schema)(),
        });
        match self.example {
            Some(Example::Text(text)) => document["example"] = json!(text),
            Some(Example::Number(number)) => document["example"] = json!(number),
            None => {}
        }
        document
    }
}

/// The schema of a type, written out in place.
pub fn inline<T: PartialSchema>() -> Value {
    json!(T::schema())
}

/// A reference to the schema of a type among the components.
pub fn reference<T: ToSchema>() -> Value {
    json!({ "$ref": format!("#/components/schemas/{}", T::name()) })
}

/// A list of what a type describes.
pub fn list_of<T: ToSchema>() -> Value {
    json!({ "type": "array", "items": reference::<T>() })
}

pub fn text() -> Value {
    json!({ "type": "string" })
}

/// Without a type: some tools apply it to the text of the stream, some to each event.
pub fn events() -> Value {
    json!({ "description": "Server-Sent Events. Each has `event`, its kind, and `data`, a JSON object." })
}

/// The id of the last event that a client has received, or nothing.
pub fn last_event_id() -> Value {
    or_empty(&inline::<api::EventId>())
}

/// The offset after the last output that a client has received, or nothing.
pub fn last_output_offset() -> Value {
    or_empty(&inline::<api::OutputOffset>())
}

/// The id of the last event of a build's log that a client has received, or nothing.
pub fn last_log_event() -> Value {
    json!({ "type": "string", "pattern": "^([0-9]{1,18}|end)?$" })
}

/// A client that has received no event may send an empty header.
fn or_empty(schema: &Value) -> Value {
    let pattern = schema["pattern"].as_str().unwrap_or_default();
    let inner = pattern.trim_start_matches('^').trim_end_matches('$');
    json!({ "type": "string", "pattern": format!("^({inner})?$") })
}

fn sandbox() -> Value {
    let (id, more) = (api::SandboxId::PREFIX, SANDBOX_NAME_CHARS - 1);
    let name =
        json!({ "type": "string", "pattern": format!("^(?!{id})[A-Za-z0-9][A-Za-z0-9_.-]{{0,{more}}}$") });
    json!({ "anyOf": [reference::<api::SandboxId>(), name] })
}

fn snapshot() -> Value {
    let id = api::SnapshotId::PREFIX;
    let pattern = format!(r"^(?!{id})[^\x00-\x1f\x7f]+$");
    let name = json!({ "type": "string", "maxLength": SNAPSHOT_NAME_CHARS, "pattern": pattern });
    json!({ "anyOf": [reference::<api::SnapshotId>(), name] })
}

fn template() -> Value {
    let id = api::TemplateId::PREFIX;
    let pattern = format!(r"^(?!{id})[^\x00-\x1f\x7f]+$");
    json!({ "anyOf": [reference::<api::TemplateId>(), { "type": "string", "pattern": pattern }] })
}

fn boolean() -> Value {
    json!({ "type": "boolean" })
}

fn port() -> Value {
    json!({ "type": "integer", "format": "int32", "minimum": PORT.min, "maximum": PORT.max })
}

fn context_id() -> Value {
    json!({ "type": "string", "minLength": 1, "maxLength": 100, "pattern": "^[A-Za-z0-9-]+$" })
}

fn limit() -> Value {
    json!({ "type": "integer", "format": "int32", "minimum": PAGE_LIMIT.min, "maximum": PAGE_LIMIT.max })
}

/// Up to the largest integer that every JSON client can hold.
fn offset() -> Value {
    json!({ "type": "integer", "format": "int64", "minimum": 0, "maximum": MAX_SAFE_INTEGER })
}

fn file_path() -> Value {
    path_matching("")
}

fn named_path() -> Value {
    path_matching(r"(?!([^\x00]*/)?\.{1,2}/*$|/*$)")
}

/// The pattern of a path after a condition for its start.
fn path_matching(condition: &str) -> Value {
    let part = format!(r"[^/\x00]{{0,{PATH_PART_BYTES}}}");
    let pattern = format!("^{condition}{part}(/{part})*$");
    json!({ "type": "string", "minLength": 1, "maxLength": PATH_BYTES, "pattern": pattern })
}

fn mode() -> Value {
    json!({ "type": "string", "pattern": "^[0-7]{3,4}$" })
}

fn idempotency_key() -> Value {
    json!({ "type": "string", "minLength": 1, "maxLength": IDEMPOTENCY_KEY_CHARS, "pattern": r"^[\x21-\x7e]+$" })
}
