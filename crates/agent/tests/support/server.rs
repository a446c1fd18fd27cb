//! MCP server of the official Python package for tests. Without it the tests are skipped;
//! `PETASOS_MCP_REQUIRED=1` makes that a failure.

use std::path::{Path, PathBuf};

const PROGRAM: &str = r#"
import os, sys, time
from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ToolError

server = MCPServer("test")

@server.tool()
def add(a: int, b: int) -> int:
    """Adds two numbers."""
    return a + b

@server.tool()
def environment(name: str) -> str:
    return os.environ.get(name, "not there")

@server.tool()
def refuse() -> str:
    raise ToolError("not today")

@server.tool()
def leave() -> str:
    os._exit(3)

@server.tool()
def sleep() -> str:
    time.sleep(30)
    return "late"

if len(sys.argv) > 1:
    server.run(transport="streamable-http", port=int(sys.argv[1]))
else:
    server.run()
"#;

/// The interpreter with the package; `None`, with a message on stderr, if it is not installed.
pub fn python() -> Option<PathBuf> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    // The workspace root, from any crate.
    let root = here.ancestors().find(|it| it.join("Cargo.lock").exists()).unwrap_or(here);
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
    let python = target.join("mcp-venv/bin/python");
    if python.exists() {
        return Some(python);
    }
    assert!(std::env::var_os("PETASOS_MCP_REQUIRED").is_none(), "{} is missing", python.display());
    eprintln!("NOT RUN: there is no MCP server here; scripts/test installs one");
    None
}

/// Writes the server program and returns its path.
pub fn program(folder: &Path) -> String {
    let path = folder.join("server.py");
    std::fs::write(&path, PROGRAM).unwrap();
    path.display().to_string()
}
