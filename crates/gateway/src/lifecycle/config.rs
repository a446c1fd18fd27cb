//! What a gateway is started with. Checked by whoever builds it; nobody checks again.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use petasos_agent::mcp;
use petasos_agent::memory::Memory;
use petasos_agent::{ModelConfig, Persona, TerminalConfig, ToolLimits, system_prompt};
use petasos_core::Millis;
use petasos_core::access::{Access, Tiers};
use petasos_core::admission::BusyMode;
use petasos_core::person::Person;
use petasos_core::session::{Ask, Background, Entry, KeyOptions, Policies, ResetReason, Resolution, Window};
use petasos_core::turn::Limits;
use petasos_core::{Platform, SessionKey, Source};
use petasos_platforms::Adapter;
use petasos_store::{Archive, Binding, Error as StoreError, Tx};

use crate::api::runs::RunLimits;
use crate::background::cron;
use crate::background::delegation::Delegating;
use crate::delivery::{Policy, Streaming};
use crate::inbound::downloads::Inward;
use crate::lifecycle::lifetime::Lifetime;
use crate::lifecycle::sd_notify::Notifier;
use crate::links::network::Outward;
use crate::sessions::approvals::Consent;
use crate::storage::retention::Retention;

#[derive(Debug)]
pub struct Config {
    /// Where the database lives.
    pub home: PathBuf,
    pub model: ModelConfig,
    pub adapters: Vec<Adapter>,
    /// Platforms that are asked for and cannot be spoken: listed, so that somebody sees why.
    pub unbuilt: Vec<Unbuilt>,
    pub access: Access,
    pub keys: KeyOptions,
    pub settings: Settings,
    pub lifetime: Lifetime,
    /// How many runs programs may have at work.
    pub runs: RunLimits,
    /// The service manager, if there is one.
    pub notifier: Notifier,
    /// Which addresses we have towards the world: [`crate::links::network::outward`], or what a test says.
    pub outward: fn() -> Outward,
    pub page: Page,
    /// Keep `sessions/sessions.json` for older tools.
    pub mirror: bool,
}

impl Config {
    /// A gateway on its own: without platforms, open to nobody, and of the machine it looks at this folder only.
    pub fn new(home: &Path, model: ModelConfig) -> Self {
        Self {
            home: home.into(),
            model,
            adapters: vec![],
            unbuilt: vec![],
            access: Access::default(),
            keys: KeyOptions::default(),
            settings: Settings::new(home),
            lifetime: Lifetime::default(),
            runs: RunLimits::default(),
            notifier: Notifier::default(),
            outward: Outward::default,
            page: Page::Served,
            mirror: false,
        }
    }
}

/// A platform without an adapter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unbuilt {
    pub platform: Platform,
    pub reason: String,
}

/// Whether the gateway is of use without any platform.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Page {
    /// A page or an API is served.
    Served,
    None,
}

/// What sessions go by.
#[derive(Debug, Clone)]
pub struct Settings {
    pub resets: Policies,
    /// How long an interrupted turn may be taken up again.
    pub resume_window: Window,
    pub busy: BusyMode,
    /// Whether a message to a busy session is acknowledged.
    pub busy_ack: bool,
    pub streaming: Streaming,
    pub limits: Limits,
    /// When a turn in which nothing happens is ended.
    pub stall: Stall,
    /// Which tools may be on anywhere.
    pub tools: ToolLimits,
    /// Platforms on which a turn has no other tools than these: what comes from there may be anybody's words.
    pub narrowed: BTreeMap<Platform, Vec<String>>,
    /// How long tools that run at the same time may take; `None`: as long as they like.
    pub tools_patience: Option<Duration>,
    /// Which files an answer may carry.
    pub outward_files: Policy,
    /// How files are fetched that people send.
    pub inward_files: Inward,
    /// The folder that file tools work in.
    pub workspace: PathBuf,
    /// How commands are run; `None`: the agent has no terminal.
    pub terminal: Option<TerminalConfig>,
    /// Which commands run, and whom to ask about the others.
    pub consent: Consent,
    /// How much may be given to others.
    pub delegation: Delegating,
    /// The owner's own words to the agent.
    pub persona: Option<String>,
    /// Who may use which command, where that is restricted.
    pub tiers: BTreeMap<Platform, Tiers>,
    pub compression: Compression,
    /// Retention of old conversations.
    pub retention: Retention,
    /// Model calls under way at the same time; more wait.
    pub parallel_calls: usize,
    /// Hold back what only says that nothing is said, where nobody asked.
    pub filter_silence: bool,
    /// Scheduled work.
    pub cron: cron::Settings,
    /// Where memories lie.
    pub home: PathBuf,
    /// Whose tools there are beside ours.
    pub mcp: Vec<mcp::Server>,
    /// New conversations are told what is remembered.
    pub memory: bool,
}

/// How long nothing may happen in a turn. `None`: as long as it likes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stall {
    /// Its author is told.
    pub warn: Option<Duration>,
    /// It is ended.
    pub stop: Option<Duration>,
}

impl Default for Stall {
    fn default() -> Self {
        Self { warn: Some(Duration::from_secs(900)), stop: Some(Duration::from_secs(1800)) }
    }
}

/// When long conversations are summed up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Compression {
    pub enabled: bool,
    /// Messages from which on it happens, however short they are.
    pub rows: usize,
}

impl Default for Compression {
    fn default() -> Self {
        Self { enabled: true, rows: 400 }
    }
}

/// The transcript a message belongs to.
pub(crate) struct Opened {
    pub(crate) entry: Entry,
    /// It began afresh without being asked to, and the author is to be told.
    pub(crate) notice: Option<String>,
    /// It has just begun.
    pub(crate) fresh: bool,
}

impl Settings {
    /// What counts when nobody has set anything.
    pub fn new(home: &Path) -> Self {
        let workspace = home.join("workspace");
        Self {
            resets: Policies::default(),
            resume_window: Window::default(),
            busy: BusyMode::default(),
            busy_ack: true,
            streaming: Streaming::default(),
            limits: Limits::default(),
            stall: Stall::default(),
            tools: ToolLimits::default(),
            narrowed: BTreeMap::new(),
            tools_patience: Some(Duration::from_secs(420)),
            outward_files: Policy {
                home: home.into(),
                allowed: vec![workspace.clone()],
                ..Policy::default()
            },
            inward_files: Inward::default(),
            workspace,
            terminal: None,
            consent: Consent::default(),
            delegation: Delegating::default(),
            persona: None,
            tiers: BTreeMap::new(),
            compression: Compression::default(),
            retention: Retention::default(),
            parallel_calls: 64,
            filter_silence: true,
            cron: cron::Settings::default(),
            home: home.into(),
            mcp: vec![],
            memory: true,
        }
    }

    /// Finds or makes the transcript of a conversation, with its system prompt.
    pub(crate) fn open(
        &self,
        tx: &Tx<'_>,
        key: &SessionKey,
        source: &Source,
        hint: &str,
        ask: Ask,
        now: Millis,
    ) -> Result<Opened, StoreError> {
        let policy = self.resets.lookup(Some(source.platform), source.chat_type);
        let lately = now.before(Duration::from_secs(u64::from(policy.bg_process_max_age_hours) * 3600));
        // An end that is still to be told belongs to the conversation it was started in.
        let current = tx.entry(key)?.map(|entry| entry.session_id);
        let owed = tx.completions(key)?.iter().any(|it| it.session.is_some() && it.session == current);
        let live = owed || tx.has_live_process(key, lately)?;
        let background = if live { Background::Live } else { Background::None };
        let binding = Binding { key, source, ask, policy, window: self.resume_window, background };
        let bound = tx.get_or_create(&binding, now)?;
        let fresh = matches!(bound.resolution, Resolution::New { .. });
        let notice = match bound.resolution {
            Resolution::Keep | Resolution::Resume | Resolution::Recover(_) => None,
            Resolution::New { reset, .. } => {
                let person = Person::of(source, key);
                tx.put_system_prompt(&bound.entry.session_id, &self.system_prompt(hint, Some(&person), now))?;
                match (reset, current, ask) {
                    (Some(reason), ..) => {
                        policy.tells(reason, Some(source.platform)).then(|| reset_notice(reason))
                    }
                    (None, None, Ask::Continue) => tx.archive_of_chat(key)?.map(|it| archived_notice(&it)),
                    (None, ..) => None,
                }
            }
        };
        Ok(Opened { entry: bound.entry, notice, fresh })
    }

    /// What is remembered of this person goes into it once, when the transcript begins: prompt caches hold.
    pub(crate) fn system_prompt(&self, channel: &str, person: Option<&Person>, started: Millis) -> String {
        let memory = person.filter(|_| self.memory).and_then(|person| {
            Memory::of(&self.home, person).prompt().unwrap_or_else(|error| {
                tracing::warn!(%error, "what is remembered cannot be read");
                None
            })
        });
        system_prompt(&Persona {
            extra: self.persona.as_deref(),
            channel,
            workspace: &self.workspace,
            started,
            timezone: self.cron.timezone.as_deref(),
            memory: memory.as_deref(),
        })
    }
}

fn reset_notice(reason: ResetReason) -> String {
    let reason = reason.as_str();
    format!(
        "◐ Session automatically reset ({reason}). Your earlier conversation is kept: /resume brings it back."
    )
}

fn archived_notice(archive: &Archive) -> String {
    format!(
        "◐ A new conversation begins: the earlier one in this chat was archived because it was not used for long. \
         `petasos sessions restore {}` on my machine, then /resume, brings it back.",
        archive.id.as_str()
    )
}
