use std::time::Duration;

use serde_json::{Value, json};

use super::testing::TerminalFixture;
use super::*;
use petasos_runtime::clock;

async fn run(fixture: &TerminalFixture, chat: &str, arguments: Value) -> Value {
    fixture.call(&fixture.ctx(chat), "terminal", arguments).await
}

fn keys(value: &Value) -> Vec<&str> {
    value.as_object().unwrap().keys().map(String::as_str).collect()
}

/// Whether the process exists and is no zombie.
fn is_alive(pid: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    !stat.is_empty() && !stat.contains(") Z ")
}

async fn until(description: &str, condition: impl FnMut() -> bool) {
    petasos_fakes::wait::eventually_async(description, Duration::from_secs(10), condition).await;
}

#[tokio::test]
async fn returns_merged_output_and_exit_code() {
    let fixture = TerminalFixture::new();
    let ran = run(&fixture, "1", json!({"command": "echo one; echo two >&2; echo three; exit 3"})).await;
    assert_eq!(ran, json!({"output": "one\ntwo\nthree", "exit_code": 3, "error": null}));
}

#[tokio::test]
async fn explains_harmless_exit_code() {
    let fixture = TerminalFixture::new();
    let ran = run(&fixture, "1", json!({"command": "echo x | grep y"})).await;
    assert_eq!(ran["exit_code"], 1);
    assert!(ran["exit_code_meaning"].as_str().unwrap().contains("not an error"));
}

#[tokio::test]
async fn rejects_invalid_commands_with_documented_keys() {
    let fixture = TerminalFixture::new();
    let marker = fixture.home.path().join("ran");
    let touch = format!("touch {}", marker.display());
    assert_eq!(
        run(&fixture, "1", json!({"command": 7})).await,
        json!({"output": "", "exit_code": -1, "error": "Invalid command: expected string, got number", "status": "error"})
    );
    let long = run(&fixture, "1", json!({"command": touch, "timeout": 601})).await;
    assert_eq!(keys(&long), ["error"]);
    assert!(long["error"].as_str().unwrap().contains("background"));
    let server = run(&fixture, "1", json!({"command": format!("{touch} &")})).await;
    assert_eq!((&server["exit_code"], &server["status"]), (&json!(-1), &json!("error")));
    let strange = run(&fixture, "1", json!({"command": touch, "workdir": "/tmp/$(id)"})).await;
    assert_eq!((&strange["exit_code"], &strange["status"]), (&json!(-1), &json!("blocked")));
    assert!(strange["error"].as_str().unwrap().contains("'$'"));
    let own = run(&fixture, "1", json!({"command": format!("{touch}; petasos restart")})).await;
    assert_eq!((&own["exit_code"], &own["status"]), (&json!(1), &json!("error")));
    let nowhere = run(&fixture, "1", json!({"command": touch, "workdir": "/nowhere"})).await;
    assert_eq!(nowhere["exit_code"], -1);
    assert!(!marker.exists(), "nothing of it was run");
}

#[derive(Debug)]
struct BlockAll;

impl CommandApprover for BlockAll {
    fn decide<'a>(
        &'a self,
        request: CommandRequest<'a>,
        ctx: &'a SessionCtx,
    ) -> Pin<Box<dyn Future<Output = CommandDecision> + Send + 'a>> {
        let reason = format!("BLOCKED: {} for {}", request.command, ctx.key);
        Box::pin(async { CommandDecision::Blocked { reason } })
    }
}

#[tokio::test]
async fn blocked_command_is_not_started() {
    let fixture = TerminalFixture::with_approver(Arc::new(BlockAll));
    let marker = fixture.home.path().join("ran");
    let command = format!("touch {}", marker.display());
    let ran = run(&fixture, "1", json!({"command": command})).await;
    let reason = format!("BLOCKED: {command} for agent:main:telegram:dm:1");
    assert_eq!(ran, json!({"output": "", "exit_code": -1, "error": reason, "status": "blocked"}));
    assert!(!marker.exists());
}

#[tokio::test]
async fn directory_and_variables_persist_per_session() {
    let fixture = TerminalFixture::new();
    run(&fixture, "1", json!({"command": "mkdir -p deep && cd deep && export FOO='a b\nc' && export BAR=x"}))
        .await;
    let again = run(
        &fixture,
        "1",
        json!({"command": "echo \"$FOO\"; basename \"$PWD\"; echo $HERMES_SESSION_KEY; exit 4"}),
    )
    .await;
    assert_eq!(again["output"], "a b\nc\ndeep\nagent:main:telegram:dm:1");
    let other = run(
        &fixture,
        "2",
        json!({"command": "echo \"[$FOO]\"; basename \"$PWD\"; echo $HERMES_SESSION_KEY"}),
    )
    .await;
    assert_eq!(other["output"], "[]\nworkspace\nagent:main:telegram:dm:2");
    let gone = run(&fixture, "1", json!({"command": "unset BAR; cd ..; rmdir deep; cd /"})).await;
    assert_eq!(gone["exit_code"], 0);
    let after = run(&fixture, "1", json!({"command": "echo \"[$BAR]\"; pwd"})).await;
    assert_eq!(after["output"], "[]\n/", "also after a command that left with another code");
}

#[tokio::test]
async fn recreates_missing_workspace() {
    let fixture = TerminalFixture::new();
    let workspace = fixture.ctx("1").workspace;
    for command in ["pwd", "mkdir -p a && cd a && pwd"] {
        run(&fixture, "1", json!({"command": command})).await;
        std::fs::remove_dir_all(&workspace).unwrap();
        let ran = run(&fixture, "1", json!({"command": "pwd -P"})).await;
        let want = std::fs::canonicalize(&workspace).unwrap();
        assert_eq!(ran["output"], want.to_str().unwrap(), "{command}");
    }
}

#[tokio::test]
async fn session_continues_after_broken_command() {
    let fixture = TerminalFixture::new();
    let broken = run(&fixture, "1", json!({"command": "echo 'open"})).await;
    assert_ne!(broken["exit_code"], 0);
    assert_eq!(run(&fixture, "1", json!({"command": "echo fine"})).await["output"], "fine");
}

#[tokio::test]
async fn timeout_kills_whole_group() {
    let fixture = TerminalFixture::new();
    let began = clock::monotonic();
    let command = "trap '' TERM; (trap '' TERM; sleep 31) > /dev/null 2>&1 < /dev/null | sleep 32 | (echo $BASHPID; sleep 33)";
    let ran = run(&fixture, "1", json!({"command": command, "timeout": 1})).await;
    assert_eq!(ran["exit_code"], 124);
    assert!(began.elapsed() < Duration::from_secs(25), "{:?}", began.elapsed());
    let output = ran["output"].as_str().unwrap();
    let (pid, notice) = output.split_once('\n').unwrap();
    assert_eq!(notice, "[Command timed out after 1s]");
    until("gone", || !is_alive(pid)).await;
}

#[tokio::test]
async fn dropped_call_ends_its_command() {
    let fixture = TerminalFixture::new();
    let ctx = fixture.ctx("1");
    let pid = fixture.home.path().join("pid");
    let arguments = json!({"command": format!("echo $$ > {}; sleep 35", pid.display())});
    let call = fixture.call(&ctx, "terminal", arguments);
    let begun = until("started", || std::fs::read_to_string(&pid).is_ok_and(|pid| pid.ends_with('\n')));
    tokio::select! {
        _ = call => panic!("it sleeps"),
        () = begun => {}
    }
    let pid = std::fs::read_to_string(pid).unwrap();
    until("gone", || !is_alive(pid.trim())).await;
}

#[tokio::test]
async fn open_pipe_does_not_delay_result() {
    let fixture = TerminalFixture::new();
    let began = clock::monotonic();
    let ran = run(&fixture, "1", json!({"command": "(eval 'sleep 36 &'); echo done"})).await;
    assert_eq!((&ran["output"], &ran["exit_code"]), (&json!("done"), &json!(0)));
    assert!(began.elapsed() < Duration::from_secs(30));
}

#[tokio::test]
async fn pty_gives_program_a_terminal() {
    let fixture = TerminalFixture::new();
    let with =
        run(&fixture, "1", json!({"command": "test -t 0 && test -t 1 && stty size", "pty": true})).await;
    assert_eq!((&with["output"], &with["exit_code"]), (&json!("30 120"), &json!(0)));
    let without = run(&fixture, "1", json!({"command": "test -t 1"})).await;
    assert_eq!(without["exit_code"], 1);
}

#[tokio::test]
async fn truncates_long_output_in_the_middle() {
    let fixture = TerminalFixture::new();
    let ran = run(&fixture, "1", json!({"command": "seq 1 30000; echo the end"})).await;
    let output = ran["output"].as_str().unwrap();
    assert!(output.len() < 51_000 && output.starts_with("1\n2\n") && output.ends_with("\nthe end"));
    assert!(output.contains("out of 168902 total"), "{}", &output[19_900..20_400]);
}

fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() << 10
}

#[tokio::test]
async fn two_gigabytes_of_output_use_little_memory() {
    let fixture = TerminalFixture::new();
    run(&fixture, "1", json!({"command": "true"})).await;
    let before = resident();
    let ran =
        run(&fixture, "1", json!({"command": "head -c 2000000000 /dev/zero | tr '\\0' x; echo; echo end"}))
            .await;
    assert_eq!(ran["exit_code"], 0);
    assert!(ran["output"].as_str().unwrap().contains("out of 2000000005 total"));
    let grown = resident().saturating_sub(before);
    assert!(grown < 32 << 20, "grown by {grown}");
}
