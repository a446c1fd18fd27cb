//! `cronjob`: the jobs of whoever asks, and of nobody else.

use std::time::Duration;

use petasos_agent::{JobErrand, SessionCtx};
use petasos_core::Source;
use petasos_core::cron::NewJob;
use petasos_core::person::Person;
use petasos_core::target::{Aim, Place, Target};
use serde_json::{Value, json};

use super::send::Reach;
use super::{Desk, Outcome, person};
use crate::background::cron::{Asker, JobError, Scheduled};
use crate::background::notifications::output::Job;
use crate::background::notifications::{self, Mirror, Notifications, Post};

pub(super) async fn run(desk: &Desk, ctx: &SessionCtx, errand: JobErrand) -> Outcome {
    let of = Some(person(ctx));
    let jobs = &desk.jobs;
    let shown = |job: &Scheduled| job.to_json(&jobs.settings.cron);
    let done = match errand {
        JobErrand::List => jobs.jobs(of).await.map(|all| {
            let jobs: Vec<_> = all.iter().map(shown).collect();
            json!({"success": true, "count": jobs.len(), "jobs": jobs})
        }),
        JobErrand::Create(new) => return create(desk, ctx, new).await,
        JobErrand::Update(id, change) => {
            if let Some(deliver) = &change.deliver {
                let job = jobs.job(&id, of.clone()).await.map_err(|error| error.to_string())?.job;
                may_reach(&desk.notifications, ctx, deliver, job.origin.as_ref()).await?;
            }
            jobs.job_change(&id, change, of).await.map(|job| json!({"success": true, "job": shown(&job)}))
        }
        JobErrand::Remove(id) => {
            jobs.job_remove(&id, of).await.map(|()| json!({"success": true, "removed": id}))
        }
        JobErrand::Run(id) => {
            let ran = jobs.job_run(&id, of, desk.keys).await;
            ran.map(|job| json!({"success": true, "started": true, "job": shown(&job)}))
        }
    };
    done.map_err(|error| error.to_string())
}

/// Where nothing can be delivered later, the answers are kept in files, and whoever asked is told.
async fn create(desk: &Desk, ctx: &SessionCtx, mut new: NewJob) -> Outcome {
    let mut notice = None;
    let deliver = new.deliver.get_or_insert_with(|| "origin".into());
    if !ctx.delivers_later() && names_origin(deliver) {
        let kept: Vec<_> = Target::parse_list(deliver)
            .into_iter()
            .filter(|(_, target)| *target != Ok(Target::Origin))
            .map(|(written, _)| written)
            .chain(["local".to_owned()])
            .collect();
        *deliver = kept.join(", ");
        notice = Some(
            "Undeliverable: this session ends with its answer, so nothing can be delivered back to it. The job is set, \
             and what it says is kept in files below cron/output on the gateway's machine; name a platform in deliver \
             to have it sent.",
        );
    }
    may_reach(&desk.notifications, ctx, deliver, Some(&ctx.source)).await?;
    let asker = Asker { person: person(ctx), origin: Some(ctx.source.clone()) };
    let jobs = &desk.jobs;
    let job = jobs.job_create(new, asker).await.map_err(|error: JobError| error.to_string())?;
    let mut result = json!({"success": true, "job": job.to_json(&jobs.settings.cron)});
    if let Some(notice) = notice {
        result["undeliverable"] = Value::from(notice);
    }
    Ok(result)
}

/// What a job says goes where whoever asked for it may send something, and to where it was asked for. The owner may have
/// it delivered anywhere.
async fn may_reach(
    by: &Notifications,
    ctx: &SessionCtx,
    deliver: &str,
    origin: Option<&Source>,
) -> Result<(), String> {
    if person(ctx) == Person::owner() {
        return Ok(());
    }
    let origin = origin.and_then(Place::of);
    let here = |place: &Place| {
        origin.as_ref().is_some_and(|it| (it.platform, &it.chat_id) == (place.platform, &place.chat_id))
    };
    let asked = Post {
        to: deliver.to_owned(),
        text: String::new(),
        job: Job::default(),
        origin: origin.clone(),
        mirror: Mirror::No,
        wait: Duration::ZERO,
    };
    let reach = Reach::of(by).await;
    for (target, aim) in notifications::aims(by, &asked).await {
        match aim {
            Ok(Aim::Chat(place)) if !here(&place) && !reach.allows(&place) => {
                return Err(format!(
                    "{target} is neither this chat nor a home channel nor a chat of the directory: nothing is delivered \
                     there. send_message with action list shows what can be reached."
                ));
            }
            // What leads nowhere today is told to nobody; it is said when the job runs.
            Ok(Aim::Chat(_) | Aim::File | Aim::Homeless(_)) | Err(_) => {}
        }
    }
    Ok(())
}

/// Whether some of it goes where the work was asked for.
fn names_origin(deliver: &str) -> bool {
    Target::parse_list(deliver).iter().any(|(_, target)| *target == Ok(Target::Origin))
}
