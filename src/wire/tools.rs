//! Which tools are on, in which conversations.

use std::collections::BTreeMap;

use petasos_agent::{ToolLimits, Tools};
use petasos_config::keys::{agent, webhook};
use petasos_config::limits::Denied;
use petasos_config::{Problem, Settings};
use petasos_core::Platform;
use serde_json::Value;

/// What other agents call the terminal.
const COMMAND_LINE: &str = "cli";

/// Everywhere.
pub(super) fn limits(settings: &Settings, denied: &Denied) -> ToolLimits {
    ToolLimits {
        allowed: if denied.every_tool { Some(Vec::new()) } else { settings.get(&agent::TOOLSETS) },
        denied: denied.tools.iter().map(|name| (*name).to_owned()).collect(),
    }
}

/// Platforms on which fewer tools are on. What a webhook delivers may be a stranger's words.
pub(super) fn narrowed(settings: &Settings) -> BTreeMap<Platform, Vec<String>> {
    let mut narrowed = BTreeMap::new();
    for (platform, names) in of_platforms(settings).0 {
        if let Some(tools) = Tools::named(&names) {
            narrowed.insert(platform, tools);
        }
    }
    if let Some(platform) = Platform::parse("webhook") {
        let mut tools = settings.get(&webhook::TOOLS);
        if let Some(fewer) = narrowed.get(&platform) {
            tools.retain(|tool| fewer.contains(tool));
        }
        narrowed.insert(platform, tools);
    }
    narrowed
}

/// Names that grant nothing, or nobody.
pub(super) fn problems(settings: &Settings) -> Vec<Problem> {
    let (platforms, mut problems) = of_platforms(settings);
    let place = settings.origin(&agent::TOOLSETS).to_string();
    for name in settings.get(&agent::TOOLSETS).unwrap_or_default() {
        problems.extend(unknown(&place, &agent::TOOLSETS.to_string(), &name));
    }
    let place = settings.origin(&agent::PLATFORM_TOOLSETS).to_string();
    for (platform, names) in platforms {
        let path = format!("{}.{platform}", agent::PLATFORM_TOOLSETS);
        problems.extend(names.iter().filter_map(|name| unknown(&place, &path, name)));
    }
    problems
}

fn unknown(place: &str, path: &str, name: &str) -> Option<Problem> {
    if Tools::is_known(name) {
        return None;
    }
    let what = format!("{path}: there is no toolset or tool {name}, so it grants nothing");
    let known = "toolsets are file, terminal, schedule and other; all stands for every tool";
    Some(Problem::warning(place, what).next(known))
}

/// What is written for each platform, and what of it cannot be read: that grants nothing.
fn of_platforms(settings: &Settings) -> (BTreeMap<Platform, Vec<String>>, Vec<Problem>) {
    let place = settings.origin(&agent::PLATFORM_TOOLSETS).to_string();
    let path = agent::PLATFORM_TOOLSETS;
    let entries = match settings.get(&agent::PLATFORM_TOOLSETS) {
        None => return (BTreeMap::new(), vec![]),
        Some(Value::Object(entries)) => entries,
        Some(_) => {
            let what = format!("{path}: expected platforms with a list each, so every tool is off");
            let none = Platform::known().map(|platform| (platform, Vec::new()));
            return (none.collect(), vec![Problem::warning(place, what)]);
        }
    };
    let (mut lists, mut problems) = (BTreeMap::new(), Vec::new());
    for (name, written) in entries {
        let known = if name == COMMAND_LINE { "terminal" } else { name.as_str() };
        let Some(platform) = Platform::parse(known) else {
            problems.push(Problem::warning(&place, format!("{path}: {name} is no platform; it is left out")));
            continue;
        };
        let Some(names) = names(&written) else {
            let what = format!("{path}.{name}: expected a list of toolsets, so every tool is off there");
            problems.push(Problem::warning(&place, what));
            lists.insert(platform, Vec::new());
            continue;
        };
        lists.insert(platform, names);
    }
    (lists, problems)
}

fn names(written: &Value) -> Option<Vec<String>> {
    match written {
        Value::Array(items) => items.iter().map(|item| item.as_str().map(str::to_owned)).collect(),
        Value::String(line) => Some(line.split(',').map(|name| name.trim().to_owned()).collect()),
        Value::Null => Some(Vec::new()),
        Value::Bool(_) | Value::Number(_) | Value::Object(_) => None,
    }
}
