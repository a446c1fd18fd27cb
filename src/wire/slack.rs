//! The Slack adapter, if there is to be one. It takes two tokens: the app's, which listens, and the bot's, which speaks.

use std::collections::BTreeMap;

use petasos_config::keys::slack;
use petasos_config::{Home, Problem, Settings};
use petasos_core::Platform;
use petasos_core::access::Bots;
use petasos_platforms::slack::{Config, Slack};
use petasos_platforms::{Adapter, CatchUp, Secret};

use serde::Deserialize;

use super::credential::{self, Credential, Wanted};
use super::{Spoken, access};

const BOT: Credential = Credential {
    key: slack::TOKEN,
    name: "bot token",
    missing: "set SLACK_BOT_TOKEN in .env; api.slack.com/apps shows it under OAuth & Permissions",
    replace: "put the token there that api.slack.com/apps shows under OAuth & Permissions",
};
const APP: Credential = Credential {
    key: slack::APP_TOKEN,
    name: "app token",
    missing: "set SLACK_APP_TOKEN in .env; make one with the scope connections:write at api.slack.com/apps \
              under Basic Information",
    replace: "put the token there that api.slack.com/apps shows under Basic Information, App-Level Tokens",
};

pub(super) fn spoken(home: &Home, settings: &Settings, problems: &mut Vec<Problem>) -> Option<Spoken> {
    let wanted = credential::wanted(settings, &slack::ENABLED);
    if wanted == Wanted::No {
        return None;
    }
    let bot = credential::filled(settings, (&slack::ENABLED, "Slack"), BOT, problems);
    let app = credential::filled(settings, (&slack::ENABLED, "Slack"), APP, problems);
    if wanted == Wanted::Maybe {
        problems.extend([half(settings, BOT, APP), half(settings, APP, BOT)].into_iter().flatten());
    }
    let (bot, app) = (bot?, app?);
    problems.extend(misplaced(
        settings,
        BOT,
        bot.split(',').all(|it| it.trim().starts_with("xoxb-")),
        "xoxb-",
    ));
    problems.extend(misplaced(settings, APP, app.starts_with("xapp-"), "xapp-"));
    let bots = [bot].into_iter().chain(further(home, problems)).collect::<Vec<_>>().join(",");
    match Slack::new(config(settings, &app, &bots)) {
        Ok(slack) => Some(Spoken {
            adapter: Adapter::Slack(slack),
            // Slack tells each event to one of an app's sockets: two gateways would hear half of it each.
            sole: Some(("slack-app-token", Secret::new(app))),
        }),
        Err(invalid) => {
            problems.push(Problem::error(settings.origin(&APP.key).to_string(), invalid.to_string()));
            None
        }
    }
}

/// The tokens of further workspaces: `slack_tokens.json`, by the workspace's id.
fn further(home: &Home, problems: &mut Vec<Problem>) -> Vec<String> {
    let path = home.path().join("slack_tokens.json");
    let place = path.display().to_string();
    let text = match std::fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Vec::new(),
        Err(error) => {
            problems.push(Problem::warning(place, format!("it cannot be read: {error}")));
            return Vec::new();
        }
    };
    match serde_json::from_str::<BTreeMap<String, Further>>(&text) {
        Ok(teams) => teams.into_values().map(Further::token).collect(),
        Err(error) => {
            let what = format!("it is not as expected (line {} column {})", error.line(), error.column());
            let next = "it looks like {\"T0123\": {\"token\": \"xoxb-…\"}}";
            problems.push(Problem::warning(place, what).next(next));
            Vec::new()
        }
    }
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Further {
    Token(String),
    Workspace { token: String },
}

impl Further {
    fn token(self) -> String {
        match self {
            Self::Token(token) | Self::Workspace { token } => token,
        }
    }
}

/// One token without the other, and nobody said that Slack is wanted.
fn half(settings: &Settings, there: Credential, missing: Credential) -> Option<Problem> {
    if !settings.is_set(&there.key) || settings.is_set(&missing.key) {
        return None;
    }
    let what = format!("Slack has its {}, but no {}, so it stays off", there.name, missing.name);
    Some(Problem::warning(settings.origin(&there.key).to_string(), what).next(missing.missing))
}

/// The link will say no; this says it before.
fn misplaced(settings: &Settings, credential: Credential, fits: bool, beginning: &str) -> Option<Problem> {
    let what = format!("{} does not begin with {beginning}", credential.key);
    let problem = Problem::warning(settings.origin(&credential.key).to_string(), what);
    (!fits).then(|| problem.next("SLACK_BOT_TOKEN is xoxb-…, SLACK_APP_TOKEN is xapp-…"))
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
        allow_bots: Platform::parse("slack").map_or(Bots::None, |here| access::bots(settings, here)),
        reply_in_thread: settings.get(&slack::REPLY_IN_THREAD),
        dm_top_level_threads_as_sessions: settings.get(&slack::DM_THREADS),
        reply_broadcast: settings.get(&slack::REPLY_BROADCAST),
        catch_up: CatchUp {
            window: settings.get(&slack::BACKFILL_WINDOW),
            messages: if settings.get(&slack::BACKFILL) { settings.get(&slack::BACKFILL_LIMIT) } else { 0 },
        },
        typing_status_text: settings.get(&slack::TYPING_TEXT),
        ..Config::new(app, bot)
    }
}
