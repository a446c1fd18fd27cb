//! Scheduled work, over the control socket.

use axum::Json;
use axum::extract::State;
use petasos_core::cron::{Change, JobId, NewJob};
use petasos_gateway::Handle;
use petasos_gateway::cron::JobError;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::extract::{Body, Named, Shape};
use crate::refusal::Refusal;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Wanted {
    name: Option<String>,
    schedule: String,
    prompt: String,
    deliver: Option<String>,
    repeat: Option<u32>,
    timezone: Option<String>,
}

impl Shape for Wanted {
    const FIELDS: &'static [&'static str] = &["name", "schedule", "prompt", "deliver", "repeat", "timezone"];
    const OPTIONAL: &'static [&'static str] = &["name", "deliver", "repeat", "timezone"];
    const NUMBERS: &'static [&'static str] = &["repeat"];
}

type Answer = Result<Json<Value>, Refusal>;

pub(crate) async fn list(State(handle): State<Handle>) -> Answer {
    let jobs = handle.jobs().await.map_err(refused)?;
    let jobs: Vec<_> = jobs.iter().map(|job| job.to_json(handle.schedule())).collect();
    Ok(Json(json!({ "jobs": jobs })))
}

pub(crate) async fn add(State(handle): State<Handle>, Body(wanted): Body<Wanted>) -> Answer {
    let Wanted { name, schedule, prompt, deliver, repeat, timezone } = wanted;
    let new = NewJob { name, schedule, prompt, deliver, repeat, timezone };
    let job = handle.job_create(new, None).await.map_err(refused)?;
    Ok(Json(json!({ "job": job.to_json(handle.schedule()) })))
}

pub(crate) async fn remove(State(handle): State<Handle>, Named(id): Named<String>) -> Answer {
    handle.job_remove(&named(&id)?).await.map_err(refused)?;
    Ok(Json(json!({ "done": true })))
}

pub(crate) async fn pause(State(handle): State<Handle>, Named(id): Named<String>) -> Answer {
    enable(&handle, &id, false).await
}

pub(crate) async fn resume(State(handle): State<Handle>, Named(id): Named<String>) -> Answer {
    enable(&handle, &id, true).await
}

pub(crate) async fn run(State(handle): State<Handle>, Named(id): Named<String>) -> Answer {
    let job = handle.job_run(&named(&id)?).await.map_err(refused)?;
    Ok(Json(json!({ "job": job.to_json(handle.schedule()) })))
}

async fn enable(handle: &Handle, id: &str, enabled: bool) -> Answer {
    let change = Change { enabled: Some(enabled), ..Change::default() };
    let job = handle.job_change(&named(id)?, change).await.map_err(refused)?;
    Ok(Json(json!({ "job": job.to_json(handle.schedule()) })))
}

fn named(id: &str) -> Result<JobId, Refusal> {
    JobId::parse(id).ok_or_else(|| Refusal::bad_request("a job's id has twelve hexadecimal digits"))
}

fn refused(error: JobError) -> Refusal {
    match error {
        JobError::Bad(why) => Refusal::bad_request(why),
        JobError::NotFound => Refusal::not_found(error.to_string()),
        JobError::Gateway(error) => error.into(),
    }
}
