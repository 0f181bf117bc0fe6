//! The service `filesystem.Filesystem`: details, directories, and watches of paths.
//!
//! Called by the router of this module. The agent resolves paths on behalf of the user.

pub mod entry;
mod listing;
mod messages;
mod watch_stream;
mod watchers;

use axum::http::StatusCode;
use axum::response::Response;
use engine::{FileKind, PathDetails, UserFileOp};
use rules::AutoResume;
use serde_json::{Value, json};

use super::call::{EnvdCall, granted_stream};
use super::connect::{Code, MAX_SHORT_MESSAGE, RpcError, single_message, unary_message};
use super::failure::{Failure, json_response};
use super::proto_json::parse;
use super::target::Target;
use entry::METADATA_PREFIX;
use listing::Listing;
use messages::{ListRequest, MoveRequest, PathRequest, WatchRequest, WatcherRequest};
use watch_stream::WatchStream;
pub use watchers::Watchers;

/// Most levels of a listing.
const MAX_DEPTH: u32 = 64;

/// A unary method.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unary {
    ListDir,
    Stat,
    MakeDir,
    Move,
    Remove,
    CreateWatcher,
    GetWatcherEvents,
    RemoveWatcher,
}

/// Runs a unary method.
pub async fn unary(call: EnvdCall, method: Unary, watchers: &Watchers) -> Result<Response, Failure> {
    let EnvdCall { target, user, options, body, .. } = call;
    let json = unary_message(body, &target.buffers(), MAX_SHORT_MESSAGE).await?;
    let work = async {
        let response = match method {
            Unary::ListDir => return list(&target, &user, &parse(&json)?).await,
            Unary::Stat => {
                let PathRequest { path } = parse(&json)?;
                entry_response(&describe(&target, &user, path.as_bytes()).await?)
            }
            Unary::MakeDir => make_dir(&target, &user, &parse(&json)?).await?,
            Unary::Move => {
                let MoveRequest { source, destination } = parse(&json)?;
                let op =
                    UserFileOp::Rename { from: source.into_bytes(), to: destination.clone().into_bytes() };
                details(&target, &user, &op).await?;
                // The answer to a rename has no metadata.
                entry_response(&describe(&target, &user, destination.as_bytes()).await?)
            }
            Unary::Remove => remove(&target, &user, &parse(&json)?).await?,
            Unary::CreateWatcher => {
                let WatchRequest { path, recursive, include_entry } = parse(&json)?;
                let watch =
                    target.sandbox().watch(AutoResume::Forbidden, &user, path.as_bytes(), recursive).await;
                let watch = watch.map_err(|error| of_files(error, &user))?;
                let id = watchers.add(&target, &user, path, include_entry, watch)?;
                json!({ "watcherId": id })
            }
            Unary::GetWatcherEvents => {
                let WatcherRequest { watcher_id } = parse(&json)?;
                json!({ "events": watchers.events(&target, &watcher_id).await? })
            }
            Unary::RemoveWatcher => {
                let WatcherRequest { watcher_id } = parse(&json)?;
                watchers.remove(&target.id, &watcher_id)?;
                json!({})
            }
        };
        Ok(json_response(StatusCode::OK, &response))
    };
    match options.timeout {
        None => work.await,
        Some(timeout) => tokio::time::timeout(timeout, work)
            .await
            .map_err(|_| Failure::new(Code::DeadlineExceeded, "the deadline of the call is over"))?,
    }
}

/// Streams the events of a directory.
pub async fn watch(call: EnvdCall) -> Result<Response, Failure> {
    let EnvdCall { target, user, options, body, grant } = call;
    let json = single_message(body, &target.buffers(), MAX_SHORT_MESSAGE).await?;
    let WatchRequest { path, recursive, include_entry } = parse(&json)?;
    let watch = target.sandbox().watch(AutoResume::Forbidden, &user, path.as_bytes(), recursive).await;
    let watch = watch.map_err(|error| of_files(error, &user))?;
    let stream = WatchStream::new(target.clone(), user, path, include_entry, watch, &options);
    Ok(granted_stream(stream.into_stream(), target, grant))
}

/// Each entry is written as soon as the agent sends it: only the text of the response is held.
async fn list(target: &Target, user: &str, request: &ListRequest) -> Result<Response, Failure> {
    let depth = request.depth.0.clamp(1, MAX_DEPTH);
    let op = UserFileOp::ListTree {
        path: request.path.clone().into_bytes(),
        depth,
        prefix: Some(METADATA_PREFIX.to_owned()),
    };
    let started = target.sandbox().user_file_op(AutoResume::Forbidden, user, &op).await;
    let operation = started.map_err(|error| of_files(error, user))?;
    let (mut tree, mut listing) = (operation.into_tree(), Listing::new(target.response_memory()));
    while let Some(details) = tree.next().await.map_err(|error| of_files(error, user))? {
        listing.push(&details).await?;
    }
    listing.into_response().await
}

async fn make_dir(target: &Target, user: &str, request: &PathRequest) -> Result<Value, Failure> {
    let op = UserFileOp::MakeDirs { path: request.path.clone().into_bytes() };
    match details(target, user, &op).await {
        Ok(made) => Ok(entry_response(&made)),
        Err(failure) if failure.code() == Some(Code::AlreadyExists) => {
            let found = describe(target, user, request.path.as_bytes()).await?;
            let kind = found.link.as_ref().map_or(found.info.kind, |link| link.kind);
            if kind == FileKind::Directory {
                return Err(failure);
            }
            let message =
                format!("path '{}' already exists and is not a directory", entry::text(&found.path));
            Err(RpcError::invalid(message).into())
        }
        Err(failure) => Err(failure),
    }
}

/// Removing what does not exist succeeds. An empty path is the home of the user, which nobody means to remove.
async fn remove(target: &Target, user: &str, request: &PathRequest) -> Result<Value, Failure> {
    if request.path.is_empty() {
        return Err(RpcError::invalid("the path is empty").into());
    }
    let op = UserFileOp::Remove { path: request.path.clone().into_bytes() };
    let removed = match target.sandbox().user_file_op(AutoResume::Forbidden, user, &op).await {
        Ok(operation) => operation.tally().await.map(drop),
        Err(error) => Err(error),
    };
    match removed.map_err(|error| of_files(error, user)) {
        Err(failure) if failure.code() != Some(Code::NotFound) => Err(failure),
        _ => Ok(json!({})),
    }
}

/// The details of a path, of a link itself.
pub async fn describe(target: &Target, user: &str, path: &[u8]) -> Result<PathDetails, Failure> {
    let op = UserFileOp::Describe { path: path.to_vec(), prefix: Some(METADATA_PREFIX.to_owned()) };
    details(target, user, &op).await
}

async fn details(target: &Target, user: &str, op: &UserFileOp) -> Result<PathDetails, Failure> {
    let started = target.sandbox().user_file_op(AutoResume::Forbidden, user, op).await;
    let operation = started.map_err(|error| of_files(error, user))?;
    operation.details().await.map_err(|error| of_files(error, user))
}

/// The failure of a file operation of a user.
pub fn of_files(error: engine::EngineError, user: &str) -> Failure {
    Failure::of(error).reworded(Code::Unauthenticated, || format!("invalid username: '{user}'"))
}

fn entry_response(details: &PathDetails) -> Value {
    json!({ "entry": entry::to_json(details) })
}
