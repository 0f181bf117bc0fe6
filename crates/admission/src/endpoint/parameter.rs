//! Parameters as endpoints declare them for the OpenAPI document.

mod schemas;

use serde_json::{Value, json};

use schemas::{
    boolean, context_id, file_path, idempotency_key, limit, mode, named_path, offset, port, sandbox,
    snapshot, template,
};
pub use schemas::{
    events, inline, last_event_id, last_log_event, last_output_offset, list_of, reference, text,
};

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
