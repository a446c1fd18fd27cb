//! `petasos cron`: manages scheduled jobs.

use std::process::ExitCode;

use serde_json::{Value, json};

use crate::arguments::{CronAction, CronAddArguments, CronArguments};
use crate::client::Client;
use crate::commands::Context;
use crate::failure::Failure;
use crate::print::{self, DIM, outln, styled, truncate};

pub async fn cron(context: &Context, arguments: CronArguments) -> Result<ExitCode, Failure> {
    let client = Client::require(&context.home)?;
    let verb = |id: &str, verb: &str| format!("/api/schedule/{id}/{verb}");
    let (response, outcome) = match arguments.action.unwrap_or(CronAction::List) {
        CronAction::List => return list(context, &client.get("/api/schedule").await?),
        CronAction::Add(new) => (client.post("/api/schedule", &body(new)).await?, "was added"),
        CronAction::Pause { id } => (client.post(&verb(&id, "pause"), &json!({})).await?, "is paused"),
        CronAction::Resume { id } => (client.post(&verb(&id, "resume"), &json!({})).await?, "is resumed"),
        CronAction::Run { id } => (client.post(&verb(&id, "run"), &json!({})).await?, "was started"),
        CronAction::Remove { id } => {
            let _done: Value = client.delete(&format!("/api/schedule/{id}")).await?;
            (json!({ "job": { "id": id } }), "was removed")
        }
    };
    let job: &Value = &response["job"];
    if context.json {
        print::json(job)?;
        return Ok(ExitCode::SUCCESS);
    }
    let next = job["next_run_at"].as_str().map(|at| format!("; next run at {at}")).unwrap_or_default();
    outln!("Job {} {outcome}{next}", job["id"].as_str().unwrap_or_default());
    Ok(ExitCode::SUCCESS)
}

fn body(new: CronAddArguments) -> Value {
    let CronAddArguments { schedule, prompt, name, deliver, repeat, timezone } = new;
    let body = json!({
        "schedule": schedule,
        "prompt": prompt.join(" "),
        "name": name,
        "deliver": deliver,
        "repeat": repeat,
        "timezone": timezone,
    });
    // Options that were not given are omitted.
    match body {
        Value::Object(fields) => fields.into_iter().filter(|(_, value)| !value.is_null()).collect(),
        other => other,
    }
}

fn list(context: &Context, response: &Value) -> Result<ExitCode, Failure> {
    if context.json {
        print::json(&response["jobs"])?;
        return Ok(ExitCode::SUCCESS);
    }
    let text = |job: &Value, name: &str| job[name].as_str().unwrap_or("-").to_owned();
    let jobs = response["jobs"].as_array().cloned().unwrap_or_default();
    if jobs.is_empty() {
        outln!(
            "No scheduled jobs; {}",
            styled(DIM, "add one with petasos cron add '0 9 * * *' 'what is in the news?'")
        );
        return Ok(ExitCode::SUCCESS);
    }
    let rows: Vec<_> = jobs
        .iter()
        .map(|job| {
            vec![
                text(job, "id"),
                truncate(&text(job, "name"), 30),
                text(job, "schedule_display"),
                text(job, "state"),
                text(job, "next_run_at"),
                text(job, "last_status"),
                truncate(&text(job, "deliver"), 30),
            ]
        })
        .collect();
    print::table(&["ID", "NAME", "SCHEDULE", "STATE", "NEXT", "LAST", "DELIVER"], &rows);
    Ok(ExitCode::SUCCESS)
}
