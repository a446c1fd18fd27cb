//! `petasos cron` and `petasos memory` against the real program, and `kill -9` around a run.
#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test that cannot go on stops")]

use std::sync::Arc;

use crate::support::{Bench, SOON, failed, fine, json, stdout};
use petasos_fakes::Gate;
use petasos_fakes::model::{Answer, Point};

#[test]
fn a_job_is_set_listed_paused_run_and_removed_from_the_command_line() {
    let mut bench = Bench::new();
    assert!(failed(&bench.run(&["cron", "list"]), 1).contains("no gateway is running"));
    bench.model.respond(|_| Answer::text("done"));
    bench.start();
    let add =
        ["--json", "cron", "add", "every 5h", "look", "around", "--deliver", "telegram:7", "--name", "Look"];
    let job = json(&bench.run(&add));
    let id = job["id"].as_str().unwrap().to_owned();
    assert_eq!((job["prompt"].as_str(), job["state"].as_str()), (Some("look around"), Some("scheduled")));
    assert!(stdout(&bench.run(&["cron"])).contains(&id));
    assert!(fine(&bench.run(&["cron", "pause", &id])).contains("rests"));
    assert_eq!(json(&bench.run(&["--json", "cron", "list"]))[0]["state"], "paused");
    assert!(fine(&bench.run(&["cron", "resume", &id])).contains("goes on; next at"));
    assert!(fine(&bench.run(&["cron", "run", &id])).contains("runs now"));
    assert_eq!(bench.wait_messages(7, 1), ["⏰ Look\n\ndone"]);
    assert!(fine(&bench.run(&["cron", "remove", &id])).contains("is gone"));
    assert!(failed(&bench.run(&["cron", "remove", &id]), 1).contains("there is no such job"));
    assert!(failed(&bench.run(&["cron", "add", "whenever", "x"]), 1).contains("use 30m"));
    assert!(failed(&bench.run(&["cron", "pause", "zz"]), 1).contains("twelve hexadecimal digits"));
}

#[test]
fn a_run_survives_kill_nine_and_is_one() {
    for point in [None, Some(Point::Before), Some(Point::AfterDelta(0))] {
        let mut bench = Bench::new();
        let gate = Arc::new(Gate::new());
        let held = gate.clone();
        bench.model.respond(move |_| match point {
            Some(point) => Answer::text("done").gate(point, &held),
            None => Answer::text("done"),
        });
        bench.start();
        let add = ["--json", "cron", "add", "every 5h", "work", "--deliver", "telegram:7", "--name", "Look"];
        let id = json(&bench.run(&add))["id"].as_str().unwrap().to_owned();
        fine(&bench.run(&["cron", "run", &id]));
        if point.is_some() {
            let asked = bench.model.wait_until(SOON, |desk| (desk.requests().count() == 1).then_some(()));
            assert!(asked.is_some());
        }
        drop(bench.kill());
        gate.open();
        bench.start();
        bench.wait_messages(7, 1);
        bench.settle();
        drop(bench.kill());
        bench.start();
        bench.settle();
        let texts = bench.telegram.texts(7);
        let plain = texts.iter().filter(|text| *text == "⏰ Look\n\ndone").count();
        assert!(plain <= 1, "{texts:?}");
        // A send that was under way when it was killed may have a second, marked copy.
        assert!(texts.iter().all(|text| text.ends_with("⏰ Look\n\ndone")), "{texts:?}");
        let runs = json(&bench.run(&["--json", "cron", "list"]));
        assert_eq!(runs[0]["repeat"]["completed"], 1, "{runs}");
        assert_eq!(runs[0]["last_status"], "ok", "{runs}");
    }
}

#[test]
fn what_is_remembered_can_be_seen_changed_and_forgotten() {
    let bench = Bench::new();
    assert!(fine(&bench.run(&["memory"])).contains("nothing is remembered"));
    let mut edit = bench.command(&["memory", "edit", "user"]);
    let program = bench.home.path().join("editor");
    std::fs::write(&program, "#!/bin/sh\nprintf 'likes tea\\n§\\nspeaks German' > \"$1\"\n").unwrap();
    let mode = std::process::Command::new("chmod").arg("+x").arg(&program).status();
    assert!(mode.unwrap().success());
    let edited = edit.env("EDITOR", &program).output().unwrap();
    assert!(fine(&edited).contains("2 entries, 22 of 1375"));
    let shown = json(&bench.run(&["--json", "memory", "show"]));
    assert_eq!(shown["user"], serde_json::json!(["likes tea", "speaks German"]));
    assert!(
        fine(&bench.run(&["memory", "show", "--person", "telegram:7"])).contains("nothing is remembered")
    );
    assert!(fine(&bench.run(&["memory", "clear"])).contains("forgotten"));
    assert!(!bench.home.path().join("memories/USER.md").exists());
}
