//! A gateway that programs talk to.

use std::time::{Duration, Instant};

use petasos_fakes::model::{Answer, Request};
use serde_json::{Value, json};

use super::http::{Ask, Frame, Reply, Stream};
use super::{Bench, SOON};

pub const KEY: &str = "k-test-0123456789abcdef";

pub struct Api {
    pub bench: Bench,
    pub address: String,
}

impl Api {
    pub fn start() -> Self {
        Self::with("")
    }

    /// `more` is appended to the configuration.
    pub fn with(more: &str) -> Self {
        let mut api = Self { bench: Bench::setup().with(more).build(), address: String::new() };
        api.launch();
        api
    }

    pub fn launch(&mut self) {
        let before = self.lock_file();
        self.bench.launch_with(&[
            ("API_SERVER_KEY", KEY),
            ("API_SERVER_PORT", "0"),
            ("API_SERVER_CORS_ORIGINS", "http://ui.example"),
        ]);
        self.address = self.listening(before.as_ref());
    }

    /// Where it listens, as soon as it says something else than `before`.
    pub fn listening(&self, before: Option<&Value>) -> String {
        let until = Instant::now() + SOON;
        loop {
            let found = self.lock_file();
            let url = found.as_ref().and_then(|it| it["url"].as_str());
            if let (Some(url), true) = (url, found.as_ref() != before) {
                return url.trim_start_matches("http://").trim_end_matches('/').to_owned();
            }
            assert!(Instant::now() < until, "never listens: {found:?}");
            std::thread::yield_now();
        }
    }

    /// As the kernel would, and up again.
    pub fn crash(&mut self) {
        self.bench.kill();
        self.launch();
    }

    fn lock_file(&self) -> Option<Value> {
        let text = std::fs::read(self.bench.home.path().join("gateway.lock")).ok()?;
        serde_json::from_slice(&text).ok()
    }

    pub fn ask<'a>(&self, method: &'a str, path: &'a str) -> Ask<'a> {
        Ask::new(method, path).header("Authorization", format!("Bearer {KEY}"))
    }

    #[track_caller]
    pub fn send(&self, ask: &Ask<'_>) -> Reply {
        ask.send(&self.address).expect("an answer")
    }

    #[track_caller]
    pub fn get(&self, path: &str) -> Reply {
        self.send(&self.ask("GET", path))
    }

    #[track_caller]
    pub fn post(&self, path: &str, body: &Value) -> Reply {
        self.send(&self.ask("POST", path).json(body))
    }

    /// A run, by its name.
    #[track_caller]
    pub fn start_run(&self, body: &Value) -> String {
        let reply = self.post("/v1/runs", body);
        assert_eq!(reply.status, 202, "{}", reply.body);
        reply.json()["run_id"].as_str().expect("a name").to_owned()
    }

    /// Waits until a run is in this state; it may be in one of the states before it.
    #[track_caller]
    pub fn await_run(&self, run: &str, want: &str) -> Value {
        let (path, until) = (format!("/v1/runs/{run}"), Instant::now() + SOON);
        loop {
            let found = self.get(&path).json();
            if found["status"] == want {
                return found;
            }
            let over = ["completed", "failed", "cancelled"].iter().any(|it| found["status"] == **it);
            assert!(!over && Instant::now() < until, "never {want}: {found}");
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// What is told of a run, from the beginning or from behind an event.
    #[track_caller]
    pub fn events(&self, run: &str, after: Option<&str>) -> Stream {
        let path = format!("/v1/runs/{run}/events");
        let mut ask = self.ask("GET", &path);
        ask.headers.extend(after.map(|id| ("Last-Event-ID", id.to_owned())));
        let stream = ask.open(&self.address).expect("a stream");
        assert_eq!(stream.status, 200);
        stream
    }

    #[track_caller]
    pub fn stream(&self, path: &str, body: &Value) -> Stream {
        self.ask("POST", path).json(body).open(&self.address).expect("a stream")
    }
}

pub fn said(text: &str) -> Value {
    json!({ "model": "x", "messages": [{ "role": "user", "content": text }] })
}

pub fn content(reply: &Reply) -> String {
    reply.json()["choices"][0]["message"]["content"].as_str().expect("a content").to_owned()
}

/// What the chunks of a streamed completion add up to.
pub fn joined(frames: &[Frame]) -> String {
    let texts = frames.iter().filter(|it| it.event.is_none() && it.data != "[DONE]" && !it.data.is_empty());
    texts.filter_map(|it| it.json()["choices"][0]["delta"]["content"].as_str().map(str::to_owned)).collect()
}

/// The name of an event of a run; `None` for a remark.
pub fn name(frame: &Frame) -> Option<String> {
    (!frame.data.is_empty()).then(|| frame.json()["event"].as_str().expect("an event").to_owned())
}

/// `run: <command>` is run in the terminal and `tool:clock` asks for the time; their results come back. Whatever else is
/// said is echoed.
pub fn obey(request: &Request) -> Answer {
    let body = request.body();
    let last = body["messages"].as_array().and_then(|all| all.last().cloned()).unwrap_or_default();
    let asked = super::said(&request.last_user);
    match (last["role"].as_str(), asked.split_once("run: ")) {
        (Some("user"), Some((_, command))) => Answer::tool("terminal", json!({ "command": command })),
        (Some("user"), None) if asked == "tool:clock" => Answer::tool("clock", json!({})),
        (Some("tool"), _) => Answer::text(format!("got {}", last["content"].as_str().unwrap_or_default())),
        _ => Answer::text(format!("echo: {asked}")),
    }
}
