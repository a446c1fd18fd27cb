//! Scheduled work, over the control socket.

use axum::Json;
use axum::extract::State;
use petasos_core::cron::{Change, JobId, NewJob};
use petasos_gateway::Handle;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::error::ApiError;
use crate::extract::{Body, Named, Shape};

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

type Answer = Result<Json<Value>, ApiError>;

pub(crate) async fn list(State(handle): State<Handle>) -> Answer {
    let jobs = handle.jobs().await?;
    let jobs: Vec<_> = jobs.iter().map(|job| job.to_json(handle.schedule())).collect();
    Ok(Json(json!({ "jobs": jobs })))
}

pub(crate) async fn add(State(handle): State<Handle>, Body(wanted): Body<Wanted>) -> Answer {
    let Wanted { name, schedule, prompt, deliver, repeat, timezone } = wanted;
    let new = NewJob { name, schedule, prompt, deliver, repeat, timezone };
    let job = handle.job_create(new, None).await?;
    Ok(Json(json!({ "job": job.to_json(handle.schedule()) })))
}

pub(crate) async fn remove(State(handle): State<Handle>, Named(id): Named<String>) -> Answer {
    handle.job_remove(&named(&id)?).await?;
    Ok(Json(json!({ "done": true })))
}

pub(crate) async fn pause(State(handle): State<Handle>, Named(id): Named<String>) -> Answer {
    enable(&handle, &id, false).await
}

pub(crate) async fn resume(State(handle): State<Handle>, Named(id): Named<String>) -> Answer {
    enable(&handle, &id, true).await
}

pub(crate) async fn run(State(handle): State<Handle>, Named(id): Named<String>) -> Answer {
    let job = handle.job_run(&named(&id)?).await?;
    Ok(Json(json!({ "job": job.to_json(handle.schedule()) })))
}

async fn enable(handle: &Handle, id: &str, enabled: bool) -> Answer {
    let change = Change { enabled: Some(enabled), ..Change::default() };
    let job = handle.job_change(&named(id)?, change).await?;
    Ok(Json(json!({ "job": job.to_json(handle.schedule()) })))
}

fn named(id: &str) -> Result<JobId, ApiError> {
    JobId::parse(id).ok_or_else(ApiError::bad_job_id)
}
