//! The route table: the router, the list of capabilities and the OpenAPI document are made from it.

use axum::handler::Handler;
use axum::routing::{MethodFilter, MethodRouter, on};

use super::keys::Scope;
use super::openapi::{Describe, Operation};
use super::{Api, chat, info, openapi, responses, runs, sessions};
use crate::jobs;

pub(super) struct Route {
    pub(super) name: &'static str,
    pub(super) method: &'static str,
    pub(super) path: &'static str,
    pub(super) summary: &'static str,
    pub(super) handler: MethodRouter<Api>,
    /// What a key needs; `None`: no key is asked for.
    pub(super) scope: Option<Scope>,
    /// Request and responses, as the handler's types describe them.
    pub(super) describe: fn(&mut Operation<'_>),
}

impl Route {
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
        let (handler, describe) = (on(filter, handler), <H as Describe<A>>::describe);
        Self { name, method, path, summary, handler, scope: Some(scope), describe }
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

/// Where timers of other programs call.
pub(super) const FIRE: &str = "/api/cron/fire";

pub(super) fn table() -> Vec<Route> {
    let mut table = models();
    table.extend(work());
    table.extend(conversations());
    table.extend(scheduled());
    table
}

fn models() -> Vec<Route> {
    vec![
        Route::new(GET, "/health", "health", info::health, "Whether the gateway is there").open(),
        Route::new(GET, "/v1/health", "health_v1", info::health, "The same").open(),
        Route::new(
            GET,
            "/health/detailed",
            "health_detailed",
            info::health_detailed,
            "What could keep the agent from answering",
        ),
        Route::new(
            POST,
            "/api/platforms/{id}/events",
            "platform_events",
            info::platform_events,
            "For platforms that call; none does so here",
        )
        .open(),
        Route::new(GET, "/v1/models", "models", info::models, "The agent, as a model"),
        Route::new(GET, "/v1/capabilities", "capabilities", info::capabilities, "What this API can do"),
        Route::new(GET, "/v1/skills", "skills", info::skills, "Skills of the agent"),
        Route::new(GET, "/v1/toolsets", "toolsets", info::toolsets, "Tools of the agent"),
        Route::new(GET, "/openapi.json", "openapi", openapi::document, "This document"),
    ]
}

fn work() -> Vec<Route> {
    vec![
        Route::new(
            POST,
            "/v1/chat/completions",
            "chat_completions",
            chat::complete,
            "One answer to a conversation, whole or as it grows",
        )
        .agent(),
        Route::new(
            POST,
            "/v1/responses",
            "responses",
            responses::create,
            "An answer with everything that led to it; it is kept and can be gone on from",
        )
        .agent(),
        Route::new(GET, "/v1/responses/{id}", "response", responses::show, "A kept response"),
        Route::new(DELETE, "/v1/responses/{id}", "response_delete", responses::delete, "Forgets a response")
            .agent(),
        Route::new(
            POST,
            "/v1/responses/{id}/cancel",
            "response_cancel",
            responses::cancel,
            "Stops a response that is in progress",
        )
        .agent(),
        Route::new(
            POST,
            "/v1/runs",
            "runs",
            runs::start,
            "Starts work that belongs to the server; answered when it is on disk",
        )
        .agent(),
        Route::new(GET, "/v1/runs/{id}", "run_status", runs::status, "How a run is getting on"),
        Route::new(
            GET,
            "/v1/runs/{id}/events",
            "run_events",
            runs::events,
            "What happened and happens in a run; Last-Event-ID goes on from an event",
        ),
        Route::new(
            POST,
            "/v1/runs/{id}/approval",
            "run_approval",
            runs::approval,
            "Answers a question of a run",
        )
        .agent(),
        Route::new(POST, "/v1/runs/{id}/stop", "run_stop", runs::stop, "Stops a run").agent(),
    ]
}

fn conversations() -> Vec<Route> {
    vec![
        Route::new(GET, "/api/sessions", "sessions", sessions::list, "Conversations, the latest first"),
        Route::new(POST, "/api/sessions", "session_create", sessions::create, "A new conversation"),
        Route::new(GET, "/api/sessions/{id}", "session", sessions::show, "A conversation"),
        Route::new(
            PATCH,
            "/api/sessions/{id}",
            "session_update",
            sessions::change,
            "Renames or ends a conversation",
        ),
        Route::new(
            DELETE,
            "/api/sessions/{id}",
            "session_delete",
            sessions::delete,
            "Removes a conversation",
        ),
        Route::new(
            GET,
            "/api/sessions/{id}/messages",
            "session_messages",
            sessions::messages,
            "What was said",
        ),
        Route::new(
            POST,
            "/api/sessions/{id}/fork",
            "session_fork",
            sessions::fork,
            "A new conversation with everything this one says",
        ),
        Route::new(
            POST,
            "/api/sessions/{id}/chat",
            "session_chat",
            sessions::chat,
            "Says something in a conversation",
        )
        .agent(),
        Route::new(
            POST,
            "/api/sessions/{id}/chat/stream",
            "session_chat_stream",
            sessions::chat_stream,
            "The same, as it happens",
        )
        .agent(),
    ]
}

fn scheduled() -> Vec<Route> {
    vec![
        Route::new(GET, "/api/jobs", "jobs", jobs::list, "Scheduled work"),
        Route::new(POST, "/api/jobs", "job_create", jobs::create, "Schedules work"),
        Route::new(GET, "/api/jobs/{id}", "job", jobs::show, "A job"),
        Route::new(PATCH, "/api/jobs/{id}", "job_update", jobs::change, "Changes a job"),
        Route::new(DELETE, "/api/jobs/{id}", "job_delete", jobs::remove, "Removes a job"),
        Route::new(POST, "/api/jobs/{id}/pause", "job_pause", jobs::pause, "Lets a job rest"),
        Route::new(POST, "/api/jobs/{id}/resume", "job_resume", jobs::resume, "Wakes a job"),
        Route::new(POST, "/api/jobs/{id}/run", "job_run", jobs::run, "Runs a job now"),
        Route::new(POST, FIRE, "cron_fire", jobs::fire, "A timer of somebody else's fires a job"),
    ]
}
