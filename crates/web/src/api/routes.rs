//! The route table, the source of the router, the capabilities and the OpenAPI document.

use axum::handler::Handler;
use axum::routing::{MethodFilter, MethodRouter, on};

use super::endpoints::{chat_completions, info, responses, runs, sessions};
use super::keys::Scope;
use super::openapi::{Describe, Operation};
use super::{Api, openapi};
use crate::jobs;

pub(super) struct ApiRoute {
    pub(super) name: &'static str,
    pub(super) method: &'static str,
    pub(super) path: &'static str,
    pub(super) summary: &'static str,
    pub(super) handler: MethodRouter<Api>,
    /// The scope that the key needs; `None`: no key required.
    pub(super) scope: Option<Scope>,
    pub(super) describe: fn(&mut Operation<'_>),
}

impl ApiRoute {
    fn new<H, T, A>(
        (method, filter, scope): (&'static str, MethodFilter, Scope),
        path: &'static str,
        name: &'static str,
        handler: H,
        summary: &'static str,
    ) -> Self
    where
        H: Handler<T, Api> + Describe<A>,
        T: 'static,
    {
        Self {
            name,
            method,
            path,
            summary,
            handler: on(filter, handler),
            scope: Some(scope),
            describe: <H as Describe<A>>::describe,
        }
    }

    fn open(self) -> Self {
        Self { scope: None, ..self }
    }

    fn agent(self) -> Self {
        Self { scope: Some(Scope::Agent), ..self }
    }
}

const GET: (&str, MethodFilter, Scope) = ("GET", MethodFilter::GET, Scope::Read);
const POST: (&str, MethodFilter, Scope) = ("POST", MethodFilter::POST, Scope::Admin);
const PATCH: (&str, MethodFilter, Scope) = ("PATCH", MethodFilter::PATCH, Scope::Admin);
const DELETE: (&str, MethodFilter, Scope) = ("DELETE", MethodFilter::DELETE, Scope::Admin);

pub(super) const FIRE: &str = "/api/cron/fire";

pub(super) fn table() -> Vec<ApiRoute> {
    let mut table = info_routes();
    table.extend(agent_routes());
    table.extend(session_routes());
    table.extend(job_routes());
    table
}

fn info_routes() -> Vec<ApiRoute> {
    vec![
        ApiRoute::new(GET, "/health", "health", info::health, "Whether the gateway is running").open(),
        ApiRoute::new(GET, "/v1/health", "health_v1", info::health, "Same as /health").open(),
        ApiRoute::new(GET, "/health/detailed", "health_detailed", info::health_detailed, "Readiness checks"),
        ApiRoute::new(
            POST,
            "/api/platforms/{id}/events",
            "platform_events",
            info::platform_events,
            "Webhooks of platforms; always unavailable on this port",
        )
        .open(),
        ApiRoute::new(GET, "/v1/models", "models", info::models, "Model names of the agent"),
        ApiRoute::new(
            GET,
            "/v1/capabilities",
            "capabilities",
            info::capabilities,
            "Capabilities of this API",
        ),
        ApiRoute::new(GET, "/v1/skills", "skills", info::skills, "Skills of the agent"),
        ApiRoute::new(GET, "/v1/toolsets", "toolsets", info::toolsets, "Tools of the agent"),
        ApiRoute::new(GET, "/openapi.json", "openapi", openapi::serve, "This document"),
    ]
}

fn agent_routes() -> Vec<ApiRoute> {
    vec![
        ApiRoute::new(
            POST,
            "/v1/chat/completions",
            "chat_completions",
            chat_completions::complete,
            "Answers a conversation, optionally streamed",
        )
        .agent(),
        ApiRoute::new(
            POST,
            "/v1/responses",
            "responses",
            responses::create,
            "Creates a response with all its steps; it is stored and can be continued",
        )
        .agent(),
        ApiRoute::new(GET, "/v1/responses/{id}", "response", responses::show, "A stored response"),
        ApiRoute::new(
            DELETE,
            "/v1/responses/{id}",
            "response_delete",
            responses::delete,
            "Deletes a response",
        )
        .agent(),
        ApiRoute::new(
            POST,
            "/v1/responses/{id}/cancel",
            "response_cancel",
            responses::cancel,
            "Stops a response that is in progress",
        )
        .agent(),
        ApiRoute::new(
            POST,
            "/v1/runs",
            "runs",
            runs::start,
            "Starts a run; the response is sent once the run is on disk",
        )
        .agent(),
        ApiRoute::new(GET, "/v1/runs/{id}", "run_status", runs::status, "Status of a run"),
        ApiRoute::new(
            GET,
            "/v1/runs/{id}/events",
            "run_events",
            runs::events,
            "Past and future events of a run; Last-Event-ID resumes after an event",
        ),
        ApiRoute::new(
            POST,
            "/v1/runs/{id}/approval",
            "run_approval",
            runs::approval,
            "Answers an approval request of a run",
        )
        .agent(),
        ApiRoute::new(POST, "/v1/runs/{id}/stop", "run_stop", runs::stop, "Stops a run").agent(),
    ]
}

fn session_routes() -> Vec<ApiRoute> {
    vec![
        ApiRoute::new(GET, "/api/sessions", "sessions", sessions::list, "Conversations, latest first"),
        ApiRoute::new(POST, "/api/sessions", "session_create", sessions::create, "Creates a conversation"),
        ApiRoute::new(GET, "/api/sessions/{id}", "session", sessions::show, "A conversation"),
        ApiRoute::new(
            PATCH,
            "/api/sessions/{id}",
            "session_update",
            sessions::change,
            "Renames or ends a conversation",
        ),
        ApiRoute::new(
            DELETE,
            "/api/sessions/{id}",
            "session_delete",
            sessions::delete,
            "Removes a conversation",
        ),
        ApiRoute::new(
            GET,
            "/api/sessions/{id}/messages",
            "session_messages",
            sessions::messages,
            "Messages of a conversation",
        ),
        ApiRoute::new(
            POST,
            "/api/sessions/{id}/fork",
            "session_fork",
            sessions::fork,
            "Copies a conversation into a new one",
        ),
        ApiRoute::new(
            POST,
            "/api/sessions/{id}/chat",
            "session_chat",
            sessions::chat,
            "Sends a message to a conversation",
        )
        .agent(),
        ApiRoute::new(
            POST,
            "/api/sessions/{id}/chat/stream",
            "session_chat_stream",
            sessions::chat_stream,
            "Sends a message and streams the answer",
        )
        .agent(),
    ]
}

fn job_routes() -> Vec<ApiRoute> {
    vec![
        ApiRoute::new(GET, "/api/jobs", "jobs", jobs::list, "Scheduled jobs"),
        ApiRoute::new(POST, "/api/jobs", "job_create", jobs::create, "Creates a job"),
        ApiRoute::new(GET, "/api/jobs/{id}", "job", jobs::show, "A job"),
        ApiRoute::new(PATCH, "/api/jobs/{id}", "job_update", jobs::update, "Changes a job"),
        ApiRoute::new(DELETE, "/api/jobs/{id}", "job_delete", jobs::remove, "Removes a job"),
        ApiRoute::new(POST, "/api/jobs/{id}/pause", "job_pause", jobs::pause, "Pauses a job"),
        ApiRoute::new(POST, "/api/jobs/{id}/resume", "job_resume", jobs::resume, "Resumes a job"),
        ApiRoute::new(POST, "/api/jobs/{id}/run", "job_run", jobs::run, "Runs a job now"),
        ApiRoute::new(POST, FIRE, "cron_fire", jobs::fire, "Runs a job when an external timer calls"),
    ]
}
