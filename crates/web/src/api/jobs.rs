//! Scheduled work over HTTP. Errors are plain here: `{"error": "…"}` is what clients of jobs know.

use axum::Json;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use petasos_core::cron::{Change, JobId, NewJob};
use petasos_gateway::cron::Scheduled;
use serde_json::{Value, json};

use super::asked::{Fields, fields};
use super::{Api, Id};
use crate::error::ApiError;

/// Where timers of others call.
pub(super) const FIRE: &str = "/api/cron/fire";
const NAME: usize = 200;
const PROMPT: usize = 5000;
const CHANGED: [&str; 8] = ["name", "schedule", "prompt", "deliver", "skills", "skill", "repeat", "enabled"];

type Answer = Result<Json<Value>, ApiError>;

pub(super) async fn list(State(api): State<Api>) -> Answer {
    let jobs = api.handle.jobs().await?;
    let jobs: Vec<_> = jobs.iter().map(|job| api.job(job)).collect();
    Ok(Json(json!({ "jobs": jobs })))
}

pub(super) async fn create(State(api): State<Api>, request: Request) -> Answer {
    let fields = fields(request).await?;
    let name = text(&fields, "name", NAME)?.ok_or_else(|| ApiError::bad_job("Name is required"))?;
    let schedule =
        text(&fields, "schedule", NAME)?.ok_or_else(|| ApiError::bad_job("Schedule is required"))?;
    let new = NewJob {
        name: Some(name),
        schedule,
        prompt: text(&fields, "prompt", PROMPT)?.unwrap_or_default(),
        // Nobody can be told here afterwards: it goes into a file unless it is sent somewhere.
        deliver: Some(text(&fields, "deliver", PROMPT)?.unwrap_or_else(|| "local".into())),
        repeat: repeat(&fields)?,
        timezone: text(&fields, "timezone", NAME)?,
    };
    let job = api.handle.job_create(new, None).await?;
    Ok(Json(json!({ "job": api.job(&job) })))
}

pub(super) async fn show(State(api): State<Api>, Id(id): Id) -> Answer {
    let job = api.handle.job(&name(&id)?).await?;
    Ok(Json(json!({ "job": api.job(&job) })))
}

pub(super) async fn change(State(api): State<Api>, Id(id): Id, request: Request) -> Answer {
    let id = name(&id)?;
    let fields = fields(request).await?;
    if !fields.keys().any(|name| CHANGED.contains(&name.as_str())) {
        return Err(ApiError::bad_job("No valid fields to update"));
    }
    if fields.contains_key("skills") || fields.contains_key("skill") {
        return Err(ApiError::bad_job("Jobs have no skills here"));
    }
    let enabled = match fields.get("enabled") {
        None | Some(Value::Null) => None,
        Some(Value::Bool(enabled)) => Some(*enabled),
        Some(_) => return Err(ApiError::bad_job("'enabled' must be true or false")),
    };
    let change = Change {
        name: text(&fields, "name", NAME)?,
        schedule: text(&fields, "schedule", NAME)?,
        prompt: text(&fields, "prompt", PROMPT)?,
        deliver: text(&fields, "deliver", PROMPT)?,
        repeat: repeat(&fields)?,
        enabled,
    };
    let job = api.handle.job_change(&id, change).await?;
    Ok(Json(json!({ "job": api.job(&job) })))
}

pub(super) async fn delete(State(api): State<Api>, Id(id): Id) -> Answer {
    api.handle.job_remove(&name(&id)?).await?;
    Ok(Json(json!({ "ok": true })))
}

pub(super) async fn pause(State(api): State<Api>, Id(id): Id) -> Answer {
    api.set_enabled(&id, false).await
}

pub(super) async fn resume(State(api): State<Api>, Id(id): Id) -> Answer {
    api.set_enabled(&id, true).await
}

pub(super) async fn run(State(api): State<Api>, Id(id): Id) -> Answer {
    let job = api.handle.job_run(&name(&id)?).await?;
    Ok(Json(json!({ "job": api.job(&job) })))
}

/// A timer of somebody else's fires a job. Its token is a key that may do so.
pub(super) async fn fire(State(api): State<Api>, request: Request) -> Result<Response, ApiError> {
    let fields = fields(request).await?;
    let id = text(&fields, "job_id", NAME)?.ok_or_else(|| ApiError::bad_job("job_id is required"))?;
    api.handle.job_run(&name(&id)?).await?;
    let accepted = json!({ "status": "accepted", "job_id": id });
    Ok((StatusCode::ACCEPTED, Json(accepted)).into_response())
}

impl Api {
    async fn set_enabled(&self, id: &str, enabled: bool) -> Answer {
        let change = Change { enabled: Some(enabled), ..Change::default() };
        let job = self.handle.job_change(&name(id)?, change).await?;
        Ok(Json(json!({ "job": self.job(&job) })))
    }

    fn job(&self, job: &Scheduled) -> Value {
        job.to_json(self.handle.cron_settings())
    }
}

fn name(id: &str) -> Result<JobId, ApiError> {
    JobId::parse(id).ok_or_else(ApiError::bad_job_id)
}

fn text(fields: &Fields, name: &str, longest: usize) -> Result<Option<String>, ApiError> {
    match fields.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) if text.chars().count() > longest => {
            Err(ApiError::bad_job(format!("'{name}' must be at most {longest} characters")))
        }
        Some(Value::String(text)) => Ok(Some(text.trim().to_owned()).filter(|text| !text.is_empty())),
        Some(_) => Err(ApiError::bad_job(format!("'{name}' must be a string"))),
    }
}

fn repeat(fields: &Fields) -> Result<Option<u32>, ApiError> {
    match fields.get("repeat") {
        None | Some(Value::Null) => Ok(None),
        Some(value) => {
            let times =
                value.as_u64().and_then(|times| u32::try_from(times).ok()).filter(|times| *times >= 1);
            times.map(Some).ok_or_else(|| ApiError::bad_job("'repeat' must be a whole number of at least 1"))
        }
    }
}
