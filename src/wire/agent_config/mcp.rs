//! Configured MCP servers.

use std::collections::BTreeMap;
use std::time::Duration;

use petasos_agent::mcp::{McpServerConfig, McpTransport};
use petasos_config::keys::agent;
use petasos_config::{Problem, Settings};
use petasos_core::Secret;
use serde::Deserialize;
use serde_json::{Map, Value};

/// One entry of `mcp_servers`, in the common format. Unknown fields are ignored.
#[derive(Debug, Deserialize)]
struct ServerEntry {
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
    tools: ToolFilter,
    #[serde(default, alias = "supports_parallel_tool_calls")]
    parallel: bool,
    timeout: Option<f64>,
    connect_timeout: Option<f64>,
}

#[derive(Debug, Default, Deserialize)]
struct ToolFilter {
    #[serde(default)]
    include: Vec<String>,
    #[serde(default)]
    exclude: Vec<String>,
}

const fn on() -> bool {
    true
}

/// An invalid entry is reported and does not affect the others.
pub(crate) fn servers(settings: &Settings, problems: &mut Vec<Problem>) -> Vec<McpServerConfig> {
    let Some(Value::Object(entries)) = settings.get(&agent::MCP_SERVERS) else { return vec![] };
    parse_entries(entries, |name, why| {
        let what = format!("{}.{name}: {why}", agent::MCP_SERVERS);
        problems.push(Problem::warning(settings.origin(&agent::MCP_SERVERS).to_string(), what));
    })
}

fn parse_entries(entries: Map<String, Value>, mut reject: impl FnMut(&str, &str)) -> Vec<McpServerConfig> {
    let mut servers = Vec::new();
    for (name, value) in entries {
        let Ok(server) = serde_json::from_value::<ServerEntry>(value) else {
            reject(&name, "set command (with args and env) or url (with headers)");
            continue;
        };
        if !server.enabled {
            continue;
        }
        let transport = match (server.command, server.url) {
            (Some(command), None) => {
                McpTransport::Command { command, args: server.args, env: secrets(server.env) }
            }
            (None, Some(url)) if url.starts_with("http://") || url.starts_with("https://") => {
                McpTransport::Http { url, headers: secrets(server.headers) }
            }
            (None, Some(_)) => {
                reject(&name, "url must start with https:// or http://");
                continue;
            }
            (Some(_), Some(_)) | (None, None) => {
                reject(&name, "set either command or url");
                continue;
            }
        };
        let mut config = McpServerConfig::new(&name, transport);
        (config.include, config.exclude) = (server.tools.include, server.tools.exclude);
        config.parallel = server.parallel;
        let seconds = |value: Option<f64>| {
            value.filter(|it| *it >= 1.0).map(|it| Duration::from_secs_f64(it.min(3600.0)))
        };
        config.call_within = seconds(server.timeout).unwrap_or(config.call_within);
        config.connect_within = seconds(server.connect_timeout).unwrap_or(config.connect_within);
        servers.push(config);
    }
    servers
}

/// YAML may parse a value as a number.
fn secrets(entries: BTreeMap<String, Value>) -> BTreeMap<String, Secret> {
    let text = |value: Value| match value {
        Value::String(text) => text,
        other => other.to_string(),
    };
    entries.into_iter().map(|(name, value)| (name, Secret::new(text(value)))).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn parses_common_server_format_and_rejects_invalid_entries() {
        let Value::Object(entries) = json!({
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
        let mut rejected = Vec::new();
        let servers = parse_entries(entries, |name, _| rejected.push(name.to_owned()));
        rejected.sort();
        assert_eq!(rejected, ["both", "none", "odd", "wrong"]);
        let names: Vec<_> = servers.iter().map(|server| server.name.as_str()).collect();
        assert_eq!(names.len(), 2);
        for server in servers {
            match server.transport {
                McpTransport::Command { command, args, env } => {
                    assert_eq!((command.as_str(), args.len(), env["KEY"].expose()), ("npx", 2, "7"));
                    assert_eq!(
                        (server.include, server.exclude),
                        (vec!["read".to_owned()], vec!["write".to_owned()])
                    );
                    assert_eq!(server.call_within, Duration::from_secs(5));
                }
                McpTransport::Http { url, headers } => {
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
