//! Capabilities and rendering cases.

use petasos_core::capability::Dialect;
use petasos_core::message::Delivery;
use petasos_platforms::{Adapter, PREFIX_RESERVE, Part};
use proptest::prelude::{Just, Strategy, prop_oneof};
use proptest::test_runner::{Config, TestCaseError, TestRunner};

use super::CellResult;
use super::platform::{ChatKind, TestPlatform};

const CURSOR: &str = " ▉";

pub(crate) fn capabilities(platform: &dyn TestPlatform) -> CellResult {
    let adapter = platform.adapter();
    let capabilities = adapter.capabilities();
    assert!(capabilities.max_message > 4 * PREFIX_RESERVE, "{}", capabilities.max_message);
    assert!((1..=capabilities.max_message).contains(&capabilities.max_edit), "{}", capabilities.max_edit);
    assert!(capabilities.split_hint.is_none_or(|hint| (1..=capabilities.max_message).contains(&hint)));
    assert!(!capabilities.label.is_empty() && !capabilities.hint.is_empty());
    assert!(capabilities.edit || !capabilities.finalize, "a final edit is an edit");
    let carries = matches!(adapter, Adapter::Relay(_))
        || platform.skip_reason("a short text is sent and has an id").is_none();
    let reads = if carries { Delivery::Push } else { Delivery::Pull };
    assert_eq!(capabilities.delivery, reads, "the adapter sends if the chat has a reader");
    assert!(!adapter.account().is_empty(), "the account is known by the credentials");
    assert!(platform.secrets().iter().all(|secret| !adapter.account().contains(secret)));
    assert!(
        !platform.secrets().iter().any(|secret| format!("{adapter:?}").contains(secret)),
        "shown by Debug"
    );
    assert_ne!(platform.chat(ChatKind::Private), platform.chat(ChatKind::Group));
    // Markup is converted or removed.
    let shown = &adapter.render("**bold** 1 < 2 & a_b.")[0].text;
    let want = match capabilities.dialect {
        Dialect::Plain => "bold 1 < 2 & a_b.",
        Dialect::Markdown | Dialect::Discord => "**bold** 1 < 2 & a_b.",
        Dialect::MarkdownV2 => r"*bold* 1 < 2 & a\_b\.",
        Dialect::Mrkdwn => "*bold* 1 &lt; 2 &amp; a_b.",
        Dialect::Html => "<b>bold</b> 1 &lt; 2 &amp; a_b.",
    };
    assert_eq!(shown, want);
    CellResult::Passed
}

pub(crate) fn rendered(platform: &dyn TestPlatform) -> CellResult {
    let capabilities = platform.adapter().capabilities();
    let fits = |text: &str| capabilities.unit.len(text) + PREFIX_RESERVE <= capabilities.max_message;
    for_texts(capabilities.max_message, |text| {
        let parts = platform.adapter().render(text);
        assert_eq!(parts.is_empty(), text.trim().is_empty(), "text is rendered, blanks are not");
        parts.iter().all(|Part { text, plain, .. }| {
            fits(text) && plain.as_ref().is_none_or(|plain| fits(plain)) && !text.trim().is_empty()
        })
    });
    CellResult::Passed
}

pub(crate) fn previewed(platform: &dyn TestPlatform) -> CellResult {
    let capabilities = platform.adapter().capabilities();
    for_texts(capabilities.max_message, |text| {
        let shown = platform.adapter().preview(text, CURSOR);
        capabilities.unit.len(&shown) <= capabilities.max_edit && shown.ends_with(CURSOR)
    });
    CellResult::Passed
}

/// Texts of zero to several messages, full of markup characters.
fn for_texts(max_message: usize, holds: impl Fn(&str) -> bool) {
    let piece = prop_oneof![
        4 => "[a-z .]{1,40}",
        3 => r"[*_~|`\\\[\]()!<>&#.\-]{1,4}",
        2 => "\\PC{1,20}",
        1 => Just("\n".to_owned()),
        1 => Just("\n```rust\n".to_owned()),
        1 => Just("\n```\n".to_owned()),
        1 => Just("\n> ".to_owned()),
        1 => Just("\n| a | b |\n|---|---|\n| 1 | 2 |\n".to_owned()),
        1 => Just("[l](http://e.org/(x))".to_owned()),
        1 => Just("🙂é".to_owned()),
    ];
    let pieces = proptest::collection::vec(piece, 0..60).prop_map(|pieces| pieces.concat());
    let texts = (pieces, 0..=2 * max_message / 400).prop_map(|(text, times)| text.repeat(1 + times));
    let mut runner = TestRunner::new(Config { cases: 64, failure_persistence: None, ..Config::default() });
    let checked = runner
        .run(&texts, |text| if holds(&text) { Ok(()) } else { Err(TestCaseError::fail("it does not fit")) });
    checked.unwrap_or_else(|error| panic!("{error}"));
}
