//! A scheduled job: its definition, the prompt of a run and the report that is delivered.

use alloc::format;
use alloc::string::{String, ToString};

use jiff::tz::TimeZone;
use serde::{Deserialize, Serialize};

use super::schedule::Schedule;
use crate::message::Source;
use crate::person::Person;
use crate::scan;
use crate::target::Target;
use crate::text::hex;
use crate::text::is_silence_marker;
use crate::time::Millis;

/// Twelve hexadecimal digits.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct JobId(String);

impl JobId {
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        let valid = text.len() == 12 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        valid.then(|| Self(text.to_ascii_lowercase()))
    }

    pub fn from_bytes(bytes: [u8; 6]) -> Self {
        Self(hex(&bytes))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl core::fmt::Display for JobId {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(&self.0)
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Job {
    pub id: JobId,
    pub name: String,
    pub prompt: String,
    /// As written; interpreted relative to `anchor` and `timezone`.
    pub schedule: String,
    /// When the schedule was set.
    pub anchor: Millis,
    /// IANA name; `None`: the current zone of this machine.
    #[serde(default)]
    pub timezone: Option<String>,
    /// Delivery targets, see `target`.
    pub deliver: String,
    #[serde(default)]
    pub origin: Option<Source>,
    pub person: Person,
    #[serde(default)]
    pub repeat: Option<u32>,
    #[serde(default)]
    pub completed: u32,
    pub enabled: bool,
    #[serde(default)]
    pub paused_at: Option<Millis>,
    pub created_at: Millis,
    #[serde(default)]
    pub last: Option<LastRun>,
    /// Consecutive failed runs. Only the first failure and the next success are reported.
    #[serde(default)]
    pub failures: u32,
    #[serde(default)]
    pub skipped: u32,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LastRun {
    pub at: Millis,
    /// `ok`, `error`, `silent` or `missed`.
    pub status: String,
    #[serde(default)]
    pub error: Option<String>,
    /// Why the answer did not reach every target.
    #[serde(default)]
    pub delivery_error: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
pub struct NewJob {
    pub name: Option<String>,
    pub schedule: String,
    pub prompt: String,
    pub deliver: Option<String>,
    pub repeat: Option<u32>,
    pub timezone: Option<String>,
}

/// Changes to a job; `None` leaves a field unchanged.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
pub struct JobUpdate {
    pub name: Option<String>,
    pub schedule: Option<String>,
    pub prompt: Option<String>,
    pub deliver: Option<String>,
    pub repeat: Option<u32>,
    pub enabled: Option<bool>,
}

const MAX_NAME_CHARS: usize = 200;
const MAX_PROMPT_CHARS: usize = 5000;
const MAX_DELIVER_CHARS: usize = 1000;

impl Job {
    /// `zone`: the time zone named by `new.timezone`.
    pub fn new(
        id: JobId,
        new: NewJob,
        person: Person,
        origin: Option<Source>,
        zone: &TimeZone,
        now: Millis,
    ) -> Result<Self, String> {
        let name = match new.name.map(|name| name.trim().to_string()).filter(|name| !name.is_empty()) {
            Some(name) => name,
            None => title(&new.prompt),
        };
        let job = Self {
            id,
            name,
            prompt: new.prompt.trim().to_string(),
            schedule: new.schedule.trim().to_string(),
            anchor: now,
            timezone: new.timezone,
            deliver: new.deliver.unwrap_or_else(|| "origin".into()).trim().to_string(),
            origin,
            person,
            repeat: new.repeat,
            completed: 0,
            enabled: true,
            paused_at: None,
            created_at: now,
            last: None,
            failures: 0,
            skipped: 0,
        };
        job.validate(zone)?;
        Ok(job)
    }

    pub fn change(mut self, change: JobUpdate, zone: &TimeZone, now: Millis) -> Result<Self, String> {
        if let Some(schedule) = change.schedule {
            self.schedule = schedule.trim().to_string();
            self.anchor = now;
        }
        self.name = change.name.map_or(self.name, |name| name.trim().to_string());
        self.prompt = change.prompt.map_or(self.prompt, |prompt| prompt.trim().to_string());
        self.deliver = change.deliver.map_or(self.deliver, |deliver| deliver.trim().to_string());
        self.repeat = change.repeat.or(self.repeat);
        if let Some(enabled) = change.enabled {
            self.paused_at = if enabled { None } else { self.paused_at.or(Some(now)) };
            self.enabled = enabled;
        }
        self.validate(zone)?;
        Ok(self)
    }

    fn validate(&self, zone: &TimeZone) -> Result<(), String> {
        if self.prompt.is_empty() || self.prompt.chars().count() > MAX_PROMPT_CHARS {
            return Err(format!("a job's prompt has 1 to {MAX_PROMPT_CHARS} characters"));
        }
        if self.name.is_empty() || self.name.chars().count() > MAX_NAME_CHARS {
            return Err(format!("a job's name has 1 to {MAX_NAME_CHARS} characters"));
        }
        if self.repeat == Some(0) {
            return Err("a job runs at least once".into());
        }
        if let Some(reason) = scan::injection_sign(&self.prompt) {
            return Err(format!("this prompt is rejected: {reason}"));
        }
        if self.deliver.chars().count() > MAX_DELIVER_CHARS {
            return Err("there are too many targets".into());
        }
        for (written, target) in Target::parse_list(&self.deliver) {
            target.map_err(|bad| format!("{written:?}: {bad}"))?;
        }
        self.schedule(zone).map(drop)
    }

    pub fn schedule(&self, zone: &TimeZone) -> Result<Schedule, String> {
        Schedule::parse(&self.schedule, self.anchor, zone)
    }

    /// The next run after `after`. `None`: paused or over.
    pub fn next(&self, after: Millis, zone: &TimeZone) -> Option<Millis> {
        if !self.enabled || self.is_exhausted() {
            return None;
        }
        self.schedule(zone).ok()?.next(after, zone)
    }

    pub fn is_exhausted(&self) -> bool {
        self.repeat.is_some_and(|repeat| self.completed >= repeat)
    }

    /// The chat of its runs, which run one after the other, each with its own transcript.
    pub fn source(&self, platform: crate::Platform) -> Source {
        let mut source = Source::new(platform, crate::message::ChatType::Dm, self.id.as_str());
        source.chat_name = Some(self.name.clone());
        source.user_id = Some(self.person.to_string());
        source
    }
}

pub fn run_prompt(job: &Job, skipped: u32) -> String {
    let missed = match skipped {
        0 => String::new(),
        1 => {
            " One earlier run was skipped, because its time passed while the gateway was not running.".into()
        }
        many => format!(
            " {many} earlier runs were skipped, because their time passed while the gateway was not running."
        ),
    };
    format!(
        "[System note: this is the scheduled job {:?} ({}). No user is present to answer questions or approve commands. \
         Your final answer is delivered by the gateway ({}): do not send it yourself. If there is nothing worth \
         reporting, answer with [SILENT] and nothing else.{missed}]\n\n{}",
        job.name, job.schedule, job.deliver, job.prompt
    )
}

/// The message that is delivered after a run. `None`: nothing is delivered.
pub fn run_report(job: &Job, text: &str, skipped: u32, wrap: bool) -> Option<String> {
    let text = text.trim();
    let recovered = job.failures > 0;
    if text.is_empty() || is_silence_marker(text) || text.starts_with("[SILENT]") {
        return recovered.then(|| format!("✅ {} works again.", job.name));
    }
    if !wrap {
        return Some(text.to_string());
    }
    let mut report = format!("⏰ {}\n\n{text}", job.name);
    if recovered {
        let times =
            if job.failures == 1 { "once".to_string() } else { format!("{} times in a row", job.failures) };
        report.push_str(&format!("\n\n(The job had failed {times} before.)"));
    }
    if skipped > 0 {
        let runs = if skipped == 1 { "run was" } else { "runs were" };
        report.push_str(&format!("\n\n({skipped} earlier {runs} skipped: the gateway was not running.)"));
    }
    Some(report)
}

fn title(prompt: &str) -> String {
    let line = prompt.trim().lines().next().unwrap_or_default();
    let mut name: String = line.chars().take(50).collect();
    if name.len() < line.len() {
        name.push('…');
    }
    name
}
