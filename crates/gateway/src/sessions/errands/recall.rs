//! What was said in earlier conversations of the same person.

use petasos_agent::SessionCtx;
use petasos_core::Millis;
use petasos_core::ids::RowId;
use serde_json::json;

use super::{Outcome, person, trouble};
use crate::storage::database::Db;

/// Rows before and after the one that is asked about.
const AROUND: usize = 6;
/// Characters of one of them.
const SHOWN: usize = 4000;

pub(super) async fn search(db: &Db, ctx: &SessionCtx, query: String, limit: usize) -> Outcome {
    let person = person(ctx);
    let found = db.read(move |reader| {
        let hits = reader.search_of(&person, &query, limit)?;
        hits.into_iter()
            .map(|hit| {
                let title = reader.session(&hit.session)?.and_then(|session| session.title);
                Ok((hit, title))
            })
            .collect::<Result<Vec<_>, _>>()
    });
    let results: Vec<_> = found
        .await
        .map_err(trouble)?
        .into_iter()
        .map(|(hit, title)| {
            json!({
                "row": hit.row,
                "session": hit.session,
                "title": title,
                "role": hit.role,
                "when": when(hit.at),
                "snippet": hit.snippet,
                "here": hit.session == ctx.session,
            })
        })
        .collect();
    Ok(json!({"count": results.len(), "results": results}))
}

pub(super) async fn around(db: &Db, ctx: &SessionCtx, row: RowId) -> Outcome {
    let person = person(ctx);
    let found = db.read(move |reader| reader.rows_around(&person, row, AROUND)).await.map_err(trouble)?;
    // Also for what is somebody else's: nobody learns that it is there.
    let (session, rows) = found.ok_or_else(|| format!("There is no row {row}."))?;
    let shown = |text: String| match text.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}… (cut)", &text[..end]),
        None => text,
    };
    let rows: Vec<_> = rows
        .into_iter()
        .map(|said| {
            let message = said.message;
            json!({"row": said.id, "role": message.role, "when": when(message.at), "content": shown(message.content)})
        })
        .collect();
    Ok(json!({"session": session, "rows": rows}))
}

fn when(at: Millis) -> String {
    let civil = petasos_store::local_time(at).civil();
    format!("{:04}-{:02}-{:02} {:02}:{:02}", civil.year, civil.month, civil.day, civil.hour, civil.minute)
}
