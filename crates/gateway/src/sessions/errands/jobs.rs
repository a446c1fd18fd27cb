//! The `cronjob` tool: manages the jobs of the person who asks.

use std::time::Duration;

use petasos_agent::{JobCall, SessionCtx};
use petasos_core::Source;
use petasos_core::cron::NewJob;
use petasos_core::person::Person;
use petasos_core::target::{ChatAddress, Destination, Target};
use serde_json::{Value, json};

use super::send::ReachableChats;
use super::{ErrandResult, ErrandRunner, person_of};
use crate::background::cron::{JobError, JobRequester, ScheduledJob};
use crate::background::notifications::output::OutputJob;
use crate::background::notifications::{self, MirrorMode, Notification, Notifications};

pub(super) async fn run(runner: &ErrandRunner, ctx: &SessionCtx, errand: JobCall) -> ErrandResult {
    let of = Some(person_of(ctx));
    let jobs = &runner.jobs;
    let shown = |job: &ScheduledJob| job.to_json(&jobs.settings.cron);
    let done = match errand {
        JobCall::List => jobs.jobs(of).await.map(|all| {
            let jobs: Vec<_> = all.iter().map(shown).collect();
            json!({"success": true, "count": jobs.len(), "jobs": jobs})
        }),
        JobCall::Create(new) => return create(runner, ctx, new).await,
        JobCall::Update(id, change) => {
            if let Some(deliver) = &change.deliver {
                let job = jobs.job(&id, of.clone()).await.map_err(|error| error.to_string())?.job;
                check_targets(&runner.notifications, ctx, deliver, job.origin.as_ref()).await?;
            }
            jobs.job_change(&id, change, of).await.map(|job| json!({"success": true, "job": shown(&job)}))
        }
        JobCall::Remove(id) => {
            jobs.job_remove(&id, of).await.map(|()| json!({"success": true, "removed": id}))
        }
        JobCall::Run(id) => {
            let ran = jobs.job_run(&id, of, runner.keys).await;
            ran.map(|job| json!({"success": true, "started": true, "job": shown(&job)}))
        }
    };
    done.map_err(|error| error.to_string())
}

/// Creates a job. On a channel without later delivery its output goes to files, and the result says so.
async fn create(runner: &ErrandRunner, ctx: &SessionCtx, mut new: NewJob) -> ErrandResult {
    let mut notice = None;
    let deliver = new.deliver.get_or_insert_with(|| "origin".into());
    if !ctx.supports_async_delivery() && includes_origin(deliver) {
        let remaining: Vec<_> = Target::parse_list(deliver)
            .into_iter()
            .filter(|(_, target)| *target != Ok(Target::Origin))
            .map(|(written, _)| written)
            .chain(["local".to_owned()])
            .collect();
        *deliver = remaining.join(", ");
        notice = Some(
            "Undeliverable: this session ends with its answer, so nothing can be delivered to it later. The job is \
             scheduled; its answers stay in files below cron/output on the gateway's machine. Name a platform in deliver \
             to have them sent.",
        );
    }
    check_targets(&runner.notifications, ctx, deliver, Some(&ctx.source)).await?;
    let asker = JobRequester { person: person_of(ctx), origin: Some(ctx.source.clone()) };
    let jobs = &runner.jobs;
    let job = jobs.job_create(new, asker).await.map_err(|error: JobError| error.to_string())?;
    let mut result = json!({"success": true, "job": job.to_json(&jobs.settings.cron)});
    if let Some(notice) = notice {
        result["undeliverable"] = Value::from(notice);
    }
    Ok(result)
}

/// A job may deliver to the chats that its author may send to, and to its origin. The owner's jobs may deliver anywhere.
async fn check_targets(
    by: &Notifications,
    ctx: &SessionCtx,
    deliver: &str,
    origin: Option<&Source>,
) -> Result<(), String> {
    if person_of(ctx) == Person::owner() {
        return Ok(());
    }
    let origin = origin.and_then(ChatAddress::of);
    let here = |place: &ChatAddress| {
        origin.as_ref().is_some_and(|it| (it.platform, &it.chat_id) == (place.platform, &place.chat_id))
    };
    let probe = Notification {
        to: deliver.to_owned(),
        text: String::new(),
        job: OutputJob::default(),
        origin: origin.clone(),
        mirror: MirrorMode::No,
        wait: Duration::ZERO,
    };
    let reach = ReachableChats::of(by).await;
    for (target, aim) in notifications::resolve_destinations(by, &probe).await {
        match aim {
            Ok(Destination::Chat(place)) if !here(&place) && !reach.allows(&place) => {
                return Err(format!(
                    "{target} is neither this chat, nor a home channel, nor a chat of the directory, so nothing can be \
                     delivered there. send_message with action list shows the chats that can be reached."
                ));
            }
            // Unresolved targets are reported when the job runs.
            Ok(Destination::Chat(_) | Destination::File | Destination::NoHomeChannel(_)) | Err(_) => {}
        }
    }
    Ok(())
}

/// Whether one of the targets is the origin.
fn includes_origin(deliver: &str) -> bool {
    Target::parse_list(deliver).iter().any(|(_, target)| *target == Ok(Target::Origin))
}
