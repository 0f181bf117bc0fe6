//! Internal errors of the SQLite store, and their conversion to [`StoreError`].

use std::error::Error;
use std::path::Path;

use rusqlite::ErrorCode;

use crate::{StoreCause, StoreError};

pub(super) type SqliteResult<T> = Result<T, SqliteError>;

#[derive(Debug)]
pub(super) enum SqliteError {
    Sql(rusqlite::Error),
    /// A row has content that this program does not write.
    Content(InvalidContent),
    /// The write is not allowed; the database is intact.
    Refused(StoreError),
}

#[derive(Debug, thiserror::Error)]
#[error("{what}: {source}")]
pub(super) struct InvalidContent {
    what: &'static str,
    source: Box<dyn Error + Send + Sync>,
}

impl From<rusqlite::Error> for SqliteError {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sql(error)
    }
}

impl SqliteError {
    pub(super) fn content(what: &'static str, source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self::Content(InvalidContent { what, source: source.into() })
    }

    pub(super) fn into_store_error(self, path: &Path, step: &'static str) -> StoreError {
        match self {
            Self::Refused(error) => error,
            Self::Content(content) => {
                StoreError::Damaged { path: path.to_owned(), source: StoreCause::new(content) }
            }
            Self::Sql(error) => {
                let damaged = match &error {
                    rusqlite::Error::FromSqlConversionFailure(..)
                    | rusqlite::Error::IntegralValueOutOfRange(..)
                    | rusqlite::Error::InvalidColumnType(..) => true,
                    other => matches!(
                        other.sqlite_error_code(),
                        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase)
                    ),
                };
                if damaged {
                    StoreError::Damaged { path: path.to_owned(), source: StoreCause::new(error) }
                } else {
                    StoreError::failed(step, error)
                }
            }
        }
    }
}
