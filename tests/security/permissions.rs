//! Everything that a gateway writes to its home is private.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::support::{GatewayProcess, ProgramFixture, eventually, expect_success, user_text};
use petasos_fakes::model::{Answer, ChatRequest};
use petasos_fakes::telegram::Incoming;
use serde_json::json;

const CONFIG: &str = "approvals:\n  mode: 'off'\nterminal:\n  enabled: true\n  login_shell: false\n\
                      platforms.api_server.enabled: true\n";
const PNG: &[u8] = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR";

/// `tool NAME {…}` calls that tool; the result ends the turn.
fn scripted_answer(request: &ChatRequest) -> Answer {
    let called = request.messages().last().is_some_and(|row| row["role"] == "tool");
    let asked = user_text(&request.last_user).strip_prefix("tool ").and_then(|text| text.split_once(' '));
    match asked.and_then(|(tool, arguments)| Some((tool, serde_json::from_str(arguments).ok()?))) {
        Some((tool, arguments)) if !called => Answer::tool(tool, arguments),
        Some(_) | None => Answer::text("done"),
    }
}

/// The gateway without the protection of a umask.
fn launch_without_umask(fixture: &mut ProgramFixture) {
    let run = fixture.command(&["run"]);
    let mut command = Command::new("sh");
    command.args(["-c", "umask 0; exec \"$@\"", "sh"]).arg(run.get_program()).arg("run").env_clear();
    command.envs(run.get_envs().filter_map(|(name, value)| Some((name, value?))));
    command.env("API_SERVER_PORT", "0").stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    fixture.gateway = Some(GatewayProcess::new(command.spawn().expect("petasos starts")));
}

/// Entries that other users could use. The content of the workspace belongs to the agent; its directory protects it.
fn open_entries(home: &Path) -> Vec<(PathBuf, String)> {
    let mut open = vec![];
    let mut directories = vec![home.to_path_buf()];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(&directory).expect("a directory") {
            let path = entry.expect("an entry").path();
            // A temporary file may be renamed meanwhile.
            let Ok(found) = fs::symlink_metadata(&path) else { continue };
            if found.mode() & 0o077 != 0 && !found.is_symlink() {
                open.push((path.clone(), format!("{:o}", found.mode() & 0o777)));
            }
            if found.is_dir() && !path.ends_with("workspace") {
                directories.push(path);
            }
        }
    }
    open
}

fn use_everything(fixture: &ProgramFixture) {
    let calls = [
        ("memory", json!({"target": "user", "action": "add", "content": "likes tea"})),
        ("memory", json!({"target": "memory", "action": "add", "content": "a project"})),
        ("write_file", json!({"path": "notes/a.txt", "content": "text"})),
        ("terminal", json!({"command": "seq 1 200000; echo text >file"})),
        ("terminal", json!({"command": "sleep 600", "background": true})),
    ];
    for (at, (tool, arguments)) in calls.iter().enumerate() {
        fixture.telegram.push_text(7, 7, format!("tool {tool} {arguments}"));
        fixture.wait_messages(7, at + 1);
    }
    fixture.telegram.add_file("F1", PNG);
    fixture.telegram.push(Incoming::photo(7, 7, "F1", PNG.len(), "a cat?"));
    fixture.wait_messages(7, calls.len() + 1);
    let job = ["cron", "add", "every 5h", "work", "--deliver", "local", "--name", "Look"];
    expect_success(&fixture.run(&job));
    let jobs = crate::support::expect_json(&fixture.run(&["--json", "cron", "list"]));
    expect_success(&fixture.run(&["cron", "run", jobs[0]["id"].as_str().expect("an id")]));
    let output = fixture.home.path().join("cron/output");
    eventually("the job has its output file", || output.exists());
    fixture.wait_idle();
    expect_success(&fixture.run(&["backup", "--include-secrets"]));
}

#[test]
fn home_is_private_after_real_use() {
    let mut fixture = ProgramFixture::with_config(CONFIG);
    fixture.model.respond(scripted_answer);
    let home = fixture.home.path().to_path_buf();
    fs::set_permissions(home.join("config.yaml"), Permissions::from_mode(0o600)).expect("changed");
    // As an older version created it.
    fs::create_dir_all(home.join("memories/people/telegram")).expect("created");
    fs::write(home.join("memories/MEMORY.md"), "old").expect("written");
    for (path, mode) in [("memories", 0o755), ("memories/people", 0o755), ("memories/MEMORY.md", 0o644)] {
        fs::set_permissions(home.join(path), Permissions::from_mode(mode)).expect("changed");
    }
    launch_without_umask(&mut fixture);
    fixture.wait_state("running");
    use_everything(&fixture);
    for name in ["memories", "cache", "terminal", "workspace", "backups", "cron", "state", "api_key"] {
        assert!(home.join(name).exists(), "{name} was not used");
    }
    assert_eq!(open_entries(&home), []);
    drop(fixture.kill());
    launch_without_umask(&mut fixture);
    fixture.wait_state("running");
    fixture.wait_idle();
    let (_, log, _) = fixture.terminate();
    assert_eq!(open_entries(&home), [], "{log}");
}
