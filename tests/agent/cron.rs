//! `petasos cron` and `petasos memory`, and `kill -9` around a job run.
#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test that cannot go on stops")]

use std::sync::Arc;

use crate::support::{ProgramFixture, SOON, expect_failure, expect_json, expect_success, stdout};
use petasos_fakes::Gate;
use petasos_fakes::model::{Answer, Point};

#[test]
fn command_line_adds_lists_pauses_runs_and_removes_job() {
    let mut fixture = ProgramFixture::new();
    assert!(expect_failure(&fixture.run(&["cron", "list"]), 1).contains("no gateway is running"));
    fixture.model.respond(|_| Answer::text("done"));
    fixture.start();
    let add =
        ["--json", "cron", "add", "every 5h", "look", "around", "--deliver", "telegram:7", "--name", "Look"];
    let job = expect_json(&fixture.run(&add));
    let id = job["id"].as_str().unwrap().to_owned();
    assert_eq!((job["prompt"].as_str(), job["state"].as_str()), (Some("look around"), Some("scheduled")));
    assert!(stdout(&fixture.run(&["cron"])).contains(&id));
    assert!(expect_success(&fixture.run(&["cron", "pause", &id])).contains("is paused"));
    assert_eq!(expect_json(&fixture.run(&["--json", "cron", "list"]))[0]["state"], "paused");
    assert!(expect_success(&fixture.run(&["cron", "resume", &id])).contains("is resumed; next run at"));
    assert!(expect_success(&fixture.run(&["cron", "run", &id])).contains("was started"));
    assert_eq!(fixture.wait_messages(7, 1), ["⏰ Look\n\ndone"]);
    assert!(expect_success(&fixture.run(&["cron", "remove", &id])).contains("was removed"));
    assert!(expect_failure(&fixture.run(&["cron", "remove", &id]), 1).contains("there is no such job"));
    assert!(expect_failure(&fixture.run(&["cron", "add", "whenever", "x"]), 1).contains("use 30m"));
    assert!(expect_failure(&fixture.run(&["cron", "pause", "zz"]), 1).contains("twelve hexadecimal digits"));
}

#[test]
fn killed_job_run_completes_once() {
    for point in [None, Some(Point::Before), Some(Point::AfterDelta(0))] {
        let mut fixture = ProgramFixture::new();
        let gate = Arc::new(Gate::new());
        let held = gate.clone();
        fixture.model.respond(move |_| match point {
            Some(point) => Answer::text("done").gate(point, &held),
            None => Answer::text("done"),
        });
        fixture.start();
        let add = ["--json", "cron", "add", "every 5h", "work", "--deliver", "telegram:7", "--name", "Look"];
        let id = expect_json(&fixture.run(&add))["id"].as_str().unwrap().to_owned();
        expect_success(&fixture.run(&["cron", "run", &id]));
        if point.is_some() {
            let asked = fixture.model.wait_until(SOON, |state| (state.requests().count() == 1).then_some(()));
            assert!(asked.is_some());
        }
        drop(fixture.kill());
        gate.open();
        fixture.start();
        fixture.wait_messages(7, 1);
        fixture.wait_idle();
        drop(fixture.kill());
        fixture.start();
        fixture.wait_idle();
        let texts = fixture.telegram.texts(7);
        let plain = texts.iter().filter(|text| *text == "⏰ Look\n\ndone").count();
        assert!(plain <= 1, "{texts:?}");
        // A send that the kill interrupted may have a second, marked copy.
        assert!(texts.iter().all(|text| text.ends_with("⏰ Look\n\ndone")), "{texts:?}");
        let runs = expect_json(&fixture.run(&["--json", "cron", "list"]));
        assert_eq!(runs[0]["repeat"]["completed"], 1, "{runs}");
        assert_eq!(runs[0]["last_status"], "ok", "{runs}");
    }
}

#[test]
fn command_line_shows_edits_and_clears_memory() {
    let fixture = ProgramFixture::new();
    assert!(expect_success(&fixture.run(&["memory"])).contains("Memory is empty"));
    let mut edit = fixture.command(&["memory", "edit", "user"]);
    let program = fixture.home.path().join("editor");
    std::fs::write(&program, "#!/bin/sh\nprintf 'likes tea\\n§\\nspeaks German' > \"$1\"\n").unwrap();
    let mode = std::process::Command::new("chmod").arg("+x").arg(&program).status();
    assert!(mode.unwrap().success());
    let edited = edit.env("EDITOR", &program).output().unwrap();
    assert!(expect_success(&edited).contains("2 entries, 22 of 1375"));
    let shown = expect_json(&fixture.run(&["--json", "memory", "show"]));
    assert_eq!(shown["user"], serde_json::json!(["likes tea", "speaks German"]));
    assert!(
        expect_success(&fixture.run(&["memory", "show", "--person", "telegram:7"]))
            .contains("Memory is empty")
    );
    assert!(expect_success(&fixture.run(&["memory", "clear"])).contains("Memory cleared"));
    assert!(!fixture.home.path().join("memories/USER.md").exists());
}
