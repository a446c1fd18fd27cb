//! `petasos approvals`: lists and revokes lasting approvals.

use std::process::ExitCode;

use petasos_approval::Category;
use petasos_core::text::nearest;
use petasos_store::ApprovedCategory;
use serde_json::{Value, json};

use crate::arguments::{ApprovalsAction, ApprovalsArguments};
use crate::client::Client;
use crate::commands::{Context, open_reader, write_offline};
use crate::failure::Failure;
use crate::print::{self, ago, count, now, outln};

pub async fn approvals(context: &Context, arguments: ApprovalsArguments) -> Result<ExitCode, Failure> {
    match arguments.action.unwrap_or(ApprovalsAction::List) {
        ApprovalsAction::List => list(context),
        ApprovalsAction::Revoke { kind, all: _ } => revoke(context, kind).await,
    }
}

fn list(context: &Context) -> Result<ExitCode, Failure> {
    let allowed = match open_reader(&context.home)? {
        Some(reader) => reader.all_approved()?,
        None => Vec::new(),
    };
    if context.json {
        let entry = |it: &ApprovedCategory| json!({ "kind": it.kind, "what": description(it), "session": it.session, "since": it.since });
        print::json(&allowed.iter().map(entry).collect::<Vec<_>>())?;
        return Ok(ExitCode::SUCCESS);
    }
    if allowed.is_empty() {
        outln!("No lasting approvals. Settings may allow more (petasos config show)");
        return Ok(ExitCode::SUCCESS);
    }
    let row = |it: &ApprovedCategory| {
        let reach = it.session.as_ref().map_or_else(|| "everywhere".to_owned(), ToString::to_string);
        vec![it.kind.clone(), description(it).to_owned(), reach, ago(it.since, now())]
    };
    let rows: Vec<_> = allowed.iter().map(row).collect();
    print::table(&["KIND", "WHAT IT DOES", "WHERE", "SINCE"], &rows);
    Ok(ExitCode::SUCCESS)
}

fn description(allowed: &ApprovedCategory) -> &'static str {
    Category::from_key(&allowed.kind).map_or("unknown to this version; needs approval", Category::sentence)
}

async fn revoke(context: &Context, kind: Option<String>) -> Result<ExitCode, Failure> {
    let revoked = match Client::connect(&context.home)? {
        Some(client) => {
            let body = kind.as_ref().map_or_else(|| json!({}), |kind| json!({ "kind": kind }));
            let response: Value = client.post("/api/approvals/revoke", &body).await?;
            response["revoked"].as_u64().unwrap_or_default()
        }
        None if open_reader(&context.home)?.is_none() => 0,
        None => write_offline(&context.home, |tx| tx.forget_approved(kind.as_deref()))? as u64,
    };
    if let (Some(kind), 0) = (&kind, revoked) {
        return Err(unknown(kind));
    }
    if context.json {
        print::json(&json!({ "revoked": revoked }))?;
        return Ok(ExitCode::SUCCESS);
    }
    match kind {
        Some(kind) => outln!("Revoked. {kind} needs approval again"),
        None => outln!(
            "Every kind of command needs approval again; {} revoked",
            count(revoked, "approval was", "approvals were")
        ),
    }
    Ok(ExitCode::SUCCESS)
}

fn unknown(kind: &str) -> Failure {
    let failure = Failure::new(format!("{kind} has no lasting approval"));
    match nearest(kind, Category::ALL.iter().map(|category| category.key())).filter(|meant| *meant != kind) {
        Some(meant) => failure.next(format!("did you mean {meant}?")),
        None => failure.next("petasos approvals lists all"),
    }
}
