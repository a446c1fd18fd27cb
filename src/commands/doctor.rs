//! `petasos doctor`: one finding per check, each with advice if something is wrong.

mod compact;
mod leftovers;
mod local;
mod remote;
mod repair;
mod sandbox;
mod security;
mod servers;

pub(crate) use compact::compact;

use std::process::ExitCode;

use petasos_cli::commands::Context;
use petasos_cli::failure::Failure;
use petasos_cli::lock;
use petasos_cli::print::{self, DIM, ERROR, SUCCESS, WARNING, styled};
use petasos_config::{Problem, Severity, limits};
use serde::Serialize;
use serde_json::json;

use crate::wire::wire;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum CheckResult {
    Ok,
    Warn,
    Fail,
}

#[derive(Debug, Serialize)]
pub(super) struct Finding {
    check: &'static str,
    #[serde(rename = "verdict")]
    result: CheckResult,
    detail: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    advice: Option<String>,
}

impl Finding {
    fn ok(check: &'static str, detail: impl Into<String>) -> Self {
        Self { check, result: CheckResult::Ok, detail: detail.into(), advice: None }
    }

    fn warn(check: &'static str, detail: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { result: CheckResult::Warn, advice: Some(advice.into()), ..Self::ok(check, detail) }
    }

    fn fail(check: &'static str, detail: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { result: CheckResult::Fail, ..Self::warn(check, detail, advice) }
    }
}

pub(crate) use repair::repair;
pub(crate) use security::security;

pub(crate) async fn doctor(context: &Context, online: bool) -> Result<ExitCode, Failure> {
    let findings = run_checks(context, online).await;
    let failed = findings.iter().any(|finding| finding.result == CheckResult::Fail);
    if context.json {
        print::json(&json!({ "ok": !failed, "findings": findings }))?;
    } else {
        findings.iter().for_each(print_finding);
    }
    Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn print_finding(finding: &Finding) {
    let mark = match finding.result {
        CheckResult::Ok => styled(SUCCESS, "ok  "),
        CheckResult::Warn => styled(WARNING, "warn"),
        CheckResult::Fail => styled(ERROR, "fail"),
    };
    petasos_cli::print::outln!("{mark} {:<12} {}", finding.check, finding.detail);
    if let Some(advice) = &finding.advice {
        petasos_cli::print::outln!("     {:<12} {}", "", styled(DIM, &format!("→ {advice}")));
    }
}

async fn run_checks(context: &Context, online: bool) -> Vec<Finding> {
    let home = &context.home;
    let mut findings = vec![local::home(home)];
    findings.extend(local::permissions(home));
    findings.push(local::disk(home));
    findings.push(local::database(home));
    findings.extend(repair::last_salvage(home));
    findings.push(repair::backup(home));
    findings.extend(local::pairing(home));
    findings.extend(local::unreadable(home));
    findings.extend(local::dead_chats(home));
    findings.extend(local::hooks(home));
    let mut resolved = petasos_config::load_checked(home);
    let wired = wire(home, &mut resolved);
    findings.extend(configuration(&resolved.problems));
    findings.extend(limits::toolsets(&resolved.settings).into_iter().map(|text| Finding::ok("tools", text)));
    let holder = lock::holder(&home.lock_file());
    findings.push(match &holder {
        Some(record) => Finding::ok("gateway", format!("running, pid {}", record.process.pid)),
        None => Finding::warn("gateway", "not running", "petasos run"),
    });
    findings.push(leftovers::service());
    findings.extend(leftovers::drain(home));
    findings.extend(leftovers::stale_markers(home));
    if let Ok(wired) = &wired {
        findings.extend(wired.gateway.settings.terminal.as_ref().map(sandbox::sandbox));
        findings.extend(local::archiving(home, &wired.gateway.settings.retention));
        if let (Some(listen), None) = (&wired.listen, &holder) {
            findings.push(local::port(listen));
        }
        findings.push(remote::model(&wired.gateway.model, online).await);
        findings.extend(remote::platforms(&resolved.settings, &wired.gateway.adapters, online).await);
        findings.extend(servers::servers(home, &wired.gateway.settings.mcp, online).await);
    }
    findings.push(local::clock());
    findings
}

fn configuration(problems: &[Problem]) -> Vec<Finding> {
    if problems.is_empty() {
        return vec![Finding::ok("config", "valid")];
    }
    let finding = |problem: &Problem| {
        let detail = format!("{}: {}", problem.place, problem.what);
        let advice = problem.next.clone().unwrap_or_else(|| "petasos config check".into());
        match problem.severity {
            Severity::Error => Finding::fail("config", detail, advice),
            Severity::Unknown | Severity::Warning => Finding::warn("config", detail, advice),
        }
    };
    problems.iter().map(finding).collect()
}
