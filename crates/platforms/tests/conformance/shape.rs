//! What an adapter says of itself, and whether its texts keep to it.

use petasos_core::capability::Dialect;
use petasos_core::message::Delivery;
use petasos_platforms::{Adapter, MARK_ROOM, Part};
use proptest::prelude::{Just, Strategy, prop_oneof};
use proptest::test_runner::{Config, TestCaseError, TestRunner};

use crate::Verdict;
use crate::peer::{Peer, Place};

const CURSOR: &str = " ▉";

pub(crate) fn capabilities(peer: &dyn Peer) -> Verdict {
    let adapter = peer.adapter();
    let capabilities = adapter.capabilities();
    assert!(capabilities.max_message > 4 * MARK_ROOM, "{}", capabilities.max_message);
    assert!((1..=capabilities.max_message).contains(&capabilities.max_edit), "{}", capabilities.max_edit);
    assert!(capabilities.split_hint.is_none_or(|hint| (1..=capabilities.max_message).contains(&hint)));
    assert!(!capabilities.label.is_empty() && !capabilities.hint.is_empty());
    assert!(capabilities.edit || !capabilities.finalize, "a final edit is an edit");
    let carries =
        matches!(adapter, Adapter::Relay(_)) || peer.excuse("a short text is sent and has an id").is_none();
    let reads = if carries { Delivery::Push } else { Delivery::Pull };
    assert_eq!(capabilities.delivery, reads, "we are the ones who send, if somebody reads");
    assert!(!adapter.account().is_empty(), "the account is known by the credentials");
    assert!(peer.secrets().iter().all(|secret| !adapter.account().contains(secret)));
    assert!(!peer.secrets().iter().any(|secret| format!("{adapter:?}").contains(secret)), "shown by Debug");
    assert_ne!(peer.chat(Place::Private), peer.chat(Place::Group));
    // Markup is shown the platform's way, or taken out.
    let shown = &adapter.render("**bold** 1 < 2 & a_b.")[0].text;
    let want = match capabilities.dialect {
        Dialect::Plain => "bold 1 < 2 & a_b.",
        Dialect::Markdown | Dialect::Discord => "**bold** 1 < 2 & a_b.",
        Dialect::MarkdownV2 => r"*bold* 1 < 2 & a\_b\.",
        Dialect::Mrkdwn => "*bold* 1 &lt; 2 &amp; a_b.",
        Dialect::Html => "<b>bold</b> 1 &lt; 2 &amp; a_b.",
    };
    assert_eq!(shown, want);
    Verdict::Passed
}

pub(crate) fn rendered(peer: &dyn Peer) -> Verdict {
    let capabilities = peer.adapter().capabilities();
    let fits = |text: &str| capabilities.unit.len(text) + MARK_ROOM <= capabilities.max_message;
    for_texts(capabilities.max_message, |text| {
        let parts = peer.adapter().render(text);
        assert_eq!(parts.is_empty(), text.trim().is_empty(), "something to say is said");
        parts.iter().all(|Part { text, plain, .. }| {
            fits(text) && plain.as_ref().is_none_or(|plain| fits(plain)) && !text.trim().is_empty()
        })
    });
    Verdict::Passed
}

pub(crate) fn previewed(peer: &dyn Peer) -> Verdict {
    let capabilities = peer.adapter().capabilities();
    for_texts(capabilities.max_message, |text| {
        let shown = peer.adapter().preview(text, CURSOR);
        capabilities.unit.len(&shown) <= capabilities.max_edit && shown.ends_with(CURSOR)
    });
    Verdict::Passed
}

/// Texts from none to several messages long, as a model or a mischievous user may write.
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
