//! Assessments of a corpus of commands, and properties for arbitrary input.

#![allow(clippy::expect_used, reason = "tests")]

use std::collections::BTreeMap;

use petasos_approval::{Assessment, Category, Context, Hardline, assess};
use proptest::prelude::*;

const CONTEXT: Context = Context {
    home: "/home/ada",
    cwd: "/home/ada/work/site",
    gateway_home: "/home/ada/.petasos",
    workspace: "/home/ada/.petasos/workspace",
    resolve_links: None,
    gateway_pids: &[4242],
    sudo_password: false,
    stdin_open: false,
};

/// The expected key and the command of each line.
fn cases(corpus: &str) -> Vec<(String, String)> {
    let lines = corpus.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines
        .map(|line| {
            let (want, command) = line.split_once(' ').expect("a key and a command");
            (want.to_owned(), unescape(command))
        })
        .collect()
}

/// Replaces `⏎` and `<U+200B>` by the characters they stand for.
fn unescape(command: &str) -> String {
    let mut text = String::new();
    let mut rest = command;
    while let Some(at) = rest.find("<U+") {
        let code = &rest[at + 3..];
        let end = code.find('>').expect("a closed character");
        text.push_str(&rest[..at]);
        text.push(
            char::from_u32(u32::from_str_radix(&code[..end], 16).expect("a number")).expect("a character"),
        );
        rest = &code[end + 1..];
    }
    text.push_str(rest);
    text.replace('⏎', "\n")
}

fn keys(assessment: &Assessment) -> Vec<&'static str> {
    match assessment {
        Assessment::Harmless => vec!["free"],
        Assessment::NeedsApproval(categories) => categories.iter().map(|category| category.key()).collect(),
        Assessment::Forbidden(hardline) => vec![hardline.key()],
    }
}

/// Prints counts per key and all failures, and fails if there is one.
fn check(corpus: &str, least: usize, is_right: impl Fn(&str, &Assessment) -> bool) {
    let cases = cases(corpus);
    assert!(cases.len() >= least, "{} cases", cases.len());
    let mut counts: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
    let mut wrong = Vec::new();
    for (want, command) in &cases {
        let assessment = assess(command, &CONTEXT);
        let count = counts.entry(want).or_default();
        count.0 += 1;
        if !is_right(want, &assessment) {
            count.1 += 1;
            wrong.push(format!("{want}: {command:?} gave {:?}", keys(&assessment)));
        }
    }
    for (key, (all, missed)) in counts {
        println!("{key:20} {all:4} cases {missed:3} wrong");
    }
    assert!(wrong.is_empty(), "{} of {} wrong:\n{}", wrong.len(), cases.len(), wrong.join("\n"));
}

#[test]
fn forbids_the_forbidden_corpus() {
    check(include_str!("corpus/hardline.txt"), 300, |want, assessment| {
        *assessment == Assessment::Forbidden(Hardline::from_key(want).expect("a known key"))
    });
}

#[test]
fn asks_for_the_right_category() {
    check(include_str!("corpus/ask.txt"), 200, |want, assessment| {
        let category = Category::from_key(want).expect("a known key");
        matches!(assessment, Assessment::NeedsApproval(categories) if categories.contains(&category))
    });
}

#[test]
fn everyday_commands_are_harmless() {
    check(include_str!("corpus/free.txt"), 200, |want, assessment| {
        want == "free" && *assessment == Assessment::Harmless
    });
}

/// `link` leads to the gateway's home, `out` to a file in it, `deep` into the workspace, `odd` to an unknown path.
fn follow(path: &str) -> Option<String> {
    let workspace = "/home/ada/.petasos/workspace";
    match path.strip_prefix("/data/ws").or_else(|| path.strip_prefix(workspace)) {
        Some("/odd") => None,
        Some("/out") => Some("/home/ada/.petasos/SOUL.md".into()),
        Some(rest) if rest.starts_with("/link/") => Some(rest.replace("/link/", "/home/ada/.petasos/")),
        Some(rest) if rest.starts_with("/deep/") => {
            Some(rest.replace("/deep/", "/home/ada/.petasos/workspace/a/"))
        }
        Some(rest) => Some(format!("{workspace}{rest}")),
        None => Some(path.to_owned()),
    }
}

#[test]
fn follows_links_into_but_not_out_of_the_workspace() {
    let context = Context { cwd: "/home/ada/.petasos/workspace", resolve_links: Some(follow), ..CONTEXT };
    let asks = Assessment::NeedsApproval(vec![Category::OwnConfig]);
    for (command, want) in [
        ("echo x > plain", Assessment::Harmless),
        ("echo x > deep/y", Assessment::Harmless),
        ("echo x > out", asks.clone()),
        ("echo x > link/SOUL.md", asks.clone()),
        ("cd link && touch SOUL.md", asks.clone()),
        ("echo x > odd", asks.clone()),
        // Another name of the same folder.
        ("echo x > /data/ws/plain", Assessment::Harmless),
        ("echo x > /data/ws/out", asks.clone()),
        ("echo x > /tmp/out", Assessment::Harmless),
    ] {
        assert_eq!(assess(command, &context), want, "{command}");
    }
    // A workspace outside the home frees nothing in the home.
    for workspace in ["/home/ada/.petasos", "/home/ada", "/", "", "/home/ada/.petasos/x/.."] {
        let context = Context { workspace, ..context };
        assert_eq!(assess("echo x > plain", &context), asks, "{workspace}");
    }
}

#[test]
fn every_category_has_cases_and_a_sentence() {
    let asked = cases(include_str!("corpus/ask.txt"));
    for category in Category::ALL {
        // A command line does not show where it runs.
        let needs_case = *category != Category::Outside;
        assert!(!needs_case || asked.iter().any(|(want, _)| want == category.key()), "{category:?}");
        assert!(category.sentence().ends_with('.'), "{category:?}");
    }
    let blocked = cases(include_str!("corpus/hardline.txt"));
    for hardline in Hardline::ALL {
        let made = *hardline == Hardline::TooLarge;
        assert!(made || blocked.iter().any(|(want, _)| want == hardline.key()), "{hardline:?}");
    }
}

#[test]
fn wrapping_never_lowers_the_assessment() {
    let wrappers: [(&str, &str); 10] = [
        ("nohup true; ", ""),
        ("ls; ", ""),
        ("( ", "\n)"),
        ("{ ", "\n}"),
        ("if true; then ", "\nfi"),
        ("echo $(", "\n)"),
        ("f() {\n", "\n}; f"),
        ("while :; do ", "\ndone"),
        ("true && ", ""),
        ("\t\n", "\n\n# end"),
    ];
    let mut seen = 0;
    for (want, command) in cases(include_str!("corpus/hardline.txt")) {
        // invalid commands, and commands that inspect their own line, cannot be nested
        let whole = !matches!(assess(&command, &CONTEXT), Assessment::NeedsApproval(_))
            && !command.contains("unclosed")
            && !command.contains("'b;");
        let stands_alone =
            whole && !command.contains("<<") && !command.contains("ls )") && !command.starts_with(['!', '>']);
        for (before, after) in wrappers.iter().filter(|_| stands_alone) {
            let wrapped = format!("{before}{command}{after}");
            assert!(
                matches!(assess(&wrapped, &CONTEXT), Assessment::Forbidden(_)),
                "{want}: {wrapped:?} gave {:?}",
                keys(&assess(&wrapped, &CONTEXT))
            );
            seen += 1;
        }
    }
    assert!(seen > 3000, "{seen}");
}

#[test]
fn refuses_commands_that_are_too_long_or_too_deep() {
    let large = Assessment::Forbidden(Hardline::TooLarge);
    assert_eq!(assess(&"a".repeat(128_001), &CONTEXT), large);
    assert_eq!(assess(&"ls;".repeat(30_000), &CONTEXT), large);
    let pairs = [
        ("(", ")"),
        ("$(", ")"),
        ("{ ", ";}"),
        ("\"$(", ")\""),
        ("${x:-", "}"),
        ("<(", ")"),
        ("! ", ""),
        ("eval ", ""),
    ];
    for (open, close) in pairs {
        for depth in [200, 2_000, 10_000] {
            let deep = format!("{}ls{}", open.repeat(depth), close.repeat(depth));
            assert_eq!(assess(&deep, &CONTEXT), large, "{depth} times {open}");
        }
    }
}

/// Random sequences of shell fragments, which hit more code than random characters.
fn shellish() -> impl Strategy<Value = String> {
    let pieces = prop::sample::select(vec![
        "rm",
        " ",
        "-rf",
        "/",
        "$(",
        ")",
        "(",
        "`",
        "'",
        "\"",
        "\\",
        "\n",
        ";",
        "&&",
        "||",
        "|",
        "&",
        ">",
        "<<E\n",
        "E\n",
        "{",
        "}",
        ",",
        "${x",
        ":-",
        "$x",
        "x=",
        "f()",
        "{ ",
        "; }",
        "if ",
        "then ",
        "fi ",
        "for x in ",
        "do ",
        "done ",
        "case ",
        "in ",
        "esac ",
        "[[ ",
        "]] ",
        "((",
        "))",
        "<(",
        "eval ",
        "bash -c ",
        "xargs ",
        "find ",
        "echo ",
        "$'",
        "*",
        "~",
        "#",
        "=(",
        "!",
        "é",
        "ｒ",
        "\u{200b}",
        "\u{1b}[",
    ]);
    prop::collection::vec(pieces, 0..400).prop_map(|pieces| pieces.concat())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn never_panics_on_arbitrary_input(text in any::<String>(), bytes in prop::collection::vec(any::<u8>(), 0..2_000)) {
        let _verdict = assess(&text, &CONTEXT);
        let _verdict = assess(&String::from_utf8_lossy(&bytes), &CONTEXT);
    }

    #[test]
    fn never_panics_on_shell_fragments(text in shellish()) {
        let _verdict = assess(&text, &CONTEXT);
    }

    #[test]
    fn treats_quoted_text_as_data(text in "[a-z /;&|()$<>-]{0,60}") {
        prop_assert_eq!(assess(&format!("echo '{text}'"), &CONTEXT), Assessment::Harmless);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[expect(clippy::disallowed_methods, reason = "measures duration")]
    #[test]
    fn assesses_64_kib_of_input_in_bounded_time(piece in shellish(), junk in "\\PC{1,40}") {
        let text: String = piece.chars().chain(junk.chars()).cycle().take(40_000).collect();
        let begun = std::time::Instant::now();
        let _verdict = assess(&text, &CONTEXT);
        // a generous bound that detects quadratic or worse growth
        prop_assert!(begun.elapsed().as_secs() < 20, "{:?} for {text:.200}", begun.elapsed());
    }
}

#[test]
fn shells_with_open_input_need_approval() {
    let fed = Context { stdin_open: true, ..CONTEXT };
    for shell in [
        "bash",
        "sh -i",
        "exec zsh",
        "env bash",
        "cd src && bash",
        "python3",
        "python3 -i -",
        "node",
        "bash -c bash",
    ] {
        assert!(matches!(assess(shell, &fed), Assessment::NeedsApproval(_)), "{shell}");
        assert_eq!(assess(shell, &CONTEXT), Assessment::Harmless, "{shell}: there is nothing to read");
    }
    for harmless in
        ["cat", "npm run dev", "python3 server.py", "bash build.sh", "tail -f log", "sleep 3; echo done"]
    {
        assert_eq!(assess(harmless, &fed), Assessment::Harmless, "{harmless}");
    }
}
