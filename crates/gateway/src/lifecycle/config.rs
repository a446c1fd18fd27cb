//! Configuration of a gateway. Validated by its builder, not again.

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
use petasos_core::session::{
    BackgroundWork, Entry, FreshnessWindow, KeyOptions, ResetPolicies, ResetReason, Resolution, ResolveMode,
};
use petasos_core::turn::TurnLimits;
use petasos_core::{Platform, Redactor, SessionKey, Source};
use petasos_platforms::Adapter;
use petasos_store::{Archive, BindRequest, Error as StoreError, Tx};

use crate::api::runs::RunLimits;
use crate::background::cron;
use crate::background::delegation::DelegationSettings;
use crate::delivery::{AttachmentPolicy, Streaming};
use crate::inbound::downloads::DownloadSettings;
use crate::lifecycle::lifetime::Lifetime;
use crate::lifecycle::sd_notify::Notifier;
use crate::links::network::OutboundAddresses;
use crate::sessions::approvals::ApprovalSettings;
use crate::storage::retention::Retention;

#[derive(Debug)]
pub struct Config {
    /// Folder of the database and all other files.
    pub home: PathBuf,
    pub model: ModelConfig,
    pub adapters: Vec<Adapter>,
    /// Configured platforms that cannot be used, with the reason for the status.
    pub unbuilt: Vec<UnavailablePlatform>,
    pub access: Access,
    pub keys: KeyOptions,
    pub settings: Settings,
    pub lifetime: Lifetime,
    pub runs: RunLimits,
    pub notifier: Notifier,
    /// Reads the outbound addresses: [`crate::links::network::outbound_addresses`], or a stub in tests.
    pub outward: fn() -> OutboundAddresses,
    pub page: LocalService,
    /// Keep `sessions/sessions.json` for older tools.
    pub mirror: bool,
}

impl Config {
    /// A gateway without platforms and without authorised people.
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
            outward: OutboundAddresses::default,
            page: LocalService::Served,
            mirror: false,
        }
    }
}

impl Config {
    /// Hides secrets in everything that leaves the gateway.
    pub fn redact(&mut self, redactor: Redactor) {
        self.lifetime.redactor = redactor.clone();
        self.settings.redactor = redactor;
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnavailablePlatform {
    pub platform: Platform,
    pub reason: String,
}

/// Whether the gateway is useful without any platform.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LocalService {
    /// The page or the API is served.
    Served,
    None,
}

#[derive(Debug, Clone)]
pub struct Settings {
    pub resets: ResetPolicies,
    /// How long an interrupted turn can be resumed.
    pub resume_window: FreshnessWindow,
    pub busy: BusyMode,
    /// Whether a message to a busy session is acknowledged.
    pub busy_ack: bool,
    pub streaming: Streaming,
    pub limits: TurnLimits,
    pub stall: StallLimits,
    pub tools: ToolLimits,
    /// Tools allowed per platform, for platforms whose messages may come from strangers.
    pub narrowed: BTreeMap<Platform, Vec<String>>,
    /// Time limit of concurrent tool calls; `None`: no limit.
    pub tools_patience: Option<Duration>,
    /// Which files may be attached to answers.
    pub attachments: AttachmentPolicy,
    /// How received files are downloaded.
    pub downloads: DownloadSettings,
    pub workspace: PathBuf,
    pub terminal: Option<TerminalConfig>,
    pub approvals: ApprovalSettings,
    pub delegation: DelegationSettings,
    /// Additional system prompt of the owner.
    pub persona: Option<String>,
    /// Restrictions of slash commands.
    pub tiers: BTreeMap<Platform, Tiers>,
    pub compaction: CompactionSettings,
    pub retention: Retention,
    pub parallel_calls: usize,
    /// Suppress notifications that only say that there is nothing to report.
    pub filter_silence: bool,
    pub cron: cron::Settings,
    pub home: PathBuf,
    pub mcp: Vec<mcp::McpServerConfig>,
    /// Add memories to the system prompt of new conversations.
    pub memory: bool,
    /// Hides secrets in tool results, answers and notices.
    pub redactor: Redactor,
}

/// Limits of inactivity in a turn. `None`: no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StallLimits {
    pub warn: Option<Duration>,
    pub stop: Option<Duration>,
}

impl Default for StallLimits {
    fn default() -> Self {
        Self { warn: Some(Duration::from_secs(900)), stop: Some(Duration::from_secs(1800)) }
    }
}

/// When long conversations are compacted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CompactionSettings {
    pub enabled: bool,
    /// Compact from this number of messages on, whatever their size.
    pub rows: usize,
}

impl Default for CompactionSettings {
    fn default() -> Self {
        Self { enabled: true, rows: 400 }
    }
}

/// The session of a message.
pub(crate) struct OpenedSession {
    pub(crate) entry: Entry,
    /// For the author: the session was reset automatically.
    pub(crate) notice: Option<String>,
    pub(crate) fresh: bool,
}

impl Settings {
    pub fn new(home: &Path) -> Self {
        let workspace = home.join("workspace");
        Self {
            resets: ResetPolicies::default(),
            resume_window: FreshnessWindow::default(),
            busy: BusyMode::default(),
            busy_ack: true,
            streaming: Streaming::default(),
            limits: TurnLimits::default(),
            stall: StallLimits::default(),
            tools: ToolLimits::default(),
            narrowed: BTreeMap::new(),
            tools_patience: Some(Duration::from_secs(420)),
            attachments: AttachmentPolicy {
                home: home.into(),
                allowed: vec![workspace.clone()],
                ..AttachmentPolicy::default()
            },
            downloads: DownloadSettings::default(),
            workspace,
            terminal: None,
            approvals: ApprovalSettings::default(),
            delegation: DelegationSettings::default(),
            persona: None,
            tiers: BTreeMap::new(),
            compaction: CompactionSettings::default(),
            retention: Retention::default(),
            parallel_calls: 64,
            filter_silence: true,
            cron: cron::Settings::default(),
            home: home.into(),
            mcp: vec![],
            memory: true,
            redactor: Redactor::default(),
        }
    }

    pub(crate) fn open(
        &self,
        tx: &Tx<'_>,
        key: &SessionKey,
        source: &Source,
        hint: &str,
        ask: ResolveMode,
        now: Millis,
    ) -> Result<OpenedSession, StoreError> {
        let policy = self.resets.lookup(Some(source.platform), source.chat_type);
        let lately = now.before(Duration::from_secs(u64::from(policy.bg_process_max_age_hours) * 3600));
        // A pending completion keeps its conversation open.
        let current = tx.entry(key)?.map(|entry| entry.session_id);
        let pending = tx.completions(key)?.iter().any(|it| it.session.is_some() && it.session == current);
        let live = pending || tx.has_live_process(key, lately)?;
        let background = if live { BackgroundWork::Live } else { BackgroundWork::None };
        let binding = BindRequest { key, source, mode: ask, policy, window: self.resume_window, background };
        let bound = tx.get_or_create(&binding, now)?;
        let fresh = matches!(bound.resolution, Resolution::New { .. });
        let notice = match bound.resolution {
            Resolution::Keep | Resolution::Resume | Resolution::Recover(_) => None,
            Resolution::New { reset, .. } => {
                let person = Person::of(source, key);
                tx.put_system_prompt(&bound.entry.session_id, &self.system_prompt(hint, Some(&person), now))?;
                match (reset, current, ask) {
                    (Some(reason), ..) => {
                        policy.notifies(reason, Some(source.platform)).then(|| reset_notice(reason))
                    }
                    (None, None, ResolveMode::Continue) => {
                        tx.archive_of_chat(key)?.map(|it| archived_notice(&it))
                    }
                    (None, ..) => None,
                }
            }
        };
        Ok(OpenedSession { entry: bound.entry, notice, fresh })
    }

    /// Memories are added once, when the session starts, so that the provider's prompt cache stays valid.
    pub(crate) fn system_prompt(&self, channel: &str, person: Option<&Person>, started: Millis) -> String {
        let memory = person.filter(|_| self.memory).and_then(|person| {
            Memory::of(&self.home, person).prompt().unwrap_or_else(|error| {
                tracing::warn!(%error, "cannot read memories");
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
    crate::notices::sessions::reset(reason.as_str())
}

fn archived_notice(archive: &Archive) -> String {
    crate::notices::sessions::archived(archive.id.as_str())
}
