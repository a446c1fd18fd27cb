//! Scheduled jobs: one API for programs (`/api/jobs`) and for the control socket (`/api/schedule`).

use axum::Json;
use axum::extract::State;
use petasos_core::cron::{Change, JobId, NewJob};
use petasos_gateway::Handle;
use petasos_gateway::cron::Scheduled;
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

use crate::api::openapi::Operation;
use crate::api::reply::{Accepted, JsonObject, Status};
use crate::api::request::{Body, Fields, Id, Invalid, Payload};
use crate::error::ApiError;

const NAME: usize = 200;
const PROMPT: usize = 5000;
const CHANGED: [&str; 8] = ["name", "schedule", "prompt", "deliver", "skills", "skill", "repeat", "enabled"];

/// A text of at most this many characters, without the space around it. The schema of a member says more.
#[derive(JsonSchema)]
#[schemars(transparent)]
pub(crate) struct Line<const LONGEST: usize>(String);

impl<'de, const LONGEST: usize> Deserialize<'de> for Line<LONGEST> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match Value::deserialize(deserializer)? {
            Value::String(text) if text.chars().count() > LONGEST => {
                Err(Invalid::new(format!(" must be at most {LONGEST} characters")).error())
            }
            Value::String(text) => Ok(Self(text.trim().to_owned())),
            _ => Err(Invalid::new(" must be a string").error()),
        }
    }
}

/// An empty text counts as absent.
fn given<const LONGEST: usize>(line: Option<Line<LONGEST>>) -> Option<String> {
    line.map(|line| line.0).filter(|text| !text.is_empty())
}

fn repeat<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u32>, D::Error> {
    let value = Value::deserialize(deserializer)?;
    if value.is_null() {
        return Ok(None);
    }
    let times = value.as_u64().and_then(|times| u32::try_from(times).ok()).filter(|times| *times >= 1);
    times.map(Some).ok_or_else(|| Invalid::new(" must be a whole number of at least 1").error())
}

fn enabled<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<bool>, D::Error> {
    match Value::deserialize(deserializer)? {
        Value::Null => Ok(None),
        Value::Bool(enabled) => Ok(Some(enabled)),
        _ => Err(Invalid::new(" must be true or false").error()),
    }
}

#[derive(Deserialize, JsonSchema)]
pub(crate) struct JobRequest {
    #[schemars(with = "String", length(min = 1, max = 200))]
    name: Option<Line<NAME>>,
    #[schemars(with = "String")]
    schedule: Option<Line<NAME>>,
    prompt: Option<Line<PROMPT>>,
    deliver: Option<Line<PROMPT>>,
    #[serde(default, deserialize_with = "repeat")]
    #[schemars(range(min = 1))]
    repeat: Option<u32>,
    timezone: Option<Line<NAME>>,
}

#[derive(Deserialize, JsonSchema)]
pub(crate) struct JobChange {
    name: Option<Line<NAME>>,
    schedule: Option<Line<NAME>>,
    prompt: Option<Line<PROMPT>>,
    deliver: Option<Line<PROMPT>>,
    #[serde(default, deserialize_with = "repeat")]
    #[schemars(range(min = 1))]
    repeat: Option<u32>,
    #[serde(default, deserialize_with = "enabled")]
    enabled: Option<bool>,
}

#[derive(Deserialize, JsonSchema)]
pub(crate) struct FireRequest {
    #[schemars(with = "String")]
    job_id: Option<Line<NAME>>,
}

fn invalid(invalid: &Invalid, param: &str) -> ApiError {
    ApiError::bad_job(invalid.text(param))
}

impl Payload for JobRequest {
    fn refuse(invalid: &Invalid, param: &str) -> ApiError {
        self::invalid(invalid, param)
    }
}

impl Payload for JobChange {
    fn check(fields: &Fields) -> Result<(), ApiError> {
        if !fields.keys().any(|name| CHANGED.contains(&name.as_str())) {
            return Err(ApiError::bad_job("No valid fields to update"));
        }
        if fields.contains_key("skills") || fields.contains_key("skill") {
            return Err(ApiError::bad_job("Jobs have no skills here"));
        }
        Ok(())
    }

    fn refuse(invalid: &Invalid, param: &str) -> ApiError {
        self::invalid(invalid, param)
    }
}

impl Payload for FireRequest {
    fn refuse(invalid: &Invalid, param: &str) -> ApiError {
        self::invalid(invalid, param)
    }

    fn describe(operation: &mut Operation<'_>) {
        operation.error(404, "There is no such job");
    }
}

#[derive(Serialize, JsonSchema)]
pub(crate) struct JobList {
    jobs: Vec<JsonObject>,
}

#[derive(Serialize, JsonSchema)]
pub(crate) struct JobShown {
    job: JsonObject,
}

#[derive(Serialize, JsonSchema)]
pub(crate) struct JobRemoved {
    ok: bool,
}

#[derive(Serialize, JsonSchema)]
pub(crate) struct JobFired {
    #[schemars(extend("const" = "accepted"))]
    status: &'static str,
    job_id: String,
}

type Answer = Result<Json<JobShown>, ApiError>;

pub(crate) async fn list(State(handle): State<Handle>) -> Result<Json<JobList>, ApiError> {
    let jobs = handle.jobs().await?;
    Ok(Json(JobList { jobs: jobs.iter().map(|job| object(&handle, job)).collect() }))
}

/// Answers of a program's job go into a file unless they are sent somewhere: nobody can be told here afterwards.
pub(crate) async fn create(State(handle): State<Handle>, body: Body<JobRequest>) -> Answer {
    let mut new = new_job(body.value)?;
    if new.name.is_none() {
        return Err(ApiError::bad_job("Name is required"));
    }
    new.deliver.get_or_insert_with(|| "local".to_owned());
    let job = handle.job_create(new, None).await?;
    Ok(shown(&handle, &job))
}

/// The owner's, who need not name it.
pub(crate) async fn add(State(handle): State<Handle>, body: Body<JobRequest>) -> Answer {
    let job = handle.job_create(new_job(body.value)?, None).await?;
    Ok(shown(&handle, &job))
}

pub(crate) async fn show(State(handle): State<Handle>, Id(id): Id) -> Answer {
    let job = handle.job(&parsed(&id)?).await?;
    Ok(shown(&handle, &job))
}

pub(crate) async fn change(State(handle): State<Handle>, Id(id): Id, body: Body<JobChange>) -> Answer {
    let JobChange { name, schedule, prompt, deliver, repeat, enabled } = body.value;
    let change = Change {
        name: given(name),
        schedule: given(schedule),
        prompt: given(prompt),
        deliver: given(deliver),
        repeat,
        enabled,
    };
    apply(&handle, &id, change).await
}

pub(crate) async fn remove(State(handle): State<Handle>, Id(id): Id) -> Result<Json<JobRemoved>, ApiError> {
    handle.job_remove(&parsed(&id)?).await?;
    Ok(Json(JobRemoved { ok: true }))
}

pub(crate) async fn pause(State(handle): State<Handle>, Id(id): Id) -> Answer {
    apply(&handle, &id, Change { enabled: Some(false), ..Change::default() }).await
}

pub(crate) async fn resume(State(handle): State<Handle>, Id(id): Id) -> Answer {
    apply(&handle, &id, Change { enabled: Some(true), ..Change::default() }).await
}

pub(crate) async fn run(State(handle): State<Handle>, Id(id): Id) -> Answer {
    let job = handle.job_run(&parsed(&id)?).await?;
    Ok(shown(&handle, &job))
}

/// A timer of somebody else's fires a job. Its token is a key that may do so.
pub(crate) async fn fire(
    State(handle): State<Handle>,
    body: Body<FireRequest>,
) -> Result<Accepted<JobFired>, ApiError> {
    let job_id = given(body.value.job_id).ok_or_else(|| ApiError::bad_job("job_id is required"))?;
    handle.job_run(&parsed(&job_id)?).await?;
    Ok(Status(JobFired { status: "accepted", job_id }))
}

fn new_job(wanted: JobRequest) -> Result<NewJob, ApiError> {
    let JobRequest { name, schedule, prompt, deliver, repeat, timezone } = wanted;
    Ok(NewJob {
        name: given(name),
        schedule: given(schedule).ok_or_else(|| ApiError::bad_job("Schedule is required"))?,
        prompt: given(prompt).unwrap_or_default(),
        deliver: given(deliver),
        repeat,
        timezone: given(timezone),
    })
}

async fn apply(handle: &Handle, id: &str, change: Change) -> Answer {
    let job = handle.job_change(&parsed(id)?, change).await?;
    Ok(shown(handle, &job))
}

fn parsed(id: &str) -> Result<JobId, ApiError> {
    JobId::parse(id).ok_or_else(ApiError::bad_job_id)
}

fn object(handle: &Handle, job: &Scheduled) -> JsonObject {
    job.to_json(handle.schedule()).into()
}

fn shown(handle: &Handle, job: &Scheduled) -> Json<JobShown> {
    Json(JobShown { job: object(handle, job) })
}
