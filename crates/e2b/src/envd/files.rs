//! `/files`: downloads and uploads.

mod content_type;
mod download;
mod encoding;
mod inflate;
mod metadata;
mod range;
mod upload;

use axum::body::Body;
use axum::http::{StatusCode, request};
use axum::response::Response;

use super::auth;
use super::connect::RpcError;
use super::failure::{Failure, Form, json_response};
use super::query::FileQuery;
use super::session::{EnvdSession, Right};

/// Answers a request for a file.
pub async fn download(session: &EnvdSession, parts: &request::Parts) -> Response {
    let target = &session.target;
    let answered = async {
        let (user, path) = user_and_path(session, parts)?;
        download::answer(target, &user, &path, parts).await
    };
    answered.await.unwrap_or_else(|failure: Failure| failure.response(Form::Http, &target.shown_id))
}

/// Answers a request with files.
pub async fn upload(session: &EnvdSession, parts: &request::Parts, body: Body) -> Response {
    let target = &session.target;
    let answered = async {
        let (user, path) = user_and_path(session, parts)?;
        let written = upload::answer(target, &user, &path, &parts.headers, body).await?;
        Ok(json_response(StatusCode::OK, &written))
    };
    answered.await.unwrap_or_else(|failure: Failure| failure.response(Form::Http, &target.shown_id))
}

fn user_and_path(session: &EnvdSession, parts: &request::Parts) -> Result<(String, String), RpcError> {
    let query = FileQuery::parse(parts.uri.query())?;
    let default = session.target.defaults.user();
    let user = match (query.username.as_str(), &session.right) {
        // The owner of the token has signed the user, and the holder of the signature must not choose another one.
        ("", Right::Signed) => default.to_owned(),
        ("", _) => auth::user(&parts.headers, default)?,
        (name, _) => name.to_owned(),
    };
    Ok((user, query.path))
}
