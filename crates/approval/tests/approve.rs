//! Commands and what is made of them: the corpus, and inputs that nobody would write.

#![allow(clippy::expect_used, reason = "tests")]

use std::collections::BTreeMap;

use petasos_approval::{Category, Context, Hardline, Verdict, judge};
use proptest::prelude::*;

const CONTEXT: Context = Context {
    home: "/home/ada",
    cwd: "/home/ada/work/site",
    gateway_home: "/home/ada/.petasos",
    workspace: "/home/ada/.petasos/workspace",
    follow: None,
    gateway_pids: &[4242],
    sudo_password: false,
    fed: false,
};

/// One line of a corpus: what is expected, and the command.
fn cases(corpus: &str) -> Vec<(String, String)> {
    let lines = corpus.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines
        .map(|line| {
            let (want, command) = line.split_once(' ').expect("a key and a command");
            (want.to_owned(), written_out(command))
        })
        .collect()
}

/// `⏎` and `<U+200B>` stand for characters that do not survive in a text file.
fn written_out(command: &str) -> String {
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

fn keys(verdict: &Verdict) -> Vec<&'static str> {
    match verdict {
        Verdict::Free => vec!["free"],
        Verdict::Ask(categories) => categories.iter().map(|category| category.key()).collect(),
        Verdict::Block(hardline) => vec![hardline.key()],
    }
}

/// Counts per key, prints what went wrong, and fails on any of it.
fn check(corpus: &str, least: usize, is_right: impl Fn(&str, &Verdict) -> bool) {
    let cases = cases(corpus);
    assert!(cases.len() >= least, "{} cases", cases.len());
    let mut counts: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
    let mut wrong = Vec::new();
    for (want, command) in &cases {
        let verdict = judge(command, &CONTEXT);
        let count = counts.entry(want).or_default();
        count.0 += 1;
        if !is_right(want, &verdict) {
            count.1 += 1;
            wrong.push(format!("{want}: {command:?} gave {:?}", keys(&verdict)));
        }
    }
    for (key, (all, missed)) in counts {
        println!("{key:20} {all:4} cases {missed:3} wrong");
    }
    assert!(wrong.is_empty(), "{} of {} wrong:\n{}", wrong.len(), cases.len(), wrong.join("\n"));
}

#[test]
fn what_must_never_run_never_runs() {
    check(include_str!("corpus/hardline.txt"), 300, |want, verdict| {
        *verdict == Verdict::Block(Hardline::from_key(want).expect("a known key"))
    });
}

#[test]
fn what_needs_a_person_asks_for_the_right_reason() {
    check(include_str!("corpus/ask.txt"), 200, |want, verdict| {
        let category = Category::from_key(want).expect("a known key");
        matches!(verdict, Verdict::Ask(categories) if categories.contains(&category))
    });
}

#[test]
fn everyday_commands_are_free() {
    check(include_str!("corpus/free.txt"), 200, |want, verdict| want == "free" && *verdict == Verdict::Free);
}

/// `link` leads to the gateway's home, `out` to a file in it, `deep` to somewhere in the workspace, `odd` nobody knows where.
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
fn links_lead_into_the_workspace_and_not_out_of_it() {
    let context = Context { cwd: "/home/ada/.petasos/workspace", follow: Some(follow), ..CONTEXT };
    let asks = Verdict::Ask(vec![Category::OwnConfig]);
    for (command, want) in [
        ("echo x > plain", Verdict::Free),
        ("echo x > deep/y", Verdict::Free),
        ("echo x > out", asks.clone()),
        ("echo x > link/SOUL.md", asks.clone()),
        ("cd link && touch SOUL.md", asks.clone()),
        ("echo x > odd", asks.clone()),
        // The other name of the same folder.
        ("echo x > /data/ws/plain", Verdict::Free),
        ("echo x > /data/ws/out", asks.clone()),
        ("echo x > /tmp/out", Verdict::Free),
    ] {
        assert_eq!(judge(command, &context), want, "{command}");
    }
    // A workspace that is no part of the home frees nothing of it.
    for workspace in ["/home/ada/.petasos", "/home/ada", "/", "", "/home/ada/.petasos/x/.."] {
        let context = Context { workspace, ..context };
        assert_eq!(judge("echo x > plain", &context), asks, "{workspace}");
    }
}

#[test]
fn every_category_has_cases_and_a_sentence() {
    let asked = cases(include_str!("corpus/ask.txt"));
    for category in Category::ALL {
        assert!(asked.iter().any(|(want, _)| want == category.key()), "{category:?}");
        assert!(category.sentence().ends_with('.'), "{category:?}");
    }
    let blocked = cases(include_str!("corpus/hardline.txt"));
    for hardline in Hardline::ALL {
        let made = *hardline == Hardline::TooLarge;
        assert!(made || blocked.iter().any(|(want, _)| want == hardline.key()), "{hardline:?}");
    }
}

#[test]
fn wrapping_never_makes_a_command_less_dangerous() {
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
        // what is broken on purpose, or looks at its own line, cannot be put into something else
        let whole = !matches!(judge(&command, &CONTEXT), Verdict::Ask(_))
            && !command.contains("unclosed")
            && !command.contains("'b;");
        let stands_alone =
            whole && !command.contains("<<") && !command.contains("ls )") && !command.starts_with(['!', '>']);
        for (before, after) in wrappers.iter().filter(|_| stands_alone) {
            let wrapped = format!("{before}{command}{after}");
            assert!(
                matches!(judge(&wrapped, &CONTEXT), Verdict::Block(_)),
                "{want}: {wrapped:?} gave {:?}",
                keys(&judge(&wrapped, &CONTEXT))
            );
            seen += 1;
        }
    }
    assert!(seen > 3000, "{seen}");
}

#[test]
fn too_long_and_too_deep_are_refused() {
    let large = Verdict::Block(Hardline::TooLarge);
    assert_eq!(judge(&"a".repeat(128_001), &CONTEXT), large);
    assert_eq!(judge(&"ls;".repeat(30_000), &CONTEXT), large);
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
            assert_eq!(judge(&deep, &CONTEXT), large, "{depth} times {open}");
        }
    }
}

/// Pieces of shell, put together by chance: far more likely to hit something than random characters.
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
    fn no_input_breaks_the_judge(text in any::<String>(), bytes in prop::collection::vec(any::<u8>(), 0..2_000)) {
        let _verdict = judge(&text, &CONTEXT);
        let _verdict = judge(&String::from_utf8_lossy(&bytes), &CONTEXT);
    }

    #[test]
    fn no_script_breaks_the_judge(text in shellish()) {
        let _verdict = judge(&text, &CONTEXT);
    }

    #[test]
    fn a_quoted_text_is_data(text in "[a-z /;&|()$<>-]{0,60}") {
        prop_assert_eq!(judge(&format!("echo '{text}'"), &CONTEXT), Verdict::Free);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn sixty_four_kibibytes_of_anything_are_read_in_bounded_time(piece in shellish(), junk in "\\PC{1,40}") {
        let text: String = piece.chars().chain(junk.chars()).cycle().take(40_000).collect();
        let begun = std::time::Instant::now();
        let _verdict = judge(&text, &CONTEXT);
        // a generous bound: what it must catch is growth with the square of the length or worse
        prop_assert!(begun.elapsed().as_secs() < 20, "{:?} for {text:.200}", begun.elapsed());
    }
}

#[test]
fn whoever_runs_what_is_written_to_it_later_needs_a_yes() {
    let fed = Context { fed: true, ..CONTEXT };
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
        assert!(matches!(judge(shell, &fed), Verdict::Ask(_)), "{shell}");
        assert_eq!(judge(shell, &CONTEXT), Verdict::Free, "{shell}: there is nothing to read");
    }
    for harmless in
        ["cat", "npm run dev", "python3 server.py", "bash build.sh", "tail -f log", "sleep 3; echo done"]
    {
        assert_eq!(judge(harmless, &fed), Verdict::Free, "{harmless}");
    }
}
