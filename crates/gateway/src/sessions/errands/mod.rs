//! What tools ask of the gateway, done: looking things up, fetching pages, sending, scheduling. Everybody gets only what is
//! theirs.

mod jobs;
mod recall;
mod send;
mod todo;
mod web;

use std::sync::{Arc, Weak};

use petasos_agent::{Doing, Errand, Errands, SessionCtx};
use petasos_core::person::Person;
use petasos_core::session::KeyOptions;
use petasos_platforms::page::Pages;
use serde_json::Value;

use crate::sessions::Shell;

pub(crate) use todo::reminder;

/// Tools belong to the shell, and the shell to them only as long as it is there.
#[derive(Debug)]
pub(crate) struct Desk {
    pub(crate) shell: Weak<Shell>,
    pub(crate) keys: KeyOptions,
    /// `None`: pages cannot be fetched here.
    pub(crate) pages: Option<Pages>,
}

type Outcome = Result<Value, String>;

impl Errands for Desk {
    fn run<'a>(&'a self, ctx: &'a SessionCtx, errand: Errand) -> Doing<'a> {
        Box::pin(async move {
            let Some(shell) = self.shell.upgrade() else { return Err("The gateway is stopping.".to_owned()) };
            self.carry_out(&shell, ctx, errand).await
        })
    }
}

impl Desk {
    async fn carry_out(&self, shell: &Arc<Shell>, ctx: &SessionCtx, errand: Errand) -> Outcome {
        match errand {
            Errand::Todo(plan) => todo::run(shell, ctx, plan).await,
            Errand::Search { query, limit } => recall::search(shell, ctx, query, limit).await,
            Errand::Around { row } => recall::around(shell, ctx, row).await,
            Errand::Fetch { urls } => web::run(self.pages.as_ref(), &urls).await,
            Errand::Places => send::places(shell).await,
            Errand::Send { to, text } => send::run(shell, ctx, to, text).await,
            Errand::Jobs(errand) => jobs::run(shell, ctx, self.keys, errand).await,
        }
    }
}

fn person(ctx: &SessionCtx) -> Person {
    Person::of(&ctx.source, &ctx.key)
}

fn trouble(error: crate::Error) -> String {
    format!("The gateway could not do it: {error}")
}
