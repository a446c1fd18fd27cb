//! What tools ask of the gateway, done: looking things up, fetching pages, sending, scheduling. Everybody gets only what is
//! theirs.

mod jobs;
mod recall;
mod send;
mod todo;
mod web;

use petasos_agent::{Doing, Errand, Errands, SessionCtx};
use petasos_core::person::Person;
use petasos_core::session::KeyOptions;
use petasos_platforms::page::Pages;
use serde_json::Value;

use crate::background::cron::Jobs;
use crate::background::notifications::Notifications;
use crate::storage::database::Db;

pub(crate) use todo::reminder;

/// What tools may ask for, and nothing that leads back to the tools.
#[derive(Debug)]
pub(crate) struct Desk {
    pub(crate) db: Db,
    pub(crate) notifications: Notifications,
    pub(crate) jobs: Jobs,
    pub(crate) keys: KeyOptions,
    /// `None`: pages cannot be fetched here.
    pub(crate) pages: Option<Pages>,
}

type Outcome = Result<Value, String>;

impl Errands for Desk {
    fn run<'a>(&'a self, ctx: &'a SessionCtx, errand: Errand) -> Doing<'a> {
        Box::pin(self.carry_out(ctx, errand))
    }
}

impl Desk {
    async fn carry_out(&self, ctx: &SessionCtx, errand: Errand) -> Outcome {
        match errand {
            Errand::Todo(plan) => todo::run(&self.db, ctx, plan).await,
            Errand::Search { query, limit } => recall::search(&self.db, ctx, query, limit).await,
            Errand::Around { row } => recall::around(&self.db, ctx, row).await,
            Errand::Fetch { urls } => web::run(self.pages.as_ref(), &urls).await,
            Errand::Places => send::places(&self.notifications).await,
            Errand::Send { to, text } => send::run(&self.notifications, ctx, to, text).await,
            Errand::Jobs(errand) => jobs::run(self, ctx, errand).await,
        }
    }
}

fn person(ctx: &SessionCtx) -> Person {
    Person::of(&ctx.source, &ctx.key)
}

fn trouble(error: crate::Error) -> String {
    format!("The gateway could not do it: {error}")
}
