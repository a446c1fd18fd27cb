//! The simulated model, and the tools it has beside the gateway's own.

use std::future::Future;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use petasos_agent::compaction::ContextWindow;
use petasos_agent::simulated;
use petasos_agent::{
    Chunk, CommandApprover, CommandDecision, CommandRequest, FinishReason, ModelFailure, ModelFailureClass,
    ModelRequest, ModelResponse, SessionCtx, ToolResult, ToolSpec,
};
use petasos_approval::Confinement;
use petasos_core::transcript::{Message, Role, ToolCall, UsageRecord};
use petasos_runtime::clock;
use serde_json::json;

use super::consent::{COMMAND, FOLDER};
use super::files::without_paths;
use super::state::{Outside, State};
use crate::outside::cited;
use crate::truth::Check;

/// The prepared result of a model call.
struct Thought {
    text: String,
    calls: Vec<ToolCall>,
    /// How long it takes, in milliseconds.
    took: u64,
    fails: bool,
    check: Check,
}

#[derive(Debug)]
pub(super) struct Model(pub(super) Outside);

/// Pieces in which an answer arrives.
const PIECES: u64 = 5;

impl simulated::SimulatedModel for Model {
    fn complete<'a>(
        &'a self,
        request: &'a ModelRequest,
        chunks: &'a mut (dyn FnMut(Chunk) + Send),
    ) -> Pin<Box<dyn Future<Output = Result<ModelResponse, ModelFailure>> + Send + 'a>> {
        Box::pin(async move {
            let thought = self.0.lock().think(request);
            let Thought { text, calls, took, fails, check } = thought;
            self.0.check(check);
            let (tag, rest) = text.split_at(text.find('›').map_or(0, |at| at + '›'.len_utf8()));
            chunks(Chunk::Text(tag.to_owned()));
            let letters: Vec<char> = rest.chars().collect();
            let size = letters.len().div_ceil(PIECES as usize).max(1);
            for piece in letters.chunks(size) {
                clock::sleep(Duration::from_millis(took / PIECES)).await;
                chunks(Chunk::Text(piece.iter().collect()));
            }
            clock::sleep(Duration::from_millis(took / PIECES)).await;
            if fails {
                let message = "The model cannot be had just now.".to_owned();
                return Err(ModelFailure { class: ModelFailureClass::Overloaded, message });
            }
            let finish = if calls.is_empty() { FinishReason::Stop } else { FinishReason::Calls };
            let usage = UsageRecord::default();
            let model = "simulated".to_owned();
            Ok(ModelResponse { text, calls, finish, usage, model, partial: false })
        })
    }

    fn window(&self) -> ContextWindow {
        ContextWindow { context: 128_000, output: 4_096 }
    }

    fn tools(&self) -> Arc<dyn simulated::SimulatedTools> {
        Arc::new(Tools(self.0.clone()))
    }
}

impl State {
    pub(super) fn number(&mut self) -> u64 {
        self.calls += 1;
        self.calls
    }

    /// The text of the model: it names every message since its last answer.
    fn think(&mut self, request: &ModelRequest) -> Thought {
        self.figures.calls += 1;
        if self.plan.rows.is_some() && request.tools.is_empty() && request.messages.len() == 1 {
            return self.sum_up();
        }
        let (asked, rounds) = asked(&request.messages);
        let tag = self.answer_for(request, rounds);
        let mut text = format!("‹{tag}› re");
        for letter in ['m', 'c', 'j', 'r'] {
            for number in cited(&asked, letter) {
                text.push_str(&format!(" [{letter}{number}]"));
            }
        }
        if self.luck.chance(300) {
            text.push_str(&" and so on, at some length".repeat(4));
        }
        let told = cited(&asked, 'm');
        let (paths, check) = match self.files_of(request, &told) {
            Ok(paths) => (paths, Ok(())),
            Err(violation) => (vec![], Err(violation)),
        };
        let mut calls = Vec::new();
        let may_act = request.closing.is_none() && rounds < 3 && !request.tools.is_empty();
        let chat = told.first().map(|number| self.world.said[*number].chat);
        let wanted = self.wanted.iter().copied().find(|work| Some(self.world.ended[*work].chat) == chat);
        if let (true, Some(work)) = (may_act && offers(request, DELEGATE), wanted) {
            self.wanted.remove(&work);
            let id = format!("{tag}.d.{}", self.number());
            let arguments = json!({ "goal": format!("finish [c{work}]") }).to_string();
            calls.push(ToolCall { id, name: DELEGATE.to_owned(), arguments });
        } else if may_act && self.plan.consent.is_some() && offers(request, SHELL) && self.luck.chance(400) {
            let id = format!("{tag}.s.{}", self.number());
            calls.push(ToolCall { id, name: SHELL.to_owned(), arguments: "{}".to_owned() });
        } else if may_act && offers(request, WRITE) && self.luck.chance(350) {
            for number in 0..self.luck.between(1, 2) {
                let name = self.luck.pick(&["sim_write", "sim_read"]).to_owned();
                let id = format!("{tag}.{number}.{}", self.number());
                let arguments = json!({ "number": number }).to_string();
                calls.push(ToolCall { id, name, arguments });
            }
            if self.luck.chance(500) {
                text.clear();
            }
        }
        if calls.is_empty() {
            for path in paths {
                if self.luck.chance(700) {
                    text.push_str(&format!("\nMEDIA:{path}"));
                }
            }
        }
        // Longer than a stop waits, where it matters what a clock shows meanwhile.
        let long = self.plan.jumps > 0 && self.luck.chance(60);
        let took = if long { self.luck.between(30_000, 200_000) } else { self.luck.between(50, 15_000) };
        let odds = self.plan.model_odds;
        let fails = self.fails(odds);
        self.note(&format!(
            "the model: {:?} {calls:?} in {took} ms{}",
            without_paths(&text),
            if fails { ", fails" } else { "" }
        ));
        Thought { text, calls, took, fails, check }
    }

    /// Answers a request for a summary.
    fn sum_up(&mut self) -> Thought {
        self.figures.summaries += 1;
        let took = self.luck.between(50, 15_000);
        let odds = self.plan.model_odds;
        let fails = self.fails(odds);
        self.note(&format!("the model sums up in {took} ms{}", if fails { ", fails" } else { "" }));
        Thought { text: "What was said before.".into(), calls: vec![], took, fails, check: Ok(()) }
    }

    /// The same number for every attempt at the same place of a conversation.
    fn answer_for(&mut self, request: &ModelRequest, rounds: usize) -> i64 {
        let last = request.messages.iter().rev().find(|row| row.role != Role::Notice);
        let at = last.map(|row| row.at.0).unwrap_or_default();
        // The note of a resumed turn stays the last row, however often tools were used since.
        let words =
            last.map(|row| format!("{}{:?}{rounds}", row.content, row.tool_call_id)).unwrap_or_default();
        let next = self.answers.len() as i64 + 1;
        *self.answers.entry((request.session.as_str().to_owned(), at, words)).or_insert(next)
    }
}

fn offers(request: &ModelRequest, name: &str) -> bool {
    request.tools.iter().any(|tool| tool.name == name)
}

/// The messages since the last final answer, and the number of tool calls since.
fn asked(rows: &[Message]) -> (String, usize) {
    let mut asked = String::new();
    let mut rounds = 0;
    for row in rows.iter().rev() {
        match row.role {
            Role::Assistant if row.tool_calls.is_empty() => break,
            Role::Assistant => rounds += 1,
            Role::User => asked.insert_str(0, &row.content),
            // It contains the messages that arrived meanwhile; delegated work has not ended when its tool has.
            Role::Tool => asked.insert_str(0, &row.content.replace("[c", "(c")),
            Role::Notice | Role::Summary => {}
        }
    }
    (asked, rounds)
}

#[derive(Debug)]
pub(super) struct Tools(pub(super) Outside);

const DELEGATE: &str = "delegate_task";
const WRITE: &str = "sim_write";
const READ: &str = "sim_read";
/// Runs a command, as the terminal does.
const SHELL: &str = "sim_shell";

impl simulated::SimulatedTools for Tools {
    fn specs(&self) -> Vec<ToolSpec> {
        let spec = |name: &str| ToolSpec {
            name: name.to_owned(),
            description: "A simulated tool.".into(),
            parameters: json!({ "type": "object" }),
        };
        vec![spec(WRITE), spec(READ), spec(SHELL)]
    }

    fn read_only(&self, name: &str) -> Option<bool> {
        match name {
            WRITE | SHELL => Some(false),
            READ => Some(true),
            _other => None,
        }
    }

    fn run<'a>(
        &'a self,
        call: &'a ToolCall,
        ctx: &'a SessionCtx,
        approver: &'a dyn CommandApprover,
    ) -> Pin<Box<dyn Future<Output = ToolResult> + Send + 'a>> {
        Box::pin(async move {
            if call.name == SHELL {
                let request = CommandRequest {
                    command: COMMAND,
                    cwd: Path::new(FOLDER),
                    has_stdin: false,
                    confinement: Confinement::Off,
                };
                if let CommandDecision::Blocked { reason } = approver.decide(request, ctx).await {
                    self.0.lock().figures.denials += 1;
                    let content = json!({ "error": reason }).to_string();
                    return ToolResult { content, failed: true, unknown: false };
                }
                let consented = self.0.lock().consented(ctx);
                self.0.check(consented);
            }
            let (took, check) = {
                let mut state = self.0.lock();
                state.note(&format!("the tool {} {} runs", call.name, call.id));
                // Its effect is there from the start; what is lost in a crash is only the news of it.
                if call.name != READ {
                    *state.world.effects.entry(call.id.clone()).or_default() += 1;
                }
                (state.luck.between(10, 8_000), state.truth.tool_ran(&state.world, &call.id))
            };
            self.0.check(check);
            clock::sleep(Duration::from_millis(took)).await;
            ToolResult { content: json!({ "done": true }).to_string(), failed: false, unknown: false }
        })
    }
}
