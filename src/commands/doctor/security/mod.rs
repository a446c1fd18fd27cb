//! `petasos doctor --security`: an audit of the configuration and of the files of the home. It makes no network connection.
//!
//! Each module covers one boundary and returns findings; `Risk::Serious` means that people or programs without permission
//! may use the agent or read secrets.

mod access;
mod api;
mod files;
mod listeners;
mod secrets;
mod tools;
mod webhooks;

use std::process::ExitCode;

use petasos_cli::commands::Context;
use petasos_cli::failure::Failure;
use petasos_cli::print::{self, DIM, ERROR, SUCCESS, WARNING, styled};
use petasos_config::{Home, Settings};
use serde::Serialize;
use serde_json::json;

use crate::wire::wire;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Risk {
    Serious,
    Moderate,
}

/// One weakness: what is wrong, why it matters, and how to fix it.
#[derive(Debug, Serialize)]
struct Weakness {
    check: Check,
    risk: Risk,
    what: String,
    why: &'static str,
    fix: String,
}

impl Weakness {
    fn serious(check: Check, what: impl Into<String>, why: &'static str, fix: impl Into<String>) -> Self {
        Self { check, risk: Risk::Serious, what: what.into(), why, fix: fix.into() }
    }

    fn moderate(check: Check, what: impl Into<String>, why: &'static str, fix: impl Into<String>) -> Self {
        Self { risk: Risk::Moderate, ..Self::serious(check, what, why, fix) }
    }
}

/// The checks, in the order of the report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Check {
    Listeners,
    Api,
    Access,
    Files,
    Secrets,
    Tools,
    Webhooks,
}

impl Check {
    const ALL: [Self; 7] =
        [Self::Listeners, Self::Api, Self::Access, Self::Files, Self::Secrets, Self::Tools, Self::Webhooks];

    const fn as_str(self) -> &'static str {
        match self {
            Self::Listeners => "listeners",
            Self::Api => "api",
            Self::Access => "access",
            Self::Files => "files",
            Self::Secrets => "secrets",
            Self::Tools => "tools",
            Self::Webhooks => "webhooks",
        }
    }

    fn run(self, home: &Home, settings: &Settings) -> Vec<Weakness> {
        match self {
            Self::Listeners => listeners::weaknesses(settings),
            Self::Api => api::weaknesses(settings),
            Self::Access => access::weaknesses(home, settings),
            Self::Files => files::weaknesses(home),
            Self::Secrets => secrets::weaknesses(settings),
            Self::Tools => tools::weaknesses(settings),
            Self::Webhooks => webhooks::weaknesses(home, settings),
        }
    }
}

/// Fails if there is a serious weakness, or if the configuration cannot be used.
pub(crate) fn security(context: &Context) -> Result<ExitCode, Failure> {
    let mut resolved = petasos_config::load(&context.home);
    wire(&context.home, &mut resolved).map_err(|problems| Failure::from_problems(&problems))?;
    let found: Vec<(Check, Vec<Weakness>)> =
        Check::ALL.map(|check| (check, check.run(&context.home, &resolved.settings))).into();
    let all = || found.iter().flat_map(|(_, weaknesses)| weaknesses);
    let serious = all().any(|weakness| weakness.risk == Risk::Serious);
    if context.json {
        let checks = Check::ALL.map(Check::as_str);
        print::json(&json!({ "ok": !serious, "checks": checks, "weaknesses": all().collect::<Vec<_>>() }))?;
    } else {
        found.iter().for_each(|(check, weaknesses)| print_check(*check, weaknesses));
    }
    Ok(if serious { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn print_check(check: Check, weaknesses: &[Weakness]) {
    if weaknesses.is_empty() {
        print::outln!("{} {}", styled(SUCCESS, "ok  "), check.as_str());
    }
    for weakness in weaknesses {
        let mark = match weakness.risk {
            Risk::Serious => styled(ERROR, "fail"),
            Risk::Moderate => styled(WARNING, "warn"),
        };
        print::outln!("{mark} {:<12} {}", check.as_str(), weakness.what);
        print::outln!("     {:<12} {}", "", weakness.why);
        print::outln!("     {:<12} {}", "", styled(DIM, &format!("→ {}", weakness.fix)));
    }
}
