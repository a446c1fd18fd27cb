//! `petasos cron`: work that is done at its time.

use std::process::ExitCode;

use serde_json::{Value, json};

use super::Context;
use crate::arguments::{Cron, CronAction, NewCron};
use crate::client::Client;
use crate::failure::Failure;
use crate::print::{self, DIM, cut, say, styled};

pub async fn cron(context: &Context, wanted: Cron) -> Result<ExitCode, Failure> {
    let client = Client::require(&context.home)?;
    let verb = |id: &str, verb: &str| format!("/api/schedule/{id}/{verb}");
    let (answer, what) = match wanted.action.unwrap_or(CronAction::List) {
        CronAction::List => return list(context, &client.get("/api/schedule").await?),
        CronAction::Add(new) => (client.post("/api/schedule", &body(new)).await?, "is set"),
        CronAction::Pause { id } => (client.post(&verb(&id, "pause"), &json!({})).await?, "rests"),
        CronAction::Resume { id } => (client.post(&verb(&id, "resume"), &json!({})).await?, "goes on"),
        CronAction::Run { id } => (client.post(&verb(&id, "run"), &json!({})).await?, "runs now"),
        CronAction::Remove { id } => {
            let _done: Value = client.delete(&format!("/api/schedule/{id}")).await?;
            (json!({ "job": { "id": id } }), "is gone")
        }
    };
    let job: &Value = &answer["job"];
    if context.json {
        print::json(job)?;
        return Ok(ExitCode::SUCCESS);
    }
    let next = job["next_run_at"].as_str().map(|at| format!("; next at {at}")).unwrap_or_default();
    say!("job {} {what}{next}", job["id"].as_str().unwrap_or_default());
    Ok(ExitCode::SUCCESS)
}

fn body(new: NewCron) -> Value {
    let NewCron { schedule, prompt, name, deliver, repeat, timezone } = new;
    let wanted = json!({
        "schedule": schedule,
        "prompt": prompt.join(" "),
        "name": name,
        "deliver": deliver,
        "repeat": repeat,
        "timezone": timezone,
    });
    // What nobody said is not there.
    match wanted {
        Value::Object(fields) => fields.into_iter().filter(|(_, value)| !value.is_null()).collect(),
        other => other,
    }
}

fn list(context: &Context, answer: &Value) -> Result<ExitCode, Failure> {
    if context.json {
        print::json(&answer["jobs"])?;
        return Ok(ExitCode::SUCCESS);
    }
    let text = |job: &Value, name: &str| job[name].as_str().unwrap_or("-").to_owned();
    let jobs = answer["jobs"].as_array().cloned().unwrap_or_default();
    if jobs.is_empty() {
        say!("none; {}", styled(DIM, "petasos cron add '0 9 * * *' 'what is in the news?' sets one"));
        return Ok(ExitCode::SUCCESS);
    }
    let rows: Vec<_> = jobs
        .iter()
        .map(|job| {
            vec![
                text(job, "id"),
                cut(&text(job, "name"), 30),
                text(job, "schedule_display"),
                text(job, "state"),
                text(job, "next_run_at"),
                text(job, "last_status"),
                cut(&text(job, "deliver"), 30),
            ]
        })
        .collect();
    print::table(&["ID", "NAME", "SCHEDULE", "STATE", "NEXT", "LAST", "DELIVER"], &rows);
    Ok(ExitCode::SUCCESS)
}
