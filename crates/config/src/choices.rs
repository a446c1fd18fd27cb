//! Closed sets of words for settings. The wiring maps them to the types of the components.

use crate::key::choices;

choices! {
    Provider {
        Auto = "auto",
        OpenAi = "openai",
        Anthropic = "anthropic",
        OpenRouter = "openrouter",
        Ollama = "ollama",
        Custom = "custom",
        Demo = "demo",
    }

    ApprovalMode { Manual = "manual", Smart = "smart", Off = "off" }

    SandboxMode { Auto = "auto", Off = "off" }

    CronApproval { Deny = "deny", Approve = "approve" }

    ResetMode { None = "none", Idle = "idle", Daily = "daily", Both = "both" }

    BusyInput { Interrupt = "interrupt", Queue = "queue", Steer = "steer" }

    StreamingTransport { Auto = "auto", Draft = "draft", Edit = "edit", Off = "off" }

    MissedRuns { Once = "once", Skip = "skip", All = "all" }

    Strangers { Pair = "pair", Ignore = "ignore" }

    CrashRecovery { Journal = "journal", Suspend = "suspend", Resume = "resume" }

    RetentionMode { Archive = "archive", Delete = "delete", Keep = "keep" }

    SleepAction { None = "none", Exit = "exit", Command = "command" }

    Bots { None = "none", Mentions = "mentions", All = "all" }

    ReplyMode { Off = "off", First = "first", All = "all" }

    /// Sender policy of one kind of chat.
    ChatPolicy { Open = "open", Allowlist = "allowlist", Pairing = "pairing", Disabled = "disabled" }

    NoticeDelivery { Public = "public", Private = "private" }

    TelegramNotifications { Important = "important", All = "all" }

    CommandSync { Safe = "safe", Bulk = "bulk", Off = "off" }
}
