//! Conversion between Rust types and SQLite column values.

use petasos_core::Millis;
use rusqlite::{Row, RowIndex};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::{Error, Result};

pub(crate) fn at(time: Millis) -> i64 {
    i64::try_from(time.0).unwrap_or(i64::MAX)
}

pub(crate) fn time(stored: i64) -> Millis {
    Millis(u64::try_from(stored).unwrap_or(0))
}

pub(crate) fn time_at(row: &Row<'_>, column: impl RowIndex) -> Result<Millis> {
    Ok(time(row.get(column)?))
}

/// Borrows the text; `row.get` would copy it.
pub(crate) fn text_at<'a>(row: &'a Row<'_>, column: usize) -> Result<&'a str> {
    row.get_ref(column)?.as_str().map_err(|_| Error::Unreadable("column"))
}

pub(crate) fn text_or_none<'a>(row: &'a Row<'_>, column: usize) -> Result<Option<&'a str>> {
    row.get_ref(column)?.as_str_or_null().map_err(|_| Error::Unreadable("column"))
}

/// Maps an unreadable value to `None`, so that one bad row does not fail a whole list.
pub(crate) fn skip_unreadable<T>(read: Result<T>) -> Option<Result<T>> {
    match read {
        Err(Error::Unreadable(_)) => None,
        read => Some(read),
    }
}

pub(crate) fn count(stored: i64) -> u64 {
    u64::try_from(stored).unwrap_or(0)
}

pub(crate) fn amount(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

pub(crate) fn sql_limit(limit: usize) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX)
}

/// `what` names the value in the error; the parser's message could quote its text.
pub(crate) fn parse<T: DeserializeOwned>(text: &str, what: &'static str) -> Result<T> {
    serde_json::from_str(text).map_err(|_quotes_text| Error::Unreadable(what))
}

pub(crate) fn json<T: Serialize + ?Sized>(value: &T) -> Result<String> {
    serde_json::to_string(value).map_err(|_| Error::Unreadable("value"))
}
