//! Scheduled jobs, for the API (`/api/jobs`) and the control socket (`/api/schedule`).

use axum::Json;
use axum::extract::State;
use petasos_core::cron::{JobId, JobUpdate, NewJob};
use petasos_gateway::Handle;
use petasos_gateway::cron::ScheduledJob;
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

use crate::api::openapi::Operation;
use crate::api::wire::request::{Body, Fields, InvalidField, PathId, Payload};
use crate::api::wire::response::{Accepted, JsonObject, WithStatus};
use crate::error::ApiError;

const MAX_NAME_CHARS: usize = 200;
const MAX_PROMPT_CHARS: usize = 5000;
const UPDATABLE_FIELDS: [&str; 8] =
    ["name", "schedule", "prompt", "deliver", "skills", "skill", "repeat", "enabled"];

/// A trimmed string of bounded length.
#[derive(JsonSchema)]
#[schemars(transparent)]
pub(crate) struct BoundedText<const MAX_CHARS: usize>(String);

impl<'de, const MAX_CHARS: usize> Deserialize<'de> for BoundedText<MAX_CHARS> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match Value::deserialize(deserializer)? {
            Value::String(text) if text.chars().count() > MAX_CHARS => {
                Err(InvalidField::new(format!(" must be at most {MAX_CHARS} characters")).error())
            }
            Value::String(text) => Ok(Self(text.trim().to_owned())),
            _ => Err(InvalidField::new(" must be a string").error()),
        }
    }
}

/// An empty text counts as absent.
fn non_empty<const MAX_CHARS: usize>(text: Option<BoundedText<MAX_CHARS>>) -> Option<String> {
    text.map(|text| text.0).filter(|text| !text.is_empty())
}

fn repeat<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u32>, D::Error> {
    let value = Value::deserialize(deserializer)?;
    if value.is_null() {
        return Ok(None);
    }
    let times = value.as_u64().and_then(|times| u32::try_from(times).ok()).filter(|times| *times >= 1);
    times.map(Some).ok_or_else(|| InvalidField::new(" must be a whole number of at least 1").error())
}

fn enabled<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<bool>, D::Error> {
    match Value::deserialize(deserializer)? {
        Value::Null => Ok(None),
        Value::Bool(enabled) => Ok(Some(enabled)),
        _ => Err(InvalidField::new(" must be true or false").error()),
    }
}

#[derive(Deserialize, JsonSchema)]
pub(crate) struct JobRequest {
    #[schemars(with = "String", length(min = 1, max = 200))]
    name: Option<BoundedText<MAX_NAME_CHARS>>,
    #[schemars(with = "String")]
    schedule: Option<BoundedText<MAX_NAME_CHARS>>,
    prompt: Option<BoundedText<MAX_PROMPT_CHARS>>,
    deliver: Option<BoundedText<MAX_PROMPT_CHARS>>,
    #[serde(default, deserialize_with = "repeat")]
    #[schemars(range(min = 1))]
    repeat: Option<u32>,
    timezone: Option<BoundedText<MAX_NAME_CHARS>>,
}

#[derive(Deserialize, JsonSchema)]
pub(crate) struct JobChange {
    name: Option<BoundedText<MAX_NAME_CHARS>>,
    schedule: Option<BoundedText<MAX_NAME_CHARS>>,
    prompt: Option<BoundedText<MAX_PROMPT_CHARS>>,
    deliver: Option<BoundedText<MAX_PROMPT_CHARS>>,
    #[serde(default, deserialize_with = "repeat")]
    #[schemars(range(min = 1))]
    repeat: Option<u32>,
    #[serde(default, deserialize_with = "enabled")]
    enabled: Option<bool>,
}

#[derive(Deserialize, JsonSchema)]
pub(crate) struct FireRequest {
    #[schemars(with = "String")]
    job_id: Option<BoundedText<MAX_NAME_CHARS>>,
}

fn invalid(invalid: &InvalidField, param: &str) -> ApiError {
    ApiError::bad_job(invalid.text(param))
}

impl Payload for JobRequest {
    fn reject(invalid: &InvalidField, param: &str) -> ApiError {
        self::invalid(invalid, param)
    }
}

impl Payload for JobChange {
    fn check(fields: &Fields) -> Result<(), ApiError> {
        if !fields.keys().any(|name| UPDATABLE_FIELDS.contains(&name.as_str())) {
            return Err(ApiError::bad_job("No valid fields to update"));
        }
        if fields.contains_key("skills") || fields.contains_key("skill") {
            return Err(ApiError::bad_job("Jobs have no skills here"));
        }
        Ok(())
    }

    fn reject(invalid: &InvalidField, param: &str) -> ApiError {
        self::invalid(invalid, param)
    }
}

impl Payload for FireRequest {
    fn reject(invalid: &InvalidField, param: &str) -> ApiError {
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
#[schemars(rename = "JobShown")]
pub(crate) struct JobResponse {
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

type JobResult = Result<Json<JobResponse>, ApiError>;

pub(crate) async fn list(State(handle): State<Handle>) -> Result<Json<JobList>, ApiError> {
    let jobs = handle.jobs().await?;
    Ok(Json(JobList { jobs: jobs.iter().map(|job| job_object(&handle, job)).collect() }))
}

/// Results are written to a file unless the request names a target: the API cannot notify its client later.
pub(crate) async fn create(State(handle): State<Handle>, body: Body<JobRequest>) -> JobResult {
    let mut new = new_job(body.value)?;
    if new.name.is_none() {
        return Err(ApiError::bad_job("Name is required"));
    }
    new.deliver.get_or_insert_with(|| "local".to_owned());
    let job = handle.job_create(new, None).await?;
    Ok(job_response(&handle, &job))
}

/// For the owner; the name is optional.
pub(crate) async fn add(State(handle): State<Handle>, body: Body<JobRequest>) -> JobResult {
    let job = handle.job_create(new_job(body.value)?, None).await?;
    Ok(job_response(&handle, &job))
}

pub(crate) async fn show(State(handle): State<Handle>, PathId(id): PathId) -> JobResult {
    let job = handle.job(&parse_id(&id)?).await?;
    Ok(job_response(&handle, &job))
}

pub(crate) async fn update(
    State(handle): State<Handle>,
    PathId(id): PathId,
    body: Body<JobChange>,
) -> JobResult {
    let JobChange { name, schedule, prompt, deliver, repeat, enabled } = body.value;
    let update = JobUpdate {
        name: non_empty(name),
        schedule: non_empty(schedule),
        prompt: non_empty(prompt),
        deliver: non_empty(deliver),
        repeat,
        enabled,
    };
    apply(&handle, &id, update).await
}

pub(crate) async fn remove(
    State(handle): State<Handle>,
    PathId(id): PathId,
) -> Result<Json<JobRemoved>, ApiError> {
    handle.job_remove(&parse_id(&id)?).await?;
    Ok(Json(JobRemoved { ok: true }))
}

pub(crate) async fn pause(State(handle): State<Handle>, PathId(id): PathId) -> JobResult {
    apply(&handle, &id, JobUpdate { enabled: Some(false), ..JobUpdate::default() }).await
}

pub(crate) async fn resume(State(handle): State<Handle>, PathId(id): PathId) -> JobResult {
    apply(&handle, &id, JobUpdate { enabled: Some(true), ..JobUpdate::default() }).await
}

pub(crate) async fn run(State(handle): State<Handle>, PathId(id): PathId) -> JobResult {
    let job = handle.job_run(&parse_id(&id)?).await?;
    Ok(job_response(&handle, &job))
}

pub(crate) async fn fire(
    State(handle): State<Handle>,
    body: Body<FireRequest>,
) -> Result<Accepted<JobFired>, ApiError> {
    let job_id = non_empty(body.value.job_id).ok_or_else(|| ApiError::bad_job("job_id is required"))?;
    handle.job_run(&parse_id(&job_id)?).await?;
    Ok(WithStatus(JobFired { status: "accepted", job_id }))
}

fn new_job(request: JobRequest) -> Result<NewJob, ApiError> {
    let JobRequest { name, schedule, prompt, deliver, repeat, timezone } = request;
    Ok(NewJob {
        name: non_empty(name),
        schedule: non_empty(schedule).ok_or_else(|| ApiError::bad_job("Schedule is required"))?,
        prompt: non_empty(prompt).unwrap_or_default(),
        deliver: non_empty(deliver),
        repeat,
        timezone: non_empty(timezone),
    })
}

async fn apply(handle: &Handle, id: &str, update: JobUpdate) -> JobResult {
    let job = handle.job_change(&parse_id(id)?, update).await?;
    Ok(job_response(handle, &job))
}

fn parse_id(id: &str) -> Result<JobId, ApiError> {
    JobId::parse(id).ok_or_else(ApiError::bad_job_id)
}

fn job_object(handle: &Handle, job: &ScheduledJob) -> JsonObject {
    job.to_json(handle.schedule()).into()
}

fn job_response(handle: &Handle, job: &ScheduledJob) -> Json<JobResponse> {
    Json(JobResponse { job: job_object(handle, job) })
}
