//! Runs the tools that need the gateway: todo list, search, web pages, sending, scheduled jobs. Each call acts for the person who
//! asked and sees only that person's data.

mod jobs;
mod recall;
mod send;
mod todo;
mod web;

use petasos_agent::{GatewayCall, GatewayTools, SessionCtx, ToolFuture};
use petasos_core::person::Person;
use petasos_core::session::KeyOptions;
use petasos_platforms::page::PageFetcher;
use serde_json::Value;

use crate::background::cron::Jobs;
use crate::background::notifications::Notifications;
use crate::storage::database::Db;

pub(crate) use todo::open_items;

#[derive(Debug)]
pub(crate) struct ErrandRunner {
    pub(crate) db: Db,
    pub(crate) notifications: Notifications,
    pub(crate) jobs: Jobs,
    pub(crate) keys: KeyOptions,
    /// `None`: web access is off.
    pub(crate) pages: Option<PageFetcher>,
}

type ErrandResult = Result<Value, String>;

impl GatewayTools for ErrandRunner {
    fn run<'a>(&'a self, ctx: &'a SessionCtx, errand: GatewayCall) -> ToolFuture<'a> {
        Box::pin(self.dispatch(ctx, errand))
    }
}

impl ErrandRunner {
    async fn dispatch(&self, ctx: &SessionCtx, errand: GatewayCall) -> ErrandResult {
        match errand {
            GatewayCall::Todo(plan) => todo::run(&self.db, ctx, plan).await,
            GatewayCall::Search { query, limit } => recall::search(&self.db, ctx, query, limit).await,
            GatewayCall::Around { row } => recall::around(&self.db, ctx, row).await,
            GatewayCall::Fetch { urls } => web::run(self.pages.as_ref(), &urls).await,
            GatewayCall::ListTargets => send::list_chats(&self.notifications).await,
            GatewayCall::Send { to, text } => send::run(&self.notifications, ctx, to, text).await,
            GatewayCall::Jobs(errand) => jobs::run(self, ctx, errand).await,
        }
    }
}

fn person_of(ctx: &SessionCtx) -> Person {
    Person::of(&ctx.source, &ctx.key)
}

fn error_text(error: crate::Error) -> String {
    format!("The gateway could not do it: {error}")
}
