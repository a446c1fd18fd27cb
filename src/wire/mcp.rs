//! Servers of other people's tools, as they are configured.

use std::collections::BTreeMap;
use std::time::Duration;

use petasos_agent::mcp::{Server, Way};
use petasos_config::keys::agent;
use petasos_config::{Problem, Settings};
use petasos_core::Secret;
use serde::Deserialize;
use serde_json::{Map, Value};

/// As others write it, too; what they write beside it is left alone.
#[derive(Debug, Deserialize)]
struct Written {
    command: Option<String>,
    #[serde(default)]
    args: Vec<String>,
    #[serde(default)]
    env: BTreeMap<String, Value>,
    url: Option<String>,
    #[serde(default)]
    headers: BTreeMap<String, Value>,
    #[serde(default = "on")]
    enabled: bool,
    #[serde(default)]
    tools: Chosen,
    #[serde(default, alias = "supports_parallel_tool_calls")]
    parallel: bool,
    timeout: Option<f64>,
    connect_timeout: Option<f64>,
}

#[derive(Debug, Default, Deserialize)]
struct Chosen {
    #[serde(default)]
    include: Vec<String>,
    #[serde(default)]
    exclude: Vec<String>,
}

const fn on() -> bool {
    true
}

/// One that cannot be read does not keep the others from working.
pub(super) fn servers(settings: &Settings, problems: &mut Vec<Problem>) -> Vec<Server> {
    let Some(Value::Object(written)) = settings.get(&agent::MCP_SERVERS) else { return vec![] };
    read(written, |name, why| {
        let what = format!("{}.{name}: {why}", agent::MCP_SERVERS);
        problems.push(Problem::warning(settings.origin(&agent::MCP_SERVERS).to_string(), what));
    })
}

fn read(written: Map<String, Value>, mut refuse: impl FnMut(&str, &str)) -> Vec<Server> {
    let mut servers = Vec::new();
    for (name, value) in written {
        let Ok(server) = serde_json::from_value::<Written>(value) else {
            refuse(&name, "it needs command (with args and env) or url (with headers)");
            continue;
        };
        if !server.enabled {
            continue;
        }
        let way = match (server.command, server.url) {
            (Some(command), None) => Way::Command { command, args: server.args, env: secrets(server.env) },
            (None, Some(url)) if url.starts_with("http://") || url.starts_with("https://") => {
                Way::Http { url, headers: secrets(server.headers) }
            }
            (None, Some(_)) => {
                refuse(&name, "url begins with https:// or http://");
                continue;
            }
            (Some(_), Some(_)) | (None, None) => {
                refuse(&name, "it has one of command and url");
                continue;
            }
        };
        let mut known = Server::new(&name, way);
        (known.include, known.exclude) = (server.tools.include, server.tools.exclude);
        known.parallel = server.parallel;
        let seconds = |value: Option<f64>| {
            value.filter(|it| *it >= 1.0).map(|it| Duration::from_secs_f64(it.min(3600.0)))
        };
        known.call_within = seconds(server.timeout).unwrap_or(known.call_within);
        known.connect_within = seconds(server.connect_timeout).unwrap_or(known.connect_within);
        servers.push(known);
    }
    servers
}

/// YAML may take a value for a number.
fn secrets(written: BTreeMap<String, Value>) -> BTreeMap<String, Secret> {
    let text = |value: Value| match value {
        Value::String(text) => text,
        other => other.to_string(),
    };
    written.into_iter().map(|(name, value)| (name, Secret::new(text(value)))).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn servers_are_read_as_others_write_them_and_bad_ones_are_named() {
        let Value::Object(written) = json!({
            "files": {"command": "npx", "args": ["-y", "x"], "env": {"KEY": 7}, "tools": {"include": ["read"], "exclude": ["write"]}, "timeout": 5},
            "far": {"url": "https://x.example/mcp", "headers": {"Authorization": "Bearer s"}, "parallel": true},
            "off": {"command": "x", "enabled": false},
            "both": {"command": "x", "url": "https://x.example"},
            "odd": {"url": "ftp://x"},
            "none": {},
            "wrong": 7,
        }) else {
            panic!("an object")
        };
        let mut refused = Vec::new();
        let servers = read(written, |name, _| refused.push(name.to_owned()));
        refused.sort();
        assert_eq!(refused, ["both", "none", "odd", "wrong"]);
        let names: Vec<_> = servers.iter().map(|server| server.name.as_str()).collect();
        assert_eq!(names.len(), 2);
        for server in servers {
            match server.way {
                Way::Command { command, args, env } => {
                    assert_eq!((command.as_str(), args.len(), env["KEY"].expose()), ("npx", 2, "7"));
                    assert_eq!(
                        (server.include, server.exclude),
                        (vec!["read".to_owned()], vec!["write".to_owned()])
                    );
                    assert_eq!(server.call_within, Duration::from_secs(5));
                }
                Way::Http { url, headers } => {
                    assert_eq!(
                        (url.as_str(), headers["Authorization"].expose()),
                        ("https://x.example/mcp", "Bearer s")
                    );
                    assert!(server.parallel);
                    assert_eq!(server.call_within, Duration::from_secs(300));
                }
            }
        }
    }
}
