//! `cronjob`: the jobs of whoever asks, and of nobody else.

use std::sync::Arc;

use petasos_agent::{JobErrand, SessionCtx};
use petasos_core::cron::NewJob;
use petasos_core::session::KeyOptions;
use petasos_core::target::Target;
use serde_json::{Value, json};

use super::{Outcome, person};
use crate::cron::{Asker, JobError, Scheduled};
use crate::session::Shell;

pub(super) async fn run(
    shell: &Arc<Shell>,
    ctx: &SessionCtx,
    keys: KeyOptions,
    errand: JobErrand,
) -> Outcome {
    let of = Some(person(ctx));
    let shown = |job: &Scheduled| job.to_json(&shell.settings.cron);
    let done = match errand {
        JobErrand::List => shell.jobs(of).await.map(|jobs| {
            let jobs: Vec<_> = jobs.iter().map(shown).collect();
            json!({"success": true, "count": jobs.len(), "jobs": jobs})
        }),
        JobErrand::Create(new) => return create(shell, ctx, new).await,
        JobErrand::Update(id, change) => {
            shell.job_change(&id, change, of).await.map(|job| json!({"success": true, "job": shown(&job)}))
        }
        JobErrand::Remove(id) => {
            shell.job_remove(&id, of).await.map(|()| json!({"success": true, "removed": id}))
        }
        JobErrand::Run(id) => {
            let ran = shell.job_run(&id, of, keys).await;
            ran.map(|job| json!({"success": true, "started": true, "job": shown(&job)}))
        }
    };
    done.map_err(|error| error.to_string())
}

/// Where nothing can be delivered later, the answers are kept in files, and whoever asked is told.
async fn create(shell: &Arc<Shell>, ctx: &SessionCtx, mut new: NewJob) -> Outcome {
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
    let asker = Asker { person: person(ctx), origin: Some(ctx.source.clone()) };
    let job = shell.job_create(new, asker).await.map_err(|error: JobError| error.to_string())?;
    let mut result = json!({"success": true, "job": job.to_json(&shell.settings.cron)});
    if let Some(notice) = notice {
        result["undeliverable"] = Value::from(notice);
    }
    Ok(result)
}

/// Whether some of it goes where the work was asked for.
fn names_origin(deliver: &str) -> bool {
    Target::parse_list(deliver).iter().any(|(_, target)| *target == Ok(Target::Origin))
}
