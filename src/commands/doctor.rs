//! `petasos doctor`: one line per thing that may be wrong, each with advice.

mod compact;
mod local;
mod remote;
mod repair;
mod servers;
mod signs;

pub(crate) use compact::compact;

use std::process::ExitCode;

use petasos_cli::commands::Context;
use petasos_cli::failure::Failure;
use petasos_cli::lock;
use petasos_cli::print::{self, BAD, DIM, GOOD, ODD, styled};
use petasos_config::{Problem, Severity, limits};
use serde::Serialize;
use serde_json::json;

use crate::wire::wire;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Verdict {
    Ok,
    Warn,
    Fail,
}

#[derive(Debug, Serialize)]
pub(super) struct Finding {
    check: &'static str,
    verdict: Verdict,
    detail: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    advice: Option<String>,
}

impl Finding {
    fn ok(check: &'static str, detail: impl Into<String>) -> Self {
        Self { check, verdict: Verdict::Ok, detail: detail.into(), advice: None }
    }

    fn warn(check: &'static str, detail: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { verdict: Verdict::Warn, advice: Some(advice.into()), ..Self::ok(check, detail) }
    }

    fn fail(check: &'static str, detail: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { verdict: Verdict::Fail, ..Self::warn(check, detail, advice) }
    }
}

pub(crate) use repair::repair;

pub(crate) async fn doctor(context: &Context, online: bool) -> Result<ExitCode, Failure> {
    let findings = examine(context, online).await;
    let failed = findings.iter().any(|finding| finding.verdict == Verdict::Fail);
    if context.json {
        print::json(&json!({ "ok": !failed, "findings": findings }))?;
    } else {
        findings.iter().for_each(tell);
    }
    Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn tell(finding: &Finding) {
    let mark = match finding.verdict {
        Verdict::Ok => styled(GOOD, "ok  "),
        Verdict::Warn => styled(ODD, "warn"),
        Verdict::Fail => styled(BAD, "fail"),
    };
    petasos_cli::print::say!("{mark} {:<12} {}", finding.check, finding.detail);
    if let Some(advice) = &finding.advice {
        petasos_cli::print::say!("     {:<12} {}", "", styled(DIM, &format!("→ {advice}")));
    }
}

async fn examine(context: &Context, online: bool) -> Vec<Finding> {
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
    let mut resolved = petasos_config::load(home);
    let wired = wire(home, &mut resolved);
    findings.extend(configuration(&resolved.problems));
    findings.extend(limits::toolsets(&resolved.settings).into_iter().map(|told| Finding::ok("tools", told)));
    let holder = lock::holder(&home.lock_file());
    findings.push(match &holder {
        Some(record) => Finding::ok("gateway", format!("running, pid {}", record.process.pid)),
        None => Finding::warn("gateway", "not running", "petasos run"),
    });
    findings.push(signs::service());
    findings.extend(signs::drain(home));
    findings.extend(signs::left_over(home));
    if let Ok(wired) = &wired {
        findings.extend(local::archiving(home, &wired.gateway.settings.retention));
        if let (Some(listen), None) = (&wired.listen, &holder) {
            findings.push(local::port(listen));
        }
        findings.push(remote::model(&wired.gateway.model, online).await);
        findings.push(remote::telegram(&resolved.settings, online).await);
        findings.extend(remote::platforms(&wired.gateway.adapters, online).await);
        findings.extend(servers::servers(home, &wired.gateway.settings.mcp, online).await);
    }
    findings.push(local::clock());
    findings
}

fn configuration(problems: &[Problem]) -> Vec<Finding> {
    if problems.is_empty() {
        return vec![Finding::ok("config", "fine")];
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
