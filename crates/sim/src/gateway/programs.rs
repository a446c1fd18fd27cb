//! API runs: programs that start runs, repeat a request under its idempotency key, and wait for the end.

use petasos_core::RunId;
use petasos_core::journal::MessageOutcome;
use petasos_gateway::{Handle, IdempotencyKey, RunOptions, RunRequest, RunTarget, StartRunError, fresh_id};
use petasos_store::Reads;

use super::state::{Event, Outside, State};
use crate::promise::Promise;
use crate::truth::Check;

/// How often a program looks whether it has to ask again, in milliseconds.
const AGAIN: u64 = 5_000;

impl State {
    /// A program starts a run, unless its request is under way in this process.
    pub(super) fn ask_for_run(&mut self, outside: &Outside, number: usize) {
        if self.world.runs[number].ended.is_some() {
            return;
        }
        self.later(Event::StartRun(number), AGAIN);
        let Some(handle) = self.handle() else { return };
        let life = self.life;
        if self.programs.insert(number, life) == Some(life) {
            return;
        }
        let outside = outside.clone();
        let chat = self.world.runs[number].chat;
        drop(self.simulation.spawn_in(self.process(), async move {
            let check = outside.run_to_its_end(&handle, number, chat).await;
            let over = outside.lock().world.runs[number].ended.is_some();
            if !over {
                outside.lock().programs.remove(&number);
            }
            outside.check(check);
        }));
    }

    pub(super) fn stop_run(&mut self, number: usize) {
        let (Some(handle), Some(id)) = (self.handle(), self.world.runs[number].id.clone()) else { return };
        self.world.runs[number].stopped = true;
        drop(self.simulation.spawn_in(self.process(), async move {
            if let Ok(Some(run)) = handle.run(&id).await {
                // It may be over.
                let _ = handle.stop_run(&run).await;
            }
        }));
    }

    /// Every run is in the final state that its program received.
    pub(super) fn runs_have_ended(&self, store: &Reads) -> Check {
        for (number, run) in self.world.runs.iter().enumerate() {
            let row = run.id.as_ref().and_then(|id| store.run(id).ok().flatten());
            let Some(end) = row.and_then(|row| row.end) else {
                return Err((Promise::G2, format!("[r{number}] has no end")));
            };
            if Some(end.outcome) != run.ended {
                let what =
                    format!("[r{number}] ended as {:?}, and its program heard {:?}", end.outcome, run.ended);
                return Err((Promise::G2, what));
            }
            let said = end.answer.unwrap_or_default();
            match end.outcome {
                MessageOutcome::Answered if !said.contains(&format!("[r{number}]")) => {
                    return Err((Promise::G2, format!("[r{number}] counts as answered with {said:?}")));
                }
                MessageOutcome::Cancelled if !run.stopped => {
                    return Err((Promise::G2, format!("[r{number}] was cancelled without a request")));
                }
                MessageOutcome::Answered
                | MessageOutcome::Merged
                | MessageOutcome::Cancelled
                | MessageOutcome::Refused
                | MessageOutcome::Dead => {}
            }
        }
        Ok(())
    }
}

impl Outside {
    async fn run_to_its_end(&self, handle: &Handle, number: usize, chat: u64) -> Check {
        let asked = RunRequest {
            run: RunId(fresh_id::<8>("run_")),
            owner: "program".into(),
            sees_all: false,
            target: RunTarget::Conversation(format!("p{chat}")),
            text: format!("do [r{number}]"),
            attachments: vec![],
            options: RunOptions::default(),
            idempotency_key: Some(IdempotencyKey {
                name: format!("k{number}"),
                fingerprint: [u8::try_from(number).unwrap_or(0); 32],
            }),
        };
        let id = match handle.start_run(asked).await {
            Ok(started) => started.run.id,
            Err(StartRunError::Error(_) | StartRunError::Full { .. }) => return Ok(()),
            Err(error @ (StartRunError::KeyReused | StartRunError::TargetNotFound)) => {
                return Err((Promise::G3, format!("[r{number}] is not started: {error}")));
            }
        };
        let lost = {
            let mut state = self.lock();
            let known = state.world.runs[number].id.replace(id.clone());
            if known.as_ref().is_some_and(|known| *known != id) {
                return Err((Promise::G3, format!("[r{number}] is two runs under one name")));
            }
            state.luck.chance(200)
        };
        if lost {
            return Ok(()); // the program repeats the request
        }
        if let Ok(Some(row)) = handle.run_ended(&id).await
            && let Some(end) = row.end
        {
            let mut state = self.lock();
            state.figures.runs += 1;
            state.note(&format!("run {number} has ended: {:?}", end.outcome));
            state.world.runs[number].ended = Some(end.outcome);
        }
        Ok(())
    }
}
