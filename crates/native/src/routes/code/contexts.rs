//! `/v1/sandboxes/{id}/code/contexts`: lists, creates, restarts and removes contexts of the code interpreter.

use std::time::Duration;

use admission::endpoint::{Content, INTERACT, Json, JsonBody, Parameter, Tag, serialize};
use admission::error::ApiError;
use admission::keyring::Caller;
use api::{CodeContext, CodeContextBody, CodeContextList, CodeContextRemoved, ErrorCode};
use axum::http::{Method, StatusCode};
use bytes::Bytes;
use rules::AutoResume;
use serde::Deserialize;
use serde_json::json;
use service::error::{OperationKind, invalid_interpreter, no_context};

use super::refusal;
use crate::endpoint::{Call, Endpoint};
use crate::interpreter;
use crate::routes::read;
use crate::routes::requested_sandbox::RequestedSandbox;
use crate::routes::sandbox_request::SandboxRequest;

/// A kernel starts within a second or two.
const TIMEOUT: Duration = Duration::from_secs(90);

const FAILURES: [(ErrorCode, &str); 5] = [
    (ErrorCode::SandboxNotFound, "The sandbox does not exist or is terminated"),
    (ErrorCode::NoInterpreter, "The image has no code interpreter"),
    (ErrorCode::InvalidState, "The sandbox is neither `running` nor `paused`"),
    (ErrorCode::ExecutionError, "The sandbox or its code interpreter failed"),
    (ErrorCode::DiskFull, "The sandbox's disk is full"),
];
const NO_CONTEXT: [(ErrorCode, &str); 1] = [(ErrorCode::ContextNotFound, "The context does not exist")];

pub fn endpoints() -> [Endpoint; 4] {
    [list_endpoint(), create_endpoint(), remove_endpoint(), restart_endpoint()]
}

fn list_endpoint() -> Endpoint {
    Endpoint::get("/v1/sandboxes/{id}/code/contexts", INTERACT)
        .describe("listContexts", Tag::Code, "List contexts", "Lists the contexts, those in which code without a context ran included. Resumes a paused sandbox.")
        .parameters([Parameter::SANDBOX_ID])
        .returns::<CodeContextList>(StatusCode::OK, "The contexts.")
        .errors(FAILURES)
        .handler(list)
}

fn create_endpoint() -> Endpoint {
    Endpoint::post("/v1/sandboxes/{id}/code/contexts", INTERACT)
        .describe("createContext", Tag::Code, "Create a context", "Starts a kernel for a language. Code in this context shares no state with other contexts, except files. At most 32 contexts exist at the same time. Resumes a paused sandbox.")
        .parameters([Parameter::SANDBOX_ID])
        .json_body::<CodeContextBody>(
            64 << 10,
            Content::json::<CodeContextBody>().example(json!({"language": "python"})),
            "All fields are optional. A repeated or `null` field is an error.",
        )
        .returns::<CodeContext>(StatusCode::CREATED, "The context.")
        .errors([
            (ErrorCode::InvalidRequest, "The body is malformed or a field has a wrong type"),
            (ErrorCode::InvalidConfig, "A value is not allowed, or the image has no kernel for the language"),
        ])
        .errors(FAILURES)
        .handler(create)
}

fn remove_endpoint() -> Endpoint {
    Endpoint::delete("/v1/sandboxes/{id}/code/contexts/{context}", INTERACT)
        .describe(
            "removeContext",
            Tag::Code,
            "Remove a context",
            "Kills the kernel of the context. Code that runs in it ends with the exception `KernelDied`.",
        )
        .parameters([Parameter::SANDBOX_ID, Parameter::CONTEXT_ID])
        .returns::<CodeContextRemoved>(StatusCode::OK, "The context is removed.")
        .errors(FAILURES)
        .errors(NO_CONTEXT)
        .handler(remove)
}

fn restart_endpoint() -> Endpoint {
    Endpoint::post("/v1/sandboxes/{id}/code/contexts/{context}/restart", INTERACT)
        .describe("restartContext", Tag::Code, "Restart a context", "Replaces the kernel of the context by a new one, without the state of the old one. Code that runs in it ends with the exception `KernelDied`.")
        .parameters([Parameter::SANDBOX_ID, Parameter::CONTEXT_ID])
        .returns::<CodeContext>(StatusCode::OK, "The context.")
        .errors(FAILURES)
        .errors(NO_CONTEXT)
        .handler(restart)
}

/// A context as the program inside describes it.
#[derive(Deserialize)]
struct Described {
    id: String,
    language: String,
    cwd: String,
}

impl Described {
    fn view(self) -> Result<CodeContext, ApiError> {
        if !rules::is_context_id(&self.id) {
            return Err(malformed());
        }
        Ok(CodeContext { context_id: self.id, language: self.language, cwd: self.cwd })
    }
}

fn malformed() -> ApiError {
    invalid_interpreter("its response is malformed")
}

async fn list(call: Call) -> Result<Json<CodeContextList>, ApiError> {
    let sandbox = RequestedSandbox::of(&call, OperationKind::Execute)?;
    let text = ask(&sandbox, (Method::GET, "/contexts", None), None).await?;
    let contexts: Vec<Described> = serde_json::from_slice(&text).map_err(|_| malformed())?;
    let data = contexts.into_iter().map(Described::view).collect::<Result<_, _>>()?;
    Json::ok(&CodeContextList { data })
}

async fn create(call: Call<Caller, JsonBody<CodeContextBody>>) -> Result<Json<CodeContext>, ApiError> {
    let (call, body) = call.split_body();
    let request = SandboxRequest::find(&call, OperationKind::Execute).await?;
    let text = serialize(&request.content(body, &()).await?)?;
    let text = ask(&request.sandbox, (Method::POST, "/contexts", Some(text)), None).await?;
    Json::created(&serde_json::from_slice::<Described>(&text).map_err(|_| malformed())?.view()?)
}

async fn remove(call: Call) -> Result<Json<CodeContextRemoved>, ApiError> {
    let (sandbox, context) = named(&call)?;
    let path = format!("/contexts/{context}");
    ask(&sandbox, (Method::DELETE, &path, None), Some(&context)).await?;
    Json::ok(&CodeContextRemoved { context_id: context, removed: true })
}

async fn restart(call: Call) -> Result<Json<CodeContext>, ApiError> {
    let (sandbox, context) = named(&call)?;
    let path = format!("/contexts/{context}/restart");
    let text = ask(&sandbox, (Method::POST, &path, None), Some(&context)).await?;
    Json::ok(&serde_json::from_slice::<Described>(&text).map_err(|_| malformed())?.view()?)
}

/// The sandbox and the context in the path.
fn named(call: &Call) -> Result<(RequestedSandbox, String), ApiError> {
    let sandbox = RequestedSandbox::of(call, OperationKind::Execute)?;
    let context = read::segment(&call.parts.uri, 6);
    if rules::is_context_id(&context) { Ok((sandbox, context)) } else { Err(no_context(&context)) }
}

/// Sends a request to the program inside and returns the body of its response.
async fn ask(
    sandbox: &RequestedSandbox,
    (method, path, body): (Method, &str, Option<Bytes>),
    context: Option<&str>,
) -> Result<Bytes, ApiError> {
    let asking = async {
        let admission = sandbox.handle().admit_execution(AutoResume::Allowed).await;
        let admission = admission.map_err(|error| sandbox.fault(error))?;
        let connection = interpreter::connect(admission).await;
        let connection = connection.map_err(|error| error.of_sandbox(&sandbox.id))?;
        let reply = interpreter::request(connection, method, path, body).await?;
        if reply.head.status.is_success() {
            reply.document().await
        } else {
            Err(refusal(sandbox, reply, context).await)
        }
    };
    let late = || invalid_interpreter(&format!("it did not answer within {} s", TIMEOUT.as_secs()));
    tokio::time::timeout(TIMEOUT, asking).await.map_err(|_| late())?
}
