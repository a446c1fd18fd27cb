//! A job: what is asked of the agent, when, and who hears the answer. And the words that go in and come out.

use alloc::format;
use alloc::string::{String, ToString};

use jiff::tz::TimeZone;
use serde::{Deserialize, Serialize};

use super::schedule::Schedule;
use crate::message::Source;
use crate::person::Person;
use crate::scan;
use crate::target::Target;
use crate::text::is_silence_marker;
use crate::time::Millis;

/// Twelve hexadecimal digits.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct JobId(String);

impl JobId {
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        let hex = text.len() == 12 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        hex.then(|| Self(text.to_ascii_lowercase()))
    }

    pub fn from_bytes(bytes: [u8; 6]) -> Self {
        Self(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
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
    /// As it was written; what it means depends on the two below.
    pub schedule: String,
    /// When the schedule was set.
    pub anchor: Millis,
    /// IANA name; `None`: this machine's zone, whichever it is then.
    #[serde(default)]
    pub timezone: Option<String>,
    /// See `target`.
    pub deliver: String,
    /// Where it was asked for.
    #[serde(default)]
    pub origin: Option<Source>,
    /// Whose it is.
    pub person: Person,
    /// How often it runs in all.
    #[serde(default)]
    pub repeat: Option<u32>,
    /// How often it ran.
    #[serde(default)]
    pub completed: u32,
    pub enabled: bool,
    #[serde(default)]
    pub paused_at: Option<Millis>,
    pub created_at: Millis,
    /// How the last run went.
    #[serde(default)]
    pub last: Option<Last>,
    /// Runs that failed in a row: only the first is told, and the next one that does not.
    #[serde(default)]
    pub failures: u32,
    /// Runs that were missed since the last one.
    #[serde(default)]
    pub skipped: u32,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Last {
    pub at: Millis,
    /// `ok`, `error`, `silent` or `missed`.
    pub status: String,
    #[serde(default)]
    pub error: Option<String>,
    /// What kept the answer from some of its readers.
    #[serde(default)]
    pub delivery_error: Option<String>,
}

/// What somebody asks for.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
pub struct NewJob {
    pub name: Option<String>,
    pub schedule: String,
    pub prompt: String,
    pub deliver: Option<String>,
    pub repeat: Option<u32>,
    pub timezone: Option<String>,
}

/// What is to be different; `None`: as it is.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
pub struct Change {
    pub name: Option<String>,
    pub schedule: Option<String>,
    pub prompt: Option<String>,
    pub deliver: Option<String>,
    pub repeat: Option<u32>,
    pub enabled: Option<bool>,
}

const LONGEST_NAME: usize = 200;
const LONGEST_PROMPT: usize = 5000;
const LONGEST_DELIVER: usize = 1000;

impl Job {
    /// `zone`: the one that `new.timezone` names.
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
        job.check(zone)?;
        Ok(job)
    }

    pub fn change(mut self, change: Change, zone: &TimeZone, now: Millis) -> Result<Self, String> {
        if let Some(schedule) = change.schedule {
            (self.schedule, self.anchor) = (schedule.trim().to_string(), now);
        }
        self.name = change.name.map_or(self.name, |name| name.trim().to_string());
        self.prompt = change.prompt.map_or(self.prompt, |prompt| prompt.trim().to_string());
        self.deliver = change.deliver.map_or(self.deliver, |deliver| deliver.trim().to_string());
        self.repeat = change.repeat.or(self.repeat);
        if let Some(enabled) = change.enabled {
            self.paused_at = if enabled { None } else { self.paused_at.or(Some(now)) };
            self.enabled = enabled;
        }
        self.check(zone)?;
        Ok(self)
    }

    fn check(&self, zone: &TimeZone) -> Result<(), String> {
        if self.prompt.is_empty() || self.prompt.chars().count() > LONGEST_PROMPT {
            return Err(format!("a job's prompt has 1 to {LONGEST_PROMPT} characters"));
        }
        if self.name.is_empty() || self.name.chars().count() > LONGEST_NAME {
            return Err(format!("a job's name has 1 to {LONGEST_NAME} characters"));
        }
        if self.repeat == Some(0) {
            return Err("a job runs at least once".into());
        }
        if let Some(why) = scan::suspicious(&self.prompt) {
            return Err(format!("this prompt is not kept: {why}"));
        }
        if self.deliver.chars().count() > LONGEST_DELIVER {
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

    /// When it is due after `after`. `None`: it rests, or it is over.
    pub fn next(&self, after: Millis, zone: &TimeZone) -> Option<Millis> {
        if !self.enabled || self.is_spent() {
            return None;
        }
        self.schedule(zone).ok()?.next(after, zone)
    }

    pub fn is_spent(&self) -> bool {
        self.repeat.is_some_and(|repeat| self.completed >= repeat)
    }

    /// The conversation its runs belong to: one after the other, each with a transcript of its own.
    pub fn source(&self, platform: crate::Platform) -> Source {
        let mut source = Source::new(platform, crate::message::ChatType::Dm, self.id.as_str());
        source.chat_name = Some(self.name.clone());
        source.user_id = Some(self.person.to_string());
        source
    }
}

/// What the model is asked.
pub fn prompt(job: &Job, skipped: u32) -> String {
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
        "[System note: this is the scheduled job {:?} ({}). Nobody is here to answer questions or to approve anything. \
         Your final answer is delivered by the gateway ({}): do not send it yourself. If there is nothing worth \
         reporting, answer with [SILENT] and nothing else.{missed}]\n\n{}",
        job.name, job.schedule, job.deliver, job.prompt
    )
}

/// What is said of a run; `None`: nothing.
pub fn answer(job: &Job, text: &str, skipped: u32, wrap: bool) -> Option<String> {
    let text = text.trim();
    let recovered = job.failures > 0;
    if text.is_empty() || is_silence_marker(text) || text.starts_with("[SILENT]") {
        return recovered.then(|| format!("✅ {}: runs again.", job.name));
    }
    if !wrap {
        return Some(text.to_string());
    }
    let mut said = format!("⏰ {}\n\n{text}", job.name);
    if recovered {
        said.push_str(&format!("\n\n(It had failed {} times in a row.)", job.failures));
    }
    if skipped > 0 {
        let runs = if skipped == 1 { "run was" } else { "runs were" };
        said.push_str(&format!("\n\n({skipped} earlier {runs} skipped: the gateway was not running.)"));
    }
    Some(said)
}

/// A name for what has none.
fn title(prompt: &str) -> String {
    let line = prompt.trim().lines().next().unwrap_or_default();
    let mut name: String = line.chars().take(50).collect();
    if name.len() < line.len() {
        name.push('…');
    }
    name
}
