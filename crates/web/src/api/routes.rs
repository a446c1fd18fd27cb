//! Everything there is, in one table: the router, the list of capabilities and the OpenAPI document are made from it.

use axum::routing::{MethodRouter, delete, get, patch, post};

use super::Api;
use super::keys::Scope;
use super::schema::Shape;
use super::{chat, info, jobs, openapi, responses, runs, sessions};

type Handler = MethodRouter<Api>;

pub(super) struct Route {
    pub(super) name: &'static str,
    pub(super) method: &'static str,
    pub(super) path: &'static str,
    pub(super) summary: &'static str,
    pub(super) handler: Handler,
    /// What a key needs; `None`: no key is asked for.
    pub(super) scope: Option<Scope>,
    pub(super) body: Option<Shape>,
    pub(super) success: u16,
    pub(super) answer: Shape,
    /// Puts the agent to work: it may be refused, named, and streamed.
    pub(super) works: Works,
    pub(super) query: &'static [&'static str],
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Works {
    No,
    Yes,
    /// And its answer may be a stream.
    Streams,
    /// Its answer is nothing but a stream.
    OnlyStreams,
}

impl Route {
    fn new(
        method: &'static str,
        path: &'static str,
        name: &'static str,
        handler: Handler,
        answer: Shape,
    ) -> Self {
        let (summary, scope, body) = ("", Some(Scope::Read), None);
        Self {
            name,
            method,
            path,
            summary,
            handler,
            scope,
            body,
            success: 200,
            answer,
            works: Works::No,
            query: &[],
        }
    }

    fn get(path: &'static str, name: &'static str, handler: Handler, answer: Shape) -> Self {
        Self::new("GET", path, name, handler, answer)
    }

    fn post(path: &'static str, name: &'static str, handler: Handler, answer: Shape) -> Self {
        Self { scope: Some(Scope::Admin), ..Self::new("POST", path, name, handler, answer) }
    }

    fn open(self) -> Self {
        Self { scope: None, ..self }
    }

    fn takes(self, body: Shape) -> Self {
        Self { body: Some(body), ..self }
    }

    fn gives(self, success: u16) -> Self {
        Self { success, ..self }
    }

    fn agent(self) -> Self {
        Self { scope: Some(Scope::Agent), ..self }
    }

    fn admin(self) -> Self {
        Self { scope: Some(Scope::Admin), ..self }
    }

    fn works(self, works: Works) -> Self {
        Self { works, ..self.agent() }
    }

    fn asks(self, query: &'static [&'static str]) -> Self {
        Self { query, ..self }
    }

    fn says(self, summary: &'static str) -> Self {
        Self { summary, ..self }
    }
}

pub(super) fn table() -> Vec<Route> {
    let mut table = models();
    table.extend(work());
    table.extend(conversations());
    table.extend(scheduled());
    table
}

fn models() -> Vec<Route> {
    vec![
        Route::get("/health", "health", get(info::health), Shape::Health)
            .open()
            .says("Whether the gateway is there"),
        Route::get("/v1/health", "health_v1", get(info::health), Shape::Health).open().says("The same"),
        Route::get("/health/detailed", "health_detailed", get(info::health_detailed), Shape::Object)
            .says("What could keep the agent from answering"),
        Route::post(
            "/api/platforms/{id}/events",
            "platform_events",
            post(info::platform_events),
            Shape::Object,
        )
        .open()
        .says("For platforms that call; none does so here"),
        Route::get("/v1/models", "models", get(info::models), Shape::List).says("The agent, as a model"),
        Route::get("/v1/capabilities", "capabilities", get(info::capabilities), Shape::Object)
            .says("What this API can do"),
        Route::get("/v1/skills", "skills", get(info::skills), Shape::List).says("Skills of the agent"),
        Route::get("/v1/toolsets", "toolsets", get(info::toolsets), Shape::List).says("Tools of the agent"),
        Route::get("/openapi.json", "openapi", get(openapi::document), Shape::Object).says("This document"),
    ]
}

fn work() -> Vec<Route> {
    vec![
        Route::post("/v1/chat/completions", "chat_completions", post(chat::complete), Shape::Completion)
            .takes(Shape::ChatRequest)
            .works(Works::Streams)
            .says("One answer to a conversation, whole or as it grows"),
        Route::post("/v1/responses", "responses", post(responses::create), Shape::Response)
            .takes(Shape::ResponseRequest)
            .works(Works::Streams)
            .says("An answer with everything that led to it; it is kept and can be gone on from"),
        Route::get("/v1/responses/{id}", "response", get(responses::show), Shape::Response)
            .says("A kept response"),
        Route::new(
            "DELETE",
            "/v1/responses/{id}",
            "response_delete",
            delete(responses::delete),
            Shape::Deleted,
        )
        .agent()
        .says("Forgets a response"),
        Route::post("/v1/responses/{id}/cancel", "response_cancel", post(responses::cancel), Shape::Response)
            .agent()
            .says("Stops a response that is in progress"),
        Route::post("/v1/runs", "runs", post(runs::start), Shape::RunStarted)
            .takes(Shape::RunRequest)
            .works(Works::Yes)
            .gives(202)
            .says("Starts work that belongs to the server; answered when it is on disk"),
        Route::get("/v1/runs/{id}", "run_status", get(runs::status), Shape::Run)
            .says("How a run is getting on"),
        Route {
            works: Works::OnlyStreams,
            ..Route::get("/v1/runs/{id}/events", "run_events", get(runs::events), Shape::Object)
        }
        .says("What happened and happens in a run; Last-Event-ID goes on from an event"),
        Route::post("/v1/runs/{id}/approval", "run_approval", post(runs::approval), Shape::Object)
            .takes(Shape::ApprovalRequest)
            .agent()
            .says("Answers a question of a run"),
        Route::post("/v1/runs/{id}/stop", "run_stop", post(runs::stop), Shape::RunStarted)
            .agent()
            .says("Stops a run"),
    ]
}

fn conversations() -> Vec<Route> {
    vec![
        Route::get("/api/sessions", "sessions", get(sessions::list), Shape::List)
            .asks(&["limit", "offset", "source", "include_children"])
            .says("Conversations, the latest first"),
        Route::post("/api/sessions", "session_create", post(sessions::create), Shape::Session)
            .takes(Shape::SessionRequest)
            .gives(201)
            .says("A new conversation"),
        Route::get("/api/sessions/{id}", "session", get(sessions::show), Shape::Session)
            .says("A conversation"),
        Route::new("PATCH", "/api/sessions/{id}", "session_update", patch(sessions::change), Shape::Session)
            .takes(Shape::SessionChange)
            .admin()
            .says("Renames or ends a conversation"),
        Route::new(
            "DELETE",
            "/api/sessions/{id}",
            "session_delete",
            delete(sessions::delete),
            Shape::Deleted,
        )
        .admin()
        .says("Removes a conversation"),
        Route::get("/api/sessions/{id}/messages", "session_messages", get(sessions::messages), Shape::List)
            .asks(&["limit", "after"])
            .says("What was said"),
        Route::post("/api/sessions/{id}/fork", "session_fork", post(sessions::fork), Shape::Session)
            .takes(Shape::SessionFork)
            .gives(201)
            .says("A new conversation with everything this one says"),
        Route::post("/api/sessions/{id}/chat", "session_chat", post(sessions::chat), Shape::Object)
            .takes(Shape::SayRequest)
            .works(Works::Yes)
            .says("Says something in a conversation"),
        Route::post(
            "/api/sessions/{id}/chat/stream",
            "session_chat_stream",
            post(sessions::chat_stream),
            Shape::Object,
        )
        .takes(Shape::SayRequest)
        .works(Works::OnlyStreams)
        .says("The same, as it happens"),
    ]
}

fn scheduled() -> Vec<Route> {
    vec![
        Route::get("/api/jobs", "jobs", get(jobs::list), Shape::Object).says("Scheduled work"),
        Route::post("/api/jobs", "job_create", post(jobs::create), Shape::Object)
            .takes(Shape::JobRequest)
            .says("Schedules work"),
        Route::get("/api/jobs/{id}", "job", get(jobs::show), Shape::Object).says("A job"),
        Route::new("PATCH", "/api/jobs/{id}", "job_update", patch(jobs::change), Shape::Object)
            .takes(Shape::JobChange)
            .admin()
            .says("Changes a job"),
        Route::new("DELETE", "/api/jobs/{id}", "job_delete", delete(jobs::delete), Shape::Object)
            .admin()
            .says("Removes a job"),
        Route::post("/api/jobs/{id}/pause", "job_pause", post(jobs::pause), Shape::Object)
            .says("Lets a job rest"),
        Route::post("/api/jobs/{id}/resume", "job_resume", post(jobs::resume), Shape::Object)
            .says("Wakes a job"),
        Route::post("/api/jobs/{id}/run", "job_run", post(jobs::run), Shape::Object).says("Runs a job now"),
        Route::post(jobs::FIRE, "cron_fire", post(jobs::fire), Shape::Fired)
            .takes(Shape::FireRequest)
            .gives(202)
            .says("A timer of somebody else's fires a job"),
    ]
}
