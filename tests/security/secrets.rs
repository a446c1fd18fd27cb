//! Secrets appear in no output.

use crate::support::{ProgramFixture, eventually};

#[test]
fn log_hides_url_of_an_unreachable_mcp_server() {
    let config = "mcp_servers:\n  mail: {url: 'http://me:canary-1@127.0.0.1:1?api_key=canary-2'}\n";
    let mut fixture = ProgramFixture::with_config(config);
    fixture.launch();
    let reason = eventually("the server is reported as down", || {
        fixture.status()["mcp"][0]["why"].as_str().map(str::to_owned)
    });
    let log = fixture.kill();
    assert!(log.contains("MCP server"), "{log}");
    assert!(!log.contains("canary") && !reason.contains("canary"), "{reason}: {log}");
}
