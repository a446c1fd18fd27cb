use proptest::prelude::*;

use super::*;

#[derive(serde::Deserialize)]
struct RenderVector {
    #[serde(rename = "in")]
    source: String,
    out: String,
}

fn render_one(source: &str) -> String {
    let parts = parts(source, &LIMITS);
    assert_eq!(parts.len(), 1, "{source:?}");
    parts[0].text.clone()
}

#[test]
fn renders_the_test_vectors() {
    let cases: Vec<RenderVector> =
        serde_json::from_str(include_str!("../../tests/vectors/slack_mrkdwn.json")).expect("vectors");
    for case in cases {
        assert_eq!(render_one(&case.source), case.out, "{:?}", case.source);
    }
}

#[test]
fn renders_markdown_as_equivalent_mrkdwn() {
    for (source, want) in [
        ("* item", "• item"),
        ("||hidden||", "hidden"),
        ("```rust\nlet a = 1;\n```", "```\nlet a = 1;\n```"),
        ("`Vec<u8>` & x", "`Vec<u8>` &amp; x"),
        ("[**b** | c](https://e.org)", "<https://e.org|*b* ¦ c>"),
        ("[a](https://e.org/a b)", "[a](https://e.org/a b)"),
        ("[a](https://e.org/x|y)", "<https://e.org/x%7Cy|a>"),
        ("[a](docs/x.md)", "a (docs/x.md)"),
        ("![alt](https://e.org/x.png)", "<https://e.org/x.png|alt>"),
        ("<https://e.org>", "https://e.org"),
        ("<@U1|ada> <#C1|general> <mailto:a@e.org|mail>", "<@U1|ada> <#C1|general> <mailto:a@e.org|mail>"),
        ("|A|B|\n|-|-|\n|1|2|", "*1*\n• B: 2"),
    ] {
        assert_eq!(render_one(source), want, "{source:?}");
    }
}

#[test]
fn never_notifies_a_whole_channel() {
    for source in [
        "<!channel> all",
        "<!here|x>",
        "`<!everyone>`",
        "```\n<!channel>\n```",
        "[x](!channel)",
        "[<!here>](https://e.org)",
        "\u{e000}!channel\u{e001}",
        "<!subteam^S1>",
        "<@U1|<!here>>",
        "<@!channel>",
    ] {
        let out = render_one(source);
        assert!(!out.contains("<!") && !out.contains("<@!"), "{source:?}: {out}");
    }
}

#[test]
fn splits_long_answers_into_numbered_parts_with_whole_fences() {
    let code = "    let x = \"<a> & b\";\n".repeat(3000);
    let source = format!("Intro.\n\n```rust\n{code}```\n\n{}", "Tail & more. ".repeat(400));
    let parts = parts(&source, &LIMITS);
    assert!(parts.len() >= 2);
    for (index, part) in parts.iter().enumerate() {
        assert!(Unit::Chars.len(&part.text) <= MAX_MESSAGE - PREFIX_RESERVE);
        assert!(part.text.ends_with(&format!("({}/{})", index + 1, parts.len())));
        assert_eq!(part.text.matches("```").count() % 2, 0);
    }
}

#[test]
fn renders_blank_text_as_no_message() {
    for blank in ["", " ", "\n\t\u{a0}\n"] {
        assert_eq!(parts(blank, &LIMITS), [], "{blank:?}");
    }
}

#[test]
fn preview_fits_one_edit_with_its_cursor() {
    assert_eq!(preview("**bold** and **half", " ▉"), "*bold* and **half ▉");
    assert_eq!(preview("", " ▉"), " ▉");
    for source in ["& ".repeat(5000), "[a](https://e.org) ".repeat(900), "x".repeat(9000)] {
        let shown = preview(&source, " ▉");
        let length = Unit::Chars.len(&shown);
        assert!(length <= MAX_EDIT && length > MAX_EDIT / 2 && shown.ends_with(" ▉"), "{length}");
    }
}

proptest! {
    #[test]
    fn only_kept_entities_have_angle_brackets(source in "[<>!@#UC|*_`a/:\\[\\]() \u{e000}\u{e001}https]{0,60}") {
        for part in parts(&source, &LIMITS) {
            prop_assert!(!part.text.contains("<!"), "{source:?} -> {:?}", part.text);
            prop_assert!(!part.text.contains([OPEN, CLOSE]), "{source:?} -> {:?}", part.text);
        }
    }
}
