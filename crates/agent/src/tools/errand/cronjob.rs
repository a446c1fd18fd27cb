//! `cronjob`: work for later.

use petasos_core::cron::{Change, JobId, NewJob};
use schemars::JsonSchema;
use serde::Deserialize;

use super::{Errand, JobErrand};
use crate::tools::arguments::needed;
use crate::tools::definition::{Definition, Effects, Reach, Runner, Service, Toolset};

pub(in crate::tools) fn tool() -> Definition {
    Definition {
        name: "cronjob",
        description: "Schedules work for later: you are asked the prompt at that time, and your answer is delivered. An answer of [SILENT] is not.",
        toolset: Toolset::Schedule,
        service: Service::Gateway,
        effects: Effects::Anything,
        reach: Reach::LaterTurns,
        runner: Runner::errand(read),
    }
}

#[derive(Deserialize, JsonSchema)]
struct Arguments {
    action: Action,
    /// Which job (update, pause, resume, remove, run)
    job_id: Option<String>,
    name: Option<String>,
    /// 30m (once, from now), every 2h, every 1d, a cron expression such as 0 9 * * 1-5, or a time such as 2027-02-03T14:00
    schedule: Option<String>,
    /// What to do then. It is read without this conversation: say everything that is needed
    prompt: Option<String>,
    /// origin (this chat, the default), local (a file), platform, platform:chat[:thread], all; several with commas
    deliver: Option<String>,
    /// How often in all; default: until it is removed
    #[schemars(range(min = 1))]
    repeat: Option<u32>,
    /// IANA name; default: the owner's
    timezone: Option<String>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Action {
    Create,
    List,
    Update,
    Pause,
    Resume,
    Remove,
    Run,
}

fn read(arguments: Arguments) -> Result<Errand, String> {
    let Arguments { action, job_id, name, schedule, prompt, deliver, repeat, timezone } = arguments;
    let id = || {
        let text = needed(&job_id, "job_id")?;
        JobId::parse(text).ok_or_else(|| format!("{text:?} is no job's id: twelve hexadecimal digits."))
    };
    let enabled = |enabled: bool| Change { enabled: Some(enabled), ..Change::default() };
    Ok(Errand::Jobs(match action {
        Action::List => JobErrand::List,
        Action::Create => JobErrand::Create(NewJob {
            name,
            schedule: needed(&schedule, "schedule")?.to_owned(),
            prompt: needed(&prompt, "prompt")?.to_owned(),
            deliver,
            repeat,
            timezone,
        }),
        Action::Update => {
            JobErrand::Update(id()?, Change { name, schedule, prompt, deliver, repeat, enabled: None })
        }
        Action::Pause => JobErrand::Update(id()?, enabled(false)),
        Action::Resume => JobErrand::Update(id()?, enabled(true)),
        Action::Remove => JobErrand::Remove(id()?),
        Action::Run => JobErrand::Run(id()?),
    }))
}
