//! Store errors, classified by how the caller must react. Errors never contain message text.

use std::path::PathBuf;

use petasos_core::Fault;
use rusqlite::ErrorCode;

use crate::connection::files::DetachedFile;

/// A read or write failed. Its transaction was rolled back.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    #[error("the disk is full")]
    Full,
    #[error("the database cannot be written: file or directory is read-only")]
    ReadOnly,
    #[error("the database is damaged: {0}")]
    Corrupt(String),
    /// The first page is not a readable database header.
    #[error("the file is not a database")]
    NotDatabase,
    #[error("reading or writing the database file failed: {0}")]
    Io(String),
    /// The commit went into files that are no longer linked at their paths.
    #[error("{0} was removed or replaced by another program")]
    Detached(DetachedFile),
    #[error("another process holds the database")]
    Busy,
    /// The row is not in the state that the write requires, e.g. the turn has already ended.
    #[error("refused: {0}")]
    Conflict(&'static str),
    #[error("no such {0}")]
    Missing(&'static str),
    /// A stored value does not parse as the type of its column.
    #[error("a stored {0} cannot be read")]
    Unreadable(&'static str),
    #[error("an earlier job broke the transaction")]
    Broken,
    #[error("database: {0}")]
    Sql(String),
}

pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// Whether a salvage is necessary.
    pub const fn is_damage(&self) -> bool {
        match self {
            Self::Corrupt(_) | Self::NotDatabase | Self::Unreadable(_) => true,
            Self::Full
            | Self::ReadOnly
            | Self::Io(_)
            | Self::Detached(_)
            | Self::Busy
            | Self::Conflict(_)
            | Self::Missing(_)
            | Self::Broken
            | Self::Sql(_) => false,
        }
    }

    /// Classifies the error: retry later, refused, or fatal until an operator acts.
    pub fn fault(&self) -> Fault {
        match self {
            Self::Full | Self::Io(_) | Self::Busy | Self::Broken | Self::Detached(_) => {
                Fault::Later { after: None }
            }
            Self::Conflict(_) | Self::Missing(_) | Self::Unreadable(_) | Self::Sql(_) => Fault::Refused,
            Self::ReadOnly | Self::Corrupt(_) | Self::NotDatabase => Fault::Fatal,
        }
    }
}

impl From<rusqlite::Error> for Error {
    fn from(error: rusqlite::Error) -> Self {
        match error {
            rusqlite::Error::SqliteFailure(code, detail) => {
                // SQLite's extended text names tables and columns, never values.
                from_code(code.code, detail.unwrap_or_else(|| code.to_string()))
            }
            rusqlite::Error::QueryReturnedNoRows => Self::Missing("row"),
            rusqlite::Error::FromSqlConversionFailure(..)
            | rusqlite::Error::IntegralValueOutOfRange(..)
            | rusqlite::Error::InvalidColumnType(..)
            | rusqlite::Error::Utf8Error(..) => Self::Unreadable("column"),
            other => Self::Sql(other.to_string()),
        }
    }
}

fn from_code(code: ErrorCode, detail: String) -> Error {
    match code {
        ErrorCode::DiskFull => Error::Full,
        ErrorCode::ReadOnly | ErrorCode::PermissionDenied | ErrorCode::AuthorizationForStatementDenied => {
            Error::ReadOnly
        }
        ErrorCode::DatabaseCorrupt => Error::Corrupt(detail),
        ErrorCode::NotADatabase => Error::NotDatabase,
        ErrorCode::SystemIoFailure | ErrorCode::CannotOpen | ErrorCode::OutOfMemory => Error::Io(detail),
        ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked | ErrorCode::FileLockingProtocolFailed => {
            Error::Busy
        }
        ErrorCode::ConstraintViolation => Error::Conflict("a row with this identity already exists"),
        _ => Error::Sql(detail),
    }
}

/// The database was not opened, and the files were left unchanged.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error("{path} was written by a newer version (schema {found}, this one knows {known}); upgrade Petasos", path = .path.display())]
    Newer { path: PathBuf, found: u32, known: u32 },
    #[error("{path} still has schema {found} (this version reads {known}); start the gateway once to upgrade it", path = .path.display())]
    Older { path: PathBuf, found: u32, known: u32 },
    #[error("{path} is damaged ({detail})", path = .path.display())]
    Corrupt { path: PathBuf, detail: String },
    #[error("{path} is missing, although {sign} shows that it existed", path = .path.display(), sign = .sign.display())]
    Vanished { path: PathBuf, sign: PathBuf },
    #[error("{path} is not a Petasos database; move it away or choose another home", path = .path.display())]
    Foreign { path: PathBuf },
    #[error("{path} does not exist; the gateway creates it when it first runs", path = .path.display())]
    Absent { path: PathBuf },
    #[error("{path} is not a directory that exists", path = .path.display())]
    NoDirectory { path: PathBuf },
    #[error("{path}: {error}", path = .path.display())]
    Failed { path: PathBuf, error: Error },
}

impl From<std::io::Error> for Error {
    fn from(error: std::io::Error) -> Self {
        match error.kind() {
            std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded => Self::Full,
            std::io::ErrorKind::ReadOnlyFilesystem | std::io::ErrorKind::PermissionDenied => Self::ReadOnly,
            _ => Self::Io(error.to_string()),
        }
    }
}
