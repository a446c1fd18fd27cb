//! A gateway with its API, and a client of that API.

use petasos_fakes::model::{Answer, ChatRequest};
use serde_json::{Value, json};

use super::http::{EventStream, HttpRequest, HttpResponse, SseFrame};
use super::{ProgramFixture, eventually};

pub const KEY: &str = "k-test-0123456789abcdef";

pub struct Api {
    pub program: ProgramFixture,
    pub address: String,
}

impl Api {
    pub fn start() -> Self {
        Self::with_config("")
    }

    /// `config` is appended to the configuration.
    pub fn with_config(config: &str) -> Self {
        let mut api =
            Self { program: ProgramFixture::builder().with(config).build(), address: String::new() };
        api.launch();
        api
    }

    pub fn launch(&mut self) {
        let before = self.lock_file();
        self.program.launch_with(&[
            ("API_SERVER_KEY", KEY),
            ("API_SERVER_PORT", "0"),
            ("API_SERVER_CORS_ORIGINS", "http://ui.example"),
        ]);
        self.address = self.wait_address(before.as_ref());
    }

    /// The address in the lock file, once the file differs from `before`.
    pub fn wait_address(&self, before: Option<&Value>) -> String {
        eventually("the API listens", || {
            let found = self.lock_file().filter(|found| Some(found) != before)?;
            let url = found["url"].as_str()?;
            Some(url.trim_start_matches("http://").trim_end_matches('/').to_owned())
        })
    }

    pub fn kill_and_restart(&mut self) {
        self.program.kill();
        self.launch();
    }

    fn lock_file(&self) -> Option<Value> {
        let text = std::fs::read(self.program.home.path().join("gateway.lock")).ok()?;
        serde_json::from_slice(&text).ok()
    }

    pub fn request<'a>(&self, method: &'a str, path: &'a str) -> HttpRequest<'a> {
        HttpRequest::new(method, path).header("Authorization", format!("Bearer {KEY}"))
    }

    #[track_caller]
    pub fn send(&self, request: &HttpRequest<'_>) -> HttpResponse {
        request.send(&self.address).expect("a response")
    }

    #[track_caller]
    pub fn get(&self, path: &str) -> HttpResponse {
        self.send(&self.request("GET", path))
    }

    #[track_caller]
    pub fn post(&self, path: &str, body: &Value) -> HttpResponse {
        self.send(&self.request("POST", path).json(body))
    }

    /// Returns the id of the run.
    #[track_caller]
    pub fn start_run(&self, body: &Value) -> String {
        let reply = self.post("/v1/runs", body);
        assert_eq!(reply.status, 202, "{}", reply.body);
        reply.json()["run_id"].as_str().expect("an id").to_owned()
    }

    /// Panics if the run ends in another state.
    #[track_caller]
    pub fn wait_run(&self, run: &str, want: &str) -> Value {
        let path = format!("/v1/runs/{run}");
        eventually(&format!("the run is {want}"), || {
            let found = self.get(&path).json();
            let ended = ["completed", "failed", "cancelled"].iter().any(|it| found["status"] == **it);
            assert!(!ended || found["status"] == want, "never {want}: {found}");
            (found["status"] == want).then_some(found)
        })
    }

    #[track_caller]
    pub fn events(&self, run: &str, after: Option<&str>) -> EventStream {
        let path = format!("/v1/runs/{run}/events");
        let mut request = self.request("GET", &path);
        request.headers.extend(after.map(|id| ("Last-Event-ID", id.to_owned())));
        let stream = request.open(&self.address).expect("a stream");
        assert_eq!(stream.status, 200);
        stream
    }

    #[track_caller]
    pub fn stream(&self, path: &str, body: &Value) -> EventStream {
        self.request("POST", path).json(body).open(&self.address).expect("a stream")
    }
}

pub fn chat_body(text: &str) -> Value {
    json!({ "model": "x", "messages": [{ "role": "user", "content": text }] })
}

pub fn content(reply: &HttpResponse) -> String {
    reply.json()["choices"][0]["message"]["content"].as_str().expect("a content").to_owned()
}

/// The text of a streamed completion.
pub fn streamed_text(frames: &[SseFrame]) -> String {
    let texts = frames.iter().filter(|it| it.event.is_none() && it.data != "[DONE]" && !it.data.is_empty());
    texts.filter_map(|it| it.json()["choices"][0]["delta"]["content"].as_str().map(str::to_owned)).collect()
}

/// The name of a run event; `None` for a comment.
pub fn event_name(frame: &SseFrame) -> Option<String> {
    (!frame.data.is_empty()).then(|| frame.json()["event"].as_str().expect("an event").to_owned())
}

/// A model that calls the terminal for `run: <command>` and the clock for `tool:clock`, and echoes everything else.
pub fn scripted_answer(request: &ChatRequest) -> Answer {
    let body = request.body();
    let last = body["messages"].as_array().and_then(|all| all.last().cloned()).unwrap_or_default();
    let asked = super::user_text(&request.last_user);
    match (last["role"].as_str(), asked.split_once("run: ")) {
        (Some("user"), Some((_, command))) => Answer::tool("terminal", json!({ "command": command })),
        (Some("user"), None) if asked == "tool:clock" => Answer::tool("clock", json!({})),
        (Some("tool"), _) => Answer::text(format!("got {}", last["content"].as_str().unwrap_or_default())),
        _ => Answer::text(format!("echo: {asked}")),
    }
}
