//! The `cronjob` tool: schedules work for later.

use petasos_core::cron::{JobId, JobUpdate, NewJob};
use schemars::JsonSchema;
use serde::Deserialize;

use super::{GatewayCall, JobCall};
use crate::tools::registry::arguments::required;
use crate::tools::registry::definition::{Definition, Effects, Reach, Runner, Service, Toolset};

pub(in crate::tools) fn tool() -> Definition {
    Definition {
        name: "cronjob",
        description: "Schedules work for later: you receive the prompt at that time, and your answer is delivered unless it is [SILENT].",
        toolset: Toolset::Schedule,
        service: Service::Gateway,
        effects: Effects::Anything,
        paginated: false,
        reach: Reach::LaterTurns,
        runner: Runner::gateway(parse_call),
    }
}

#[derive(Deserialize, JsonSchema)]
struct CronjobArguments {
    action: CronjobAction,
    /// Id of the job (update, pause, resume, remove, run)
    job_id: Option<String>,
    name: Option<String>,
    /// 30m (once, from now), every 2h, every 1d, a cron expression such as 0 9 * * 1-5, or a time such as 2027-02-03T14:00
    schedule: Option<String>,
    /// Instructions for that time, read without this conversation: include everything needed
    prompt: Option<String>,
    /// origin (this chat, the default), local (a file), platform, platform:chat[:thread], all; several with commas
    deliver: Option<String>,
    /// Number of runs; default: no limit
    #[schemars(range(min = 1))]
    repeat: Option<u32>,
    /// IANA name; default: the owner's
    timezone: Option<String>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum CronjobAction {
    Create,
    List,
    Update,
    Pause,
    Resume,
    Remove,
    Run,
}

fn parse_call(arguments: CronjobArguments) -> Result<GatewayCall, String> {
    let CronjobArguments { action, job_id, name, schedule, prompt, deliver, repeat, timezone } = arguments;
    let id = || {
        let text = required(&job_id, "job_id")?;
        JobId::parse(text)
            .ok_or_else(|| format!("{text:?} is not a job id, which has twelve hexadecimal digits."))
    };
    let enabled = |enabled: bool| JobUpdate { enabled: Some(enabled), ..JobUpdate::default() };
    Ok(GatewayCall::Jobs(match action {
        CronjobAction::List => JobCall::List,
        CronjobAction::Create => JobCall::Create(NewJob {
            name,
            schedule: required(&schedule, "schedule")?.to_owned(),
            prompt: required(&prompt, "prompt")?.to_owned(),
            deliver,
            repeat,
            timezone,
        }),
        CronjobAction::Update => {
            JobCall::Update(id()?, JobUpdate { name, schedule, prompt, deliver, repeat, enabled: None })
        }
        CronjobAction::Pause => JobCall::Update(id()?, enabled(false)),
        CronjobAction::Resume => JobCall::Update(id()?, enabled(true)),
        CronjobAction::Remove => JobCall::Remove(id()?),
        CronjobAction::Run => JobCall::Run(id()?),
    }))
}
