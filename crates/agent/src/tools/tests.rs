use std::os::unix::fs::symlink;

use petasos_core::message::ChatType;
use petasos_core::{Millis, Platform, SessionId, SessionKey, Source};
use tempfile::TempDir;

use super::*;
use crate::tools::registry::arguments::Count;
use crate::tools::registry::definition::{Effects, Runner};

struct WorkspaceFixture {
    directory: TempDir,
    ctx: SessionCtx,
}

fn fixture() -> WorkspaceFixture {
    let directory = TempDir::new().unwrap();
    let workspace = directory.path().join("work");
    std::fs::create_dir(&workspace).unwrap();
    let ctx = SessionCtx {
        key: SessionKey("agent:main:local:dm:1".into()),
        session: SessionId("s".into()),
        source: Source::new(Platform::parse("local").unwrap(), ChatType::Dm, "1"),
        async_delivery: AsyncDelivery::Supported,
        respondent: Respondent::None,
        call: String::new(),
        home: directory.path().into(),
        workspace,
        sent: ["documents", "images"]
            .map(|sort| directory.path().join("cache").join(sort).join("mine"))
            .into(),
        results: directory.path().join("cache/results/mine"),
        heartbeat: TurnHeartbeat::default(),
        now: Millis(1_700_000_000_000),
        timezone: Some("UTC".into()),
    };
    WorkspaceFixture { directory, ctx }
}

impl WorkspaceFixture {
    async fn run(&self, name: &str, arguments: Value) -> Value {
        let call = ToolCall { id: "1".into(), name: name.into(), arguments: arguments.to_string() };
        let result = Tools::default().run(&self.ctx, &call).await;
        let value: Value = serde_json::from_str(&result.content).unwrap();
        assert_eq!(result.failed, value.get("error").is_some(), "{value}");
        value
    }

    async fn error(&self, name: &str, arguments: Value) -> String {
        let value = self.run(name, arguments.clone()).await;
        value["error"].as_str().unwrap_or_else(|| panic!("{name} {arguments} gave {value}")).to_owned()
    }

    fn write(&self, path: &str, content: impl AsRef<[u8]>) {
        std::fs::write(self.ctx.workspace.join(path), content).unwrap();
    }
}

#[tokio::test]
async fn writes_whole_file_and_reads_it_back() {
    let fixture = fixture();
    let written =
        fixture.run("write_file", json!({"path": "a/b/notes.txt", "content": "milk\nbread\n"})).await;
    assert_eq!(
        written,
        json!({"path": "a/b/notes.txt", "bytes_written": 11, "replaced": false, "dirs_created": true})
    );
    let read = fixture.run("read_file", json!({"path": "./a/x/../b/notes.txt"})).await;
    assert_eq!(
        read,
        json!({"content": "1|milk\n2|bread\n", "total_lines": 2, "file_size": 11, "truncated": false})
    );
    let again = fixture.run("write_file", json!({"path": "a/b/notes.txt", "content": ""})).await;
    assert_eq!(again["replaced"], true);
    let left: Vec<_> = std::fs::read_dir(fixture.ctx.workspace.join("a/b")).unwrap().collect();
    assert_eq!(left.len(), 1, "no temporary file stays behind");
}

#[tokio::test]
async fn accepts_absolute_path_inside_workspace() {
    let fixture = fixture();
    let path = fixture.ctx.workspace.join("a.txt").display().to_string();
    fixture.run("write_file", json!({"path": path, "content": "x"})).await;
    assert_eq!(fixture.run("read_file", json!({ "path": path })).await["content"], "1|x\n");
}

#[tokio::test]
async fn reaches_nothing_outside_the_workspace() {
    let fixture = fixture();
    std::fs::write(fixture.directory.path().join("secret"), "secret").unwrap();
    std::fs::create_dir(fixture.directory.path().join("other")).unwrap();
    symlink(fixture.directory.path().join("secret"), fixture.ctx.workspace.join("link")).unwrap();
    symlink(fixture.directory.path(), fixture.ctx.workspace.join("door")).unwrap();
    symlink("nowhere", fixture.ctx.workspace.join("dangling")).unwrap();
    let sibling = format!("{}-evil/x", fixture.ctx.workspace.display());
    let paths = [
        "../secret",
        "a/../../secret",
        "/etc/passwd",
        "~/x",
        "link",
        "door/secret",
        "door/other/new",
        "dangling",
        "",
        "a\0b",
        ".",
        &sibling,
    ];
    for path in paths {
        fixture.error("read_file", json!({ "path": path })).await;
        fixture.error("write_file", json!({"path": path, "content": "x"})).await;
    }
    for path in ["..", "door", "/"] {
        fixture.error("search_files", json!({"pattern": "secret", "path": path})).await;
    }
    let found = fixture.run("search_files", json!({"pattern": "secret"})).await;
    assert_eq!(found["total_count"], 0);
    assert_eq!(std::fs::read_to_string(fixture.directory.path().join("secret")).unwrap(), "secret");
    assert!(!fixture.directory.path().join("other/new").exists());
}

#[tokio::test]
async fn sent_files_can_be_read_and_searched_but_not_written() {
    let fixture = fixture();
    let home = fixture.directory.path();
    let at = |path: &str| home.join(path).display().to_string();
    let file = "cache/documents/mine/1-0.txt";
    let folder = "cache/documents/mine";
    let missing = fixture.error("read_file", json!({"path": at(file)})).await;
    assert!(missing.contains("does not exist") && !home.join("cache").exists(), "{missing}");
    for whose in ["mine", "theirs"] {
        std::fs::create_dir_all(home.join("cache/documents").join(whose)).unwrap();
        std::fs::write(home.join("cache/documents").join(whose).join("1-0.txt"), "milk\n").unwrap();
    }
    std::fs::write(home.join("secret"), "milk, too").unwrap();
    symlink(home.join("secret"), home.join(folder).join("link")).unwrap();
    symlink(home, home.join(folder).join("door")).unwrap();
    let read = fixture.run("read_file", json!({"path": at(file)})).await;
    assert_eq!(read["content"], "1|milk\n");
    let found = fixture.run("search_files", json!({"pattern": "milk", "path": at(folder)})).await;
    let line = json!({"path": at(file), "line": 1, "content": "milk"});
    assert_eq!(found, json!({"total_count": 1, "matches": [line]}));
    let named = json!({"pattern": "^1-", "target": "files", "path": at(folder)});
    assert_eq!(fixture.run("search_files", named).await["files"], json!([at(file)]));
    for path in [
        "cache/documents/theirs/1-0.txt",
        "cache/documents/mine/../theirs/1-0.txt",
        "cache/documents/mine/../../../secret",
        "cache/documents/mine/link",
        "cache/documents/mine/door/secret",
        "cache/documents/mine",
        "cache/documents/mine-2/x",
        "secret",
    ] {
        fixture.error("read_file", json!({"path": at(path)})).await;
    }
    for path in ["cache", "cache/documents", "cache/documents/theirs", "cache/documents/mine/door"] {
        fixture.error("search_files", json!({"pattern": "milk", "path": at(path)})).await;
    }
    for path in [file, "cache/documents/mine/new"] {
        fixture.error("write_file", json!({"path": at(path), "content": "x"})).await;
    }
    assert_eq!(std::fs::read_to_string(home.join(file)).unwrap(), "milk\n");
    assert!(!home.join(folder).join("new").exists());
}

#[tokio::test]
async fn refuses_special_files_directories_and_binaries() {
    let fixture = fixture();
    std::fs::create_dir(fixture.ctx.workspace.join("dir")).unwrap();
    let pipe = rustix::fs::mknodat(
        rustix::fs::CWD,
        fixture.ctx.workspace.join("pipe"),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::from_raw_mode(0o600),
        0,
    );
    pipe.unwrap();
    fixture.write("binary", [1, 0, 2]);
    for (path, want) in [("dir", "directory"), ("pipe", "regular"), ("binary", "binary"), ("none", "exist")] {
        let error = fixture.error("read_file", json!({ "path": path })).await;
        assert!(error.contains(want), "{path}: {error}");
    }
    assert!(fixture.error("write_file", json!({"path": "dir", "content": ""})).await.contains("directory"));
    fixture.run("search_files", json!({"pattern": "x"})).await;
}

#[tokio::test]
async fn pages_long_files() {
    let fixture = fixture();
    fixture.write("long", (1..=3000).map(|n| format!("line {n}\n")).collect::<String>());
    let first = fixture.run("read_file", json!({"path": "long"})).await;
    assert_eq!((&first["next_offset"], &first["total_lines"]), (&json!(501), &json!(3000)));
    let last = fixture.run("read_file", json!({"path": "long", "offset": 3000, "limit": 9999})).await;
    assert_eq!((&last["content"], &last["truncated"]), (&json!("3000|line 3000\n"), &json!(false)));
    assert!(
        fixture.error("read_file", json!({"path": "long", "offset": 3001})).await.contains("only 3000 lines")
    );
    fixture.write("wide", format!("{}\n", "x".repeat(1999)).repeat(100) + &"y".repeat(1 << 20));
    let wide = fixture.run("read_file", json!({"path": "wide", "limit": 2000})).await;
    assert_eq!(wide["truncated"], true);
    assert!(wide["content"].as_str().unwrap().len() < 102_000);
    let end = fixture.run("read_file", json!({"path": "wide", "offset": 101})).await;
    assert!(end["content"].as_str().unwrap().len() < 2100);
    fixture.write("empty", "");
    assert_eq!(fixture.run("read_file", json!({"path": "empty"})).await["total_lines"], 0);
}

#[tokio::test]
async fn searches_lines_and_names_within_limits() {
    let fixture = fixture();
    std::fs::create_dir_all(fixture.ctx.workspace.join("sub/.git")).unwrap();
    fixture.write("a.md", "Buy Milk\nnothing\nmilk again\n");
    fixture.write("sub/b.rs", "let milk = 1;");
    fixture.write("sub/.git/c", "milk");
    let found = fixture.run("search_files", json!({"pattern": "milk"})).await;
    assert_eq!(found["total_count"], 3);
    assert_eq!(found["matches"][1], json!({"path": "a.md", "line": 3, "content": "milk again"}));
    assert_eq!(fixture.run("search_files", json!({"pattern": "^Buy"})).await["total_count"], 1);
    let one = fixture.run("search_files", json!({"pattern": "milk", "limit": 1})).await;
    assert_eq!(one["total_count"], 1);
    assert!(one["incomplete"].as_str().unwrap().contains("more"));
    for (pattern, want) in
        [("*.md", json!(["a.md"])), (r"\.rs$", json!(["sub/b.rs"])), ("sub/*", json!(["sub/b.rs"]))]
    {
        let files = fixture.run("search_files", json!({"pattern": pattern, "target": "files"})).await;
        assert_eq!(files["files"], want, "{pattern}");
    }
    let below = fixture.run("search_files", json!({"pattern": "milk", "path": "sub"})).await;
    assert_eq!(below["matches"][0]["path"], "sub/b.rs");
    assert!(fixture.error("search_files", json!({"pattern": "("})).await.contains("regular expression"));
    assert!(
        fixture.error("search_files", json!({"pattern": "a{9999999}"})).await.contains("regular expression")
    );
}

#[tokio::test]
async fn errors_name_wrong_arguments() {
    let fixture = fixture();
    for (name, arguments, want) in [
        ("read_file", json!({}), "\"path\" is missing"),
        ("read_file", json!({"path": 7}), "\"path\" must be a text"),
        ("read_file", json!({"path": "a", "offset": 0}), "\"offset\" must be"),
        ("read_file", json!("text"), "not a JSON object"),
        ("write_file", json!({"path": "a"}), "\"content\" is missing"),
        ("search_files", json!({"pattern": "a", "target": "moon"}), "\"target\" must be"),
        ("clock", json!({"timezone": "Moon/Base"}), "No time zone"),
        ("delete_all", json!({}), "read_file, write_file, patch, search_files, clock"),
    ] {
        let error = fixture.error(name, arguments).await;
        assert!(error.contains(want), "{name}: {error}");
    }
    let huge = "x".repeat(5 << 20);
    assert!(fixture.error("write_file", json!({"path": "a", "content": huge})).await.contains("larger"));
}

#[tokio::test]
async fn clock_reports_the_given_time() {
    let fixture = fixture();
    let reported = fixture.run("clock", json!({})).await;
    assert_eq!(reported["time"], "2023-11-14 22:13:20");
    assert_eq!(
        (&reported["weekday"], &reported["timezone"], &reported["utc_offset"]),
        (&json!("Tuesday"), &json!("UTC"), &json!("+00:00"))
    );
}

#[test]
fn cancelled_write_leaves_nothing_behind() {
    let fixture = fixture();
    let cancel = CancelFlag::default();
    cancel.0.store(true, Ordering::Relaxed);
    let Value::Object(arguments) = json!({"path": "a", "content": "x"}) else { unreachable!() };
    let arguments = crate::tools::registry::arguments::parse(arguments).unwrap();
    assert!(files::write::run(&fixture.ctx, &arguments, &cancel).is_err());
    assert_eq!(std::fs::read_dir(&fixture.ctx.workspace).unwrap().count(), 0);
}

#[test]
fn every_tool_has_a_spec_and_known_effects() {
    let tools = Tools::default();
    for spec in tools.specs().iter() {
        assert_eq!(spec.parameters["type"], "object", "{}", spec.name);
        assert_eq!(tools.read_only(&spec.name), !["write_file", "patch"].contains(&spec.name.as_str()));
    }
    assert!(!tools.read_only("unknown"));
    assert!(Tools::none().specs().is_empty());
    let fewer = tools.only(&["clock".to_owned()]);
    assert_eq!(
        fewer.specs().iter().map(|spec| spec.name.as_str()).collect::<Vec<_>>(),
        ["clock"],
        "asked again"
    );
}

#[tokio::test]
async fn replaces_unambiguous_text() {
    let fixture = fixture();
    fixture.write("a.txt", "one\ntwo\ntwo\n");
    let change = |old: &str, new: &str| json!({"path": "a.txt", "old_string": old, "new_string": new});
    let done = fixture.run("patch", change("one", "ONE")).await;
    assert_eq!(done["files_modified"], json!(["a.txt"]));
    assert!(done["diff"].as_str().is_some_and(|diff| diff.contains("-one\n+ONE\n")), "{done}");
    for (old, new, want) in [
        ("two", "2", "occurs 2 times"),
        ("three", "3", "does not occur"),
        (" ONE\nabsent", "x", "occurs in line 1"),
        ("ONE", "ONE", "nothing to change"),
        ("", "x", "empty"),
    ] {
        let error = fixture.error("patch", change(old, new)).await;
        assert!(error.contains(want), "{error}");
    }
    let mut all = change("two", "2");
    all["replace_all"] = true.into();
    fixture.run("patch", all).await;
    let text = || std::fs::read_to_string(fixture.ctx.workspace.join("a.txt")).unwrap();
    assert_eq!(text(), "ONE\n2\n2\n");
    fixture.write("a.txt", "a\r\nb\r\n");
    fixture.run("patch", change("a\nb", "a\nc")).await;
    assert_eq!(text(), "a\r\nc\r\n");
    assert!(
        fixture
            .error("patch", json!({"path": "../x", "old_string": "a", "new_string": "b"}))
            .await
            .contains("outside")
    );
    assert!(
        fixture
            .error("patch", json!({"path": "none", "old_string": "a", "new_string": "b"}))
            .await
            .contains("does not exist")
    );
}

#[tokio::test]
async fn patch_that_does_not_fit_changes_nothing() {
    let fixture = fixture();
    fixture.write("a", "1\n2\n");
    fixture.write("b", "1\n");
    fixture.write("gone", "x\n");
    let good = "--- a/a\n+++ b/a\n@@ -2 +2 @@\n-2\n+two\n--- /dev/null\n+++ b/new/c\n@@ -0,0 +1 @@\n+c\n";
    let bad = format!("{good}--- a/b\n+++ b/b\n@@ -1 +1 @@\n-absent\n+x\n");
    assert!(fixture.error("patch", json!({ "patch": bad })).await.contains("b: Part 1"));
    let outside = format!("{good}--- /dev/null\n+++ b/../../etc/x\n@@ -0,0 +1 @@\n+x\n");
    assert!(fixture.error("patch", json!({ "patch": outside })).await.contains("outside"));
    let there = |name: &str| std::fs::read_to_string(fixture.ctx.workspace.join(name)).ok();
    assert_eq!((there("a"), there("new/c")), (Some("1\n2\n".into()), None));
    let done = format!("{good}--- a/gone\n+++ /dev/null\n@@ -1 +0,0 @@\n-x\n");
    let done = fixture.run("patch", json!({ "patch": done })).await;
    assert_eq!(done["files_modified"], json!(["a", "new/c", "gone"]));
    assert_eq!(
        (there("a"), there("new/c"), there("gone")),
        (Some("1\ntwo\n".into()), Some("c\n".into()), None)
    );
    let again = fixture.error("patch", json!({ "patch": good })).await;
    assert!(again.contains("does not match"), "{again}");
    symlink("/etc/passwd", fixture.ctx.workspace.join("link")).unwrap();
    let through = "--- a/link\n+++ b/link\n@@ -1 +1 @@\n-root\n+x\n";
    assert!(fixture.error("patch", json!({ "patch": through })).await.contains("link"));
}

#[test]
fn repeated_call_runs_once() {
    let call = |id: &str| ToolCall { id: id.into(), name: "clock".into(), arguments: "{}".into() };
    let calls = [call("a"), call("b")];
    assert_eq!(duplicate_result(&calls, &calls[0]), None);
    assert!(duplicate_result(&calls, &calls[1]).unwrap().content.contains("same call as a"));
}

#[test]
fn specs_match_the_checked_in_file() {
    let want: Vec<Value> = serde_json::from_str(include_str!("specs.json")).unwrap();
    let seen: Vec<Value> = TABLE
        .iter()
        .map(|tool| tool.spec())
        .map(|it| json!({"name": it.name, "description": it.description, "parameters": it.parameters}))
        .collect();
    for (seen, want) in seen.iter().zip(&want) {
        assert_eq!(seen, want, "{:#}", seen);
    }
    assert_eq!(seen.len(), want.len());
}

#[test]
fn definitions_are_consistent() {
    let mut names: Vec<_> = TABLE.iter().map(|tool| tool.name).collect();
    names.sort_unstable();
    assert!(names.is_sorted_by(|one, next| one < next), "names are unique: {names:?}");
    for tool in TABLE.iter() {
        let has_path = tool.spec().parameters["properties"]["path"]["type"] == "string";
        match tool.effects {
            Effects::Reads { .. } | Effects::Writes => assert!(has_path, "{}", tool.name),
            Effects::None | Effects::Anything => {}
        }
    }
}

#[tokio::test]
async fn one_definition_is_enough_for_a_tool() {
    #[derive(serde::Deserialize, schemars::JsonSchema)]
    struct ToolArguments {
        /// Directory to count in
        path: Option<String>,
        /// Number of entries
        #[schemars(range(max = 10))]
        limit: Option<Count>,
    }
    let run = |_: &SessionCtx, arguments: &ToolArguments| {
        let limit = Count::within(arguments.limit.as_ref(), "limit", 3, 10)?;
        Ok(json!({"path": arguments.path, "limit": limit}))
    };
    let toy = Definition {
        name: "toy",
        description: "Counts.",
        toolset: Toolset::File,
        service: Service::None,
        effects: Effects::Reads { default: "." },
        paginated: false,
        reach: Reach::Subagents,
        runner: Runner::immediate(run),
    };
    let tools = Tools::none().with_enabled([&*Box::leak(Box::new(toy))]);
    let spec = &tools.specs()[0];
    assert_eq!((spec.name.as_str(), spec.description.as_str()), ("toy", "Counts."));
    let want = json!({"type": "object", "properties": {
        "path": {"type": "string", "description": "Directory to count in"},
        "limit": {"type": "integer", "maximum": 10, "description": "Number of entries"},
    }});
    assert_eq!(spec.parameters, want);
    assert_eq!(tools.toolsets().keys().collect::<Vec<_>>(), [&Toolset::File]);
    assert!(tools.read_only("toy") && tools.delegates("toy") && tools.knows("toy"));
    assert!(
        !tools.for_child(SubagentRole::Leaf).knows("toy")
            && tools.for_child(SubagentRole::Orchestrator).knows("toy")
    );
    assert!(!tools.only(&["toy".to_owned()]).knows("toy"));
    let call = |arguments: &str| ToolCall { id: "1".into(), name: "toy".into(), arguments: arguments.into() };
    assert_eq!(tools.groups("/w".as_ref(), &[call("{}"), call("{}")]), [2]);
    let fixture = fixture();
    for (arguments, want) in [
        (r#"{"limit": "99"}"#, json!({"path": null, "limit": 10})),
        (r#"{"path": null}"#, json!({"path": null, "limit": 3})),
        (r#"{"path": 7}"#, json!({"error": "The argument \"path\" must be a text."})),
        (r#"{"limit": 0}"#, json!({"error": "The argument \"limit\" must be a whole number from 1."})),
    ] {
        let result = tools.run(&fixture.ctx, &call(arguments)).await;
        assert_eq!(serde_json::from_str::<Value>(&result.content).unwrap(), want, "{arguments}");
    }
}

#[test]
fn restricts_tools_of_subagents_and_limited_sessions() {
    let all = Tools::none().with_enabled(TABLE.iter());
    let names = |tools: &Tools| tools.enabled.iter().map(|tool| tool.name).collect::<Vec<_>>();
    let without = |left_out: &[&str]| -> Vec<_> {
        names(&all).into_iter().filter(|name| !left_out.contains(name)).collect()
    };
    let people = ["clarify", "memory", "send_message", "cronjob"];
    assert_eq!(names(&all.for_child(SubagentRole::Orchestrator)), without(&people));
    assert_eq!(
        names(&all.for_child(SubagentRole::Leaf)),
        without(&[&people[..], &["delegate_task"]].concat())
    );
    let everything: Vec<String> = names(&all).into_iter().map(str::to_owned).collect();
    assert_eq!(names(&all.only(&everything)), without(&["cronjob", "delegate_task"]));
    assert_eq!(Tools::names(), without(&["delegate_task"]));
}

#[test]
fn errors_name_the_argument_and_its_expected_type() {
    #[track_caller]
    fn check<A: ToolArguments>(arguments: Value, want: &str) {
        let Value::Object(object) = arguments else { panic!("an object") };
        assert_eq!(crate::tools::registry::arguments::parse::<A>(object).err().as_deref(), Some(want));
    }
    #[derive(serde::Deserialize, schemars::JsonSchema)]
    #[allow(dead_code, reason = "only parsed")]
    struct SampleArguments {
        needed: String,
        #[serde(default, deserialize_with = "crate::tools::registry::arguments::flag")]
        flag: Option<bool>,
        number: Option<i64>,
        role: Option<TodoStatus>,
        texts: Option<Vec<String>>,
        todos: Option<Vec<TodoItem>>,
    }
    check::<SampleArguments>(json!({"needed": null}), "The argument \"needed\" is missing.");
    let given = |name: &str, value: Value| json!({"needed": "", name: value});
    check::<SampleArguments>(given("needed", json!(1)), "The argument \"needed\" must be a text.");
    check::<SampleArguments>(given("flag", json!("yes")), "The argument \"flag\" must be true or false.");
    check::<SampleArguments>(given("number", json!("x")), "The argument \"number\" must be a whole number.");
    check::<SampleArguments>(
        given("role", json!("king")),
        "The argument \"role\" must be pending, in_progress, completed or cancelled.",
    );
    check::<SampleArguments>(given("texts", json!([1])), "The argument \"texts\" must be a list of texts.");
    check::<SampleArguments>(
        given("todos", json!([{"id": "1"}])),
        "The argument \"todos\" must be a list of objects with id, content and status.",
    );
}
