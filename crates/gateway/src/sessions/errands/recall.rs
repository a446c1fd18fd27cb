//! The `session_search` tool: searches the person's earlier conversations.

use petasos_agent::SessionCtx;
use petasos_core::Millis;
use petasos_core::ids::RowId;
use serde_json::json;

use super::{ErrandResult, error_text, person_of};
use crate::storage::database::Db;

/// Rows returned before and after the requested one.
const CONTEXT_ROWS: usize = 6;
/// Maximum characters of one row.
const MAX_ROW_CHARS: usize = 4000;

pub(super) async fn search(db: &Db, ctx: &SessionCtx, query: String, limit: usize) -> ErrandResult {
    let person_of = person_of(ctx);
    let found = db.read(move |reader| {
        let hits = reader.search_person(&person_of, &query, limit)?;
        hits.into_iter()
            .map(|hit| {
                let title = reader.session(&hit.session)?.and_then(|session| session.title);
                Ok((hit, title))
            })
            .collect::<Result<Vec<_>, _>>()
    });
    let results: Vec<_> = found
        .await
        .map_err(error_text)?
        .into_iter()
        .map(|(hit, title)| {
            json!({
                "row": hit.row,
                "session": hit.session,
                "title": title,
                "role": hit.role,
                "when": format_time(hit.at),
                "snippet": hit.snippet,
                "here": hit.session == ctx.session,
            })
        })
        .collect();
    Ok(json!({"count": results.len(), "results": results}))
}

pub(super) async fn around(db: &Db, ctx: &SessionCtx, row: RowId) -> ErrandResult {
    let person_of = person_of(ctx);
    let found =
        db.read(move |reader| reader.rows_around(&person_of, row, CONTEXT_ROWS)).await.map_err(error_text)?;
    // The same reply for another person's row: its existence is not revealed.
    let (session, rows) = found.ok_or_else(|| format!("There is no row {row}."))?;
    let shorten = |text: String| match text.char_indices().nth(MAX_ROW_CHARS) {
        Some((end, _)) => format!("{}… (cut)", &text[..end]),
        None => text,
    };
    let rows: Vec<_> = rows
        .into_iter()
        .map(|row| {
            let message = row.message;
            json!({"row": row.id, "role": message.role, "when": format_time(message.at), "content": shorten(message.content)})
        })
        .collect();
    Ok(json!({"session": session, "rows": rows}))
}

fn format_time(at: Millis) -> String {
    let civil = petasos_store::local_time(at).civil();
    format!("{:04}-{:02}-{:02} {:02}:{:02}", civil.year, civil.month, civil.day, civil.hour, civil.minute)
}
