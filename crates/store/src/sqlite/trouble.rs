//! Internal errors of the SQLite store, and their conversion to [`StoreError`].

use std::path::Path;

use rusqlite::ErrorCode;

use crate::StoreError;

pub(super) type Outcome<T> = Result<T, Trouble>;

#[derive(Debug)]
pub(super) enum Trouble {
    Sql(rusqlite::Error),
    /// A row has content that this program does not write.
    Content(String),
    /// The write is not allowed; the database is intact.
    Refused(StoreError),
}

impl From<rusqlite::Error> for Trouble {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sql(error)
    }
}

impl Trouble {
    pub(super) fn content(what: &str, error: impl std::fmt::Display) -> Self {
        Self::Content(format!("{what}: {error}"))
    }

    pub(super) fn explain(self, path: &Path, step: &'static str) -> StoreError {
        match self {
            Self::Refused(error) => error,
            Self::Content(reason) => StoreError::Damaged { path: path.to_owned(), reason },
            Self::Sql(error) => {
                let reason = error.to_string();
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
                    StoreError::Damaged { path: path.to_owned(), reason }
                } else {
                    StoreError::Failed { step, reason }
                }
            }
        }
    }
}
