//! Which tools are enabled, in general and per platform.

use std::collections::BTreeMap;

use petasos_agent::{ToolLimits, Tools, Toolset};
use petasos_config::keys::{agent, webhook};
use petasos_config::limits::Denied;
use petasos_config::{Problem, Settings};
use petasos_core::Platform;
use petasos_platforms::AdapterKind;
use serde_json::Value;

/// Name of the terminal in other agents' configurations.
const COMMAND_LINE: &str = "cli";

pub(crate) fn limits(settings: &Settings, denied: &Denied) -> ToolLimits {
    ToolLimits {
        allowed: if denied.every_tool { Some(Vec::new()) } else { settings.get(&agent::TOOLSETS) },
        denied: denied.tools.iter().map(|name| (*name).to_owned()).collect(),
    }
}

/// Platforms with fewer tools. A webhook delivery may contain text from an unknown sender.
pub(crate) fn narrowed(settings: &Settings) -> BTreeMap<Platform, Vec<String>> {
    let mut narrowed = BTreeMap::new();
    for (platform, names) in platform_toolsets(settings).0 {
        if let Some(tools) = Tools::named(&names) {
            narrowed.insert(platform, tools);
        }
    }
    let platform = AdapterKind::Webhook.platform();
    let mut tools = settings.get(&webhook::TOOLS);
    if let Some(fewer) = narrowed.get(&platform) {
        tools.retain(|tool| fewer.contains(tool));
    }
    narrowed.insert(platform, tools);
    narrowed
}

pub(crate) fn problems(settings: &Settings) -> Vec<Problem> {
    let (platforms, mut problems) = platform_toolsets(settings);
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
    let toolsets = Toolset::ALL.map(Toolset::name).join(", ");
    Some(Problem::warning(place, what).next(format!("toolsets are {toolsets}; all means every tool")))
}

/// The configured toolsets of each platform. An unreadable entry grants no tools.
fn platform_toolsets(settings: &Settings) -> (BTreeMap<Platform, Vec<String>>, Vec<Problem>) {
    let place = settings.origin(&agent::PLATFORM_TOOLSETS).to_string();
    let path = agent::PLATFORM_TOOLSETS;
    let entries = match settings.get(&agent::PLATFORM_TOOLSETS) {
        None => return (BTreeMap::new(), vec![]),
        Some(Value::Object(entries)) => entries,
        Some(_) => {
            let what = format!("{path}: expected platforms, each with a list, so every tool is off");
            let none = Platform::all().map(|platform| (platform, Vec::new()));
            return (none.collect(), vec![Problem::warning(place, what)]);
        }
    };
    let mut lists = BTreeMap::new();
    let mut problems = Vec::new();
    for (name, value) in entries {
        let known = if name == COMMAND_LINE { "terminal" } else { name.as_str() };
        let Some(platform) = Platform::parse(known) else {
            problems
                .push(Problem::warning(&place, format!("{path}: {name} is not a platform; it is ignored")));
            continue;
        };
        let Some(names) = names(&value) else {
            let what = format!("{path}.{name}: expected a list of toolsets, so every tool is off there");
            problems.push(Problem::warning(&place, what));
            lists.insert(platform, Vec::new());
            continue;
        };
        lists.insert(platform, names);
    }
    (lists, problems)
}

fn names(value: &Value) -> Option<Vec<String>> {
    match value {
        Value::Array(items) => items.iter().map(|item| item.as_str().map(str::to_owned)).collect(),
        Value::String(line) => Some(line.split(',').map(|name| name.trim().to_owned()).collect()),
        Value::Null => Some(Vec::new()),
        Value::Bool(_) | Value::Number(_) | Value::Object(_) => None,
    }
}
