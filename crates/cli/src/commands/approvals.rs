//! `petasos approvals`: kinds of commands that run unasked because somebody once said so, and how that ends.

use std::process::ExitCode;

use petasos_approval::Category;
use petasos_core::text::nearest;
use petasos_store::Allowed;
use serde_json::{Value, json};

use super::{Context, reader, write};
use crate::arguments::{Approvals, ApprovalsAction};
use crate::client::Client;
use crate::failure::Failure;
use crate::print::{self, ago, count, now, say};

pub async fn approvals(context: &Context, wanted: Approvals) -> Result<ExitCode, Failure> {
    match wanted.action.unwrap_or(ApprovalsAction::List) {
        ApprovalsAction::List => list(context),
        ApprovalsAction::Revoke { kind, all: _ } => revoke(context, kind).await,
    }
}

/// They are in the database; reading it needs nobody's help.
fn list(context: &Context) -> Result<ExitCode, Failure> {
    let allowed = match reader(&context.home)? {
        Some(reader) => reader.all_approved()?,
        None => Vec::new(),
    };
    if context.json {
        let entry = |it: &Allowed| json!({ "kind": it.kind, "what": what(it), "session": it.session, "since": it.since });
        print::json(&allowed.iter().map(entry).collect::<Vec<_>>())?;
        return Ok(ExitCode::SUCCESS);
    }
    if allowed.is_empty() {
        say!("nothing runs unasked by anybody's word; the settings may allow more (petasos config show)");
        return Ok(ExitCode::SUCCESS);
    }
    let row = |it: &Allowed| {
        let reach = it.session.as_ref().map_or_else(|| "everywhere".to_owned(), ToString::to_string);
        vec![it.kind.clone(), what(it).to_owned(), reach, ago(it.since, now())]
    };
    let rows: Vec<_> = allowed.iter().map(row).collect();
    print::table(&["KIND", "WHAT IT DOES", "WHERE", "SINCE"], &rows);
    Ok(ExitCode::SUCCESS)
}

fn what(allowed: &Allowed) -> &'static str {
    Category::from_key(&allowed.kind).map_or("of another version; it is asked about", Category::sentence)
}

async fn revoke(context: &Context, kind: Option<String>) -> Result<ExitCode, Failure> {
    let revoked = match Client::connect(&context.home)? {
        Some(client) => {
            let body = kind.as_ref().map_or_else(|| json!({}), |kind| json!({ "kind": kind }));
            let told: Value = client.post("/api/approvals/revoke", &body).await?;
            told["revoked"].as_u64().unwrap_or_default()
        }
        None if reader(&context.home)?.is_none() => 0,
        None => write(&context.home, |tx| tx.forget_approved(kind.as_deref()))? as u64,
    };
    if let (Some(kind), 0) = (&kind, revoked) {
        return Err(unknown(kind));
    }
    if context.json {
        print::json(&json!({ "revoked": revoked }))?;
        return Ok(ExitCode::SUCCESS);
    }
    match kind {
        Some(kind) => say!("{kind} is asked about again"),
        None => say!(
            "everything is asked about again; {} revoked",
            count(revoked, "approval was", "approvals were")
        ),
    }
    Ok(ExitCode::SUCCESS)
}

fn unknown(kind: &str) -> Failure {
    let failure = Failure::new(format!("{kind} was not allowed for longer than once"));
    match nearest(kind, Category::ALL.iter().map(|category| category.key())).filter(|meant| *meant != kind) {
        Some(meant) => failure.next(format!("did you mean {meant}?")),
        None => failure.next("petasos approvals lists what was"),
    }
}
