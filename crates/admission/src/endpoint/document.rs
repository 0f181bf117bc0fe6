//! What endpoints declare for the OpenAPI document, beside method, path and access.

use api::ErrorCode;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use reader::RequestBody;
use serde::Serialize;
use serde_json::{Value, json};
use utoipa::ToSchema;
use utoipa::openapi::{RefOr, Schema};

use super::parameter::{self, Parameter};
use super::{AccessRule, Declaration, Door, Json, JsonBody, NoBody, Payload, RawBody};

/// Schemas by name.
pub type Components = Vec<(String, RefOr<Schema>)>;

/// The group of an endpoint in the document.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tag {
    Sandboxes,
    Snapshots,
    Templates,
    Commands,
    Executions,
    Code,
    Network,
    Files,
    Ports,
    Events,
    Images,
    Service,
}

/// An operation of the document, as its endpoint declares it.
pub struct Operation {
    pub id: &'static str,
    pub tag: Tag,
    pub summary: &'static str,
    pub description: &'static str,
    pub parameters: Vec<Parameter>,
    pub body: Option<DocumentedBody>,
    pub responses: Vec<DocumentedResponse>,
    pub errors: Vec<DocumentedError>,
}

pub struct DocumentedBody {
    pub description: &'static str,
    pub required: bool,
    pub content: Content,
    /// The largest body in bytes, if it is bounded.
    pub most: Option<usize>,
}

pub struct DocumentedResponse {
    pub status: StatusCode,
    pub description: &'static str,
    pub contents: Vec<Content>,
    /// Headers by name, each with a description.
    pub headers: Vec<(&'static str, &'static str)>,
}

/// One representation of a body.
pub struct Content {
    pub media_type: &'static str,
    pub schema: fn() -> Value,
    /// Adds the schemas that `schema` refers to.
    pub components: fn(&mut Components),
    /// Keywords beside those of `schema`: which fields go together.
    pub combinations: Value,
    pub example: Option<Value>,
}

/// An error that an endpoint answers with.
#[derive(Debug, Clone, Copy)]
pub struct DocumentedError {
    pub code: ErrorCode,
    /// When it occurs, as a sentence without its full stop.
    pub when: &'static str,
    /// Where HTTP has a better status than that of the code.
    status: Option<StatusCode>,
}

impl Tag {
    pub const ALL: [(Self, &str); 12] = [
        (Self::Sandboxes, "Create, get, pause, resume and terminate sandboxes."),
        (Self::Snapshots, "Snapshots of sandboxes: take, list and delete them, roll back, and fork."),
        (Self::Templates, "Templates: images that an account builds from Dockerfiles."),
        (Self::Commands, "Run commands in a sandbox."),
        (Self::Executions, "Detached commands and terminals: output, input, signals and results."),
        (Self::Code, "Run code in the code interpreter of a sandbox, and manage its contexts."),
        (Self::Network, "Network policy and traffic of a sandbox."),
        (
            Self::Files,
            "Files of a sandbox, accessed as its root user. Parameters are in the query; the body is file \
             content.",
        ),
        (Self::Ports, "Exposed TCP ports of a sandbox, each under its own host name."),
        (Self::Events, "Events of sandboxes as a list or a stream, and events that clients post."),
        (Self::Images, "Images on the service's host and pulls in progress."),
        (Self::Service, "The service itself."),
    ];

    pub fn name(self) -> &'static str {
        match self {
            Self::Sandboxes => "Sandboxes",
            Self::Snapshots => "Snapshots",
            Self::Templates => "Templates",
            Self::Commands => "Commands",
            Self::Executions => "Executions",
            Self::Code => "Code interpreter",
            Self::Network => "Network",
            Self::Files => "Files",
            Self::Ports => "Ports",
            Self::Events => "Events",
            Self::Images => "Images",
            Self::Service => "Service",
        }
    }
}

impl DocumentedError {
    pub const fn of(code: ErrorCode, when: &'static str) -> Self {
        Self { code, when, status: None }
    }

    pub const fn with_status(mut self, status: StatusCode) -> Self {
        self.status = Some(status);
        self
    }

    pub fn status(&self) -> u16 {
        self.status.map_or(self.code.status(), |status| status.as_u16())
    }
}

impl Content {
    /// A JSON document of a type.
    pub fn json<T: ToSchema>() -> Self {
        Self {
            media_type: "application/json",
            schema: parameter::reference::<T>,
            components: components_of::<T>,
            combinations: json!({}),
            example: None,
        }
    }

    /// A JSON document whose schema is written out in place.
    pub fn inline_json<T: ToSchema>() -> Self {
        Self { schema: parameter::inline::<T>, components: T::schemas, ..Self::json::<T>() }
    }

    /// A JSON object without a schema of its fields.
    pub fn any_json() -> Self {
        let schema =
            || json!({ "type": "object", "propertyNames": { "type": "string" }, "additionalProperties": {} });
        Self { schema, ..Self::raw("application/json") }
    }

    /// Content without a schema.
    pub fn raw(media_type: &'static str) -> Self {
        let combinations = json!({});
        Self { media_type, schema: parameter::text, components: |_| {}, combinations, example: None }
    }

    /// Server-Sent Events.
    pub fn events() -> Self {
        Self { schema: parameter::events, ..Self::raw("text/event-stream") }
    }

    pub fn example(mut self, example: Value) -> Self {
        self.example = Some(example);
        self
    }

    /// Keywords for fields that require or exclude each other, which a derived schema cannot have.
    pub fn combinations(mut self, keywords: Value) -> Self {
        self.combinations = keywords;
        self
    }

    pub fn is_json(&self) -> bool {
        self.media_type == "application/json"
    }

    pub fn document(&self) -> Value {
        let mut document = json!({ "schema": (self.schema)() });
        for (keyword, value) in self.combinations.as_object().into_iter().flatten() {
            document["schema"][keyword] = value.clone();
        }
        if let Some(example) = &self.example {
            document["example"] = example.clone();
        }
        document
    }
}

fn components_of<T: ToSchema>(components: &mut Components) {
    components.push((T::name().into_owned(), T::schema()));
    T::schemas(components);
}

impl<S: Door, A: AccessRule> Declaration<S, A> {
    /// Puts the endpoint into the document. An endpoint that is not described is served all the same.
    pub fn describe(
        mut self,
        id: &'static str,
        tag: Tag,
        summary: &'static str,
        description: &'static str,
    ) -> Self {
        let (parameters, responses, errors) = (Vec::new(), Vec::new(), Vec::new());
        self.operation =
            Some(Operation { id, tag, summary, description, parameters, body: None, responses, errors });
        self
    }
}

impl<S, A, R> Declaration<S, A, NoBody, R>
where
    S: Door,
    A: AccessRule,
    R: IntoResponse + 'static,
{
    /// The endpoint takes a JSON document of at most `most` bytes.
    pub fn json_body<T: RequestBody + 'static>(
        mut self,
        most: usize,
        content: Content,
        description: &'static str,
    ) -> Declaration<S, A, JsonBody<T>, R> {
        self.body_max = most;
        self.with_body(DocumentedBody { description, required: !T::OPTIONAL, content, most: Some(most) })
            .with_types()
    }

    /// The endpoint takes content of any size.
    pub fn raw_body(
        self,
        media_type: &'static str,
        required: bool,
        description: &'static str,
    ) -> Declaration<S, A, RawBody, R> {
        let content = Content::raw(media_type);
        self.with_body(DocumentedBody { description, required, content, most: None }).with_types()
    }

    fn with_body(mut self, body: DocumentedBody) -> Self {
        self.media_type = Some(body.content.media_type);
        if let Some(operation) = &mut self.operation {
            operation.body = Some(body);
        }
        self
    }
}

impl<S, A, B, R> Declaration<S, A, B, R>
where
    S: Door,
    A: AccessRule,
    B: Payload,
    R: IntoResponse + 'static,
{
    pub fn parameters<const N: usize>(mut self, parameters: [Parameter; N]) -> Self {
        if let Some(operation) = &mut self.operation {
            operation.parameters.extend(parameters);
        }
        self
    }

    /// The handler returns a JSON document of type `T`, and nothing else.
    pub fn returns<T: ToSchema + Serialize + 'static>(
        self,
        status: StatusCode,
        description: &'static str,
    ) -> Declaration<S, A, B, Json<T>> {
        self.response(status, description, [Content::json::<T>()]).with_types()
    }

    /// One of several responses, or one that is not a single JSON document: the handler returns a [`Response`].
    pub fn responds<const N: usize>(
        self,
        status: StatusCode,
        description: &'static str,
        contents: [Content; N],
    ) -> Declaration<S, A, B, Response> {
        self.response(status, description, contents).with_types()
    }

    fn response<const N: usize>(
        mut self,
        status: StatusCode,
        description: &'static str,
        contents: [Content; N],
    ) -> Self {
        if let Some(operation) = &mut self.operation {
            let contents = contents.into_iter().collect();
            operation.responses.push(DocumentedResponse {
                status,
                description,
                contents,
                headers: Vec::new(),
            });
        }
        self
    }

    /// A header of the response that was declared last.
    pub fn header(mut self, name: &'static str, description: &'static str) -> Self {
        let last = self.operation.as_mut().and_then(|operation| operation.responses.last_mut());
        if let Some(response) = last {
            response.headers.push((name, description));
        }
        self
    }

    /// The response may be one that was stored under an idempotency key.
    pub fn replayable(self) -> Self {
        self.header(
            "Idempotency-Replayed",
            "`true` if the response repeats an earlier one with the same key.",
        )
    }

    /// Errors beside those of every endpoint: the code, and when it occurs, as a sentence without its full stop.
    pub fn errors<const N: usize>(mut self, errors: [(ErrorCode, &'static str); N]) -> Self {
        if let Some(operation) = &mut self.operation {
            operation.errors.extend(errors.map(|(code, when)| DocumentedError::of(code, when)));
        }
        self
    }

    /// An error whose status is not that of its code.
    pub fn error_as(mut self, status: StatusCode, code: ErrorCode, when: &'static str) -> Self {
        if let Some(operation) = &mut self.operation {
            operation.errors.push(DocumentedError::of(code, when).with_status(status));
        }
        self
    }
}
