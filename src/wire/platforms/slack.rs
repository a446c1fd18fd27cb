//! Builds the Slack adapter. It needs two tokens: the app token receives events, the bot token calls the API.

use std::collections::BTreeMap;

use petasos_config::keys::slack;
use petasos_config::{Home, Problem, Settings};
use petasos_platforms::slack::{Config, Slack};
use petasos_platforms::{Adapter, AdapterKind, BackfillLimits, Secret};

use serde::Deserialize;

use super::BuiltAdapter;
use super::credential::{self, Credential, Enabled};
use crate::wire::access;

const BOT: Credential = Credential {
    key: slack::TOKEN,
    name: "bot token",
    missing: "set SLACK_BOT_TOKEN in .env; api.slack.com/apps shows it under OAuth & Permissions",
    replace: "set the token that api.slack.com/apps shows under OAuth & Permissions",
};
const APP: Credential = Credential {
    key: slack::APP_TOKEN,
    name: "app token",
    missing: "set SLACK_APP_TOKEN in .env; create one with the scope connections:write at api.slack.com/apps \
              under Basic Information",
    replace: "set the token that api.slack.com/apps shows under Basic Information, App-Level Tokens",
};

pub(crate) fn build(home: &Home, settings: &Settings, problems: &mut Vec<Problem>) -> Option<BuiltAdapter> {
    let enabled = credential::enabled(settings, &slack::ENABLED);
    if enabled == Enabled::No {
        return None;
    }
    let bot = credential::require(settings, (&slack::ENABLED, "Slack"), BOT, problems);
    let app = credential::require(settings, (&slack::ENABLED, "Slack"), APP, problems);
    if enabled == Enabled::IfConfigured {
        problems.extend(
            [missing_counterpart(settings, BOT, APP), missing_counterpart(settings, APP, BOT)]
                .into_iter()
                .flatten(),
        );
    }
    let bot = bot?;
    let app = app?;
    problems.extend(prefix_problem(
        settings,
        BOT,
        bot.split(',').all(|it| it.trim().starts_with("xoxb-")),
        "xoxb-",
    ));
    problems.extend(prefix_problem(settings, APP, app.starts_with("xapp-"), "xapp-"));
    let bots = [bot].into_iter().chain(additional_tokens(home, problems)).collect::<Vec<_>>().join(",");
    match Slack::new(config(settings, &app, &bots)) {
        Ok(slack) => Some(BuiltAdapter {
            adapter: Adapter::Slack(slack),
            // Slack sends each event to one socket of an app: two gateways would each miss half of them.
            bot_lock: Some(("slack-app-token", Secret::new(app))),
        }),
        Err(invalid) => {
            problems.push(Problem::error(settings.origin(&APP.key).to_string(), invalid.to_string()));
            None
        }
    }
}

/// Tokens of additional workspaces: `slack_tokens.json`, by workspace id.
fn additional_tokens(home: &Home, problems: &mut Vec<Problem>) -> Vec<String> {
    let path = home.path().join("slack_tokens.json");
    let place = path.display().to_string();
    let text = match std::fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Vec::new(),
        Err(error) => {
            problems.push(Problem::warning(place, format!("the file cannot be read: {error}")));
            return Vec::new();
        }
    };
    match serde_json::from_str::<BTreeMap<String, WorkspaceToken>>(&text) {
        Ok(teams) => teams.into_values().map(WorkspaceToken::token).collect(),
        Err(error) => {
            let what =
                format!("the file has the wrong format (line {} column {})", error.line(), error.column());
            let next = "the expected format is {\"T0123\": {\"token\": \"xoxb-…\"}}";
            problems.push(Problem::warning(place, what).next(next));
            Vec::new()
        }
    }
}

#[derive(Deserialize)]
#[serde(untagged)]
enum WorkspaceToken {
    Token(String),
    Workspace { token: String },
}

impl WorkspaceToken {
    fn token(self) -> String {
        match self {
            Self::Token(token) | Self::Workspace { token } => token,
        }
    }
}

/// One token is set without the other, and Slack is not explicitly enabled.
fn missing_counterpart(settings: &Settings, there: Credential, missing: Credential) -> Option<Problem> {
    if !settings.is_set(&there.key) || settings.is_set(&missing.key) {
        return None;
    }
    let what = format!("Slack has its {}, but no {}, so it stays off", there.name, missing.name);
    Some(Problem::warning(settings.origin(&there.key).to_string(), what).next(missing.missing))
}

fn prefix_problem(settings: &Settings, credential: Credential, fits: bool, prefix: &str) -> Option<Problem> {
    let what = format!("{} does not start with {prefix}", credential.key);
    let problem = Problem::warning(settings.origin(&credential.key).to_string(), what);
    (!fits).then(|| problem.next("SLACK_BOT_TOKEN starts with xoxb-, SLACK_APP_TOKEN with xapp-"))
}

fn config(settings: &Settings, app: &str, bot: &str) -> Config {
    Config {
        api_base: settings.get(&slack::API_BASE),
        proxy: settings.get(&slack::PROXY),
        request_timeout: settings.get(&slack::REQUEST_TIMEOUT),
        reconnect_base: settings.get(&slack::RECONNECT_BASE),
        require_mention: settings.get(&slack::REQUIRE_MENTION),
        strict_mention: settings.get(&slack::STRICT_MENTION),
        allowed_channels: settings.get(&slack::ALLOWED_CHANNELS),
        free_response_channels: settings.get(&slack::FREE_CHANNELS),
        typing: settings.get(&slack::TYPING),
        reactions: settings.get(&slack::REACTIONS),
        allow_bots: access::bots(settings, AdapterKind::Slack.platform()),
        reply_in_thread: settings.get(&slack::REPLY_IN_THREAD),
        dm_top_level_threads_as_sessions: settings.get(&slack::DM_THREADS),
        reply_broadcast: settings.get(&slack::REPLY_BROADCAST),
        backfill: BackfillLimits {
            window: settings.get(&slack::BACKFILL_WINDOW),
            messages: if settings.get(&slack::BACKFILL) { settings.get(&slack::BACKFILL_LIMIT) } else { 0 },
        },
        typing_status_text: settings.get(&slack::TYPING_TEXT),
        ..Config::new(app, bot)
    }
}
