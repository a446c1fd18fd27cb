//! No interleaving of two conversations leaks text of one into the other.

mod support;

use std::time::Duration;

use petasos_core::admission::BusyMode;
use petasos_fakes::model::Answer;
use proptest::prelude::*;
use support::{GatewayFixture, SOON};

/// A message, and how slowly the model answers it.
#[derive(Debug, Clone)]
struct Step {
    chat: i64,
    pieces: usize,
    pause_ms: u64,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = (1_i64..=2, 1_usize..4, 0_u64..8);
    prop::collection::vec(step.prop_map(|(chat, pieces, pause_ms)| Step { chat, pieces, pause_ms }), 2..10)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, ..ProptestConfig::default() })]

    #[test]
    fn keeps_two_chats_apart(steps in steps(), queue in any::<bool>(), streaming in any::<bool>()) {
        let fixture = GatewayFixture::with(|setup| {
            setup.workers = 2;
            let settings = &mut setup.settings;
            settings.busy = if queue { BusyMode::Queue } else { BusyMode::Interrupt };
            settings.streaming.enabled = streaming;
            settings.streaming.gap = Duration::from_millis(1);
            settings.busy_ack = false;
        });
        let plan = steps.clone();
        fixture.model.respond(move |request| {
            let number: usize = request.last_user.rsplit('#').next().and_then(|it| it.parse().ok()).unwrap_or(0);
            let step = &plan[number % plan.len()];
            Answer::text(format!("for {}", request.last_user)).chunks(step.pieces).every(Duration::from_millis(step.pause_ms))
        });
        for (number, step) in steps.iter().enumerate() {
            fixture.telegram.push_text(step.chat, step.chat, format!("chat {} #{number}", step.chat));
        }
        for chat in [1, 2] {
            let Some(last) = steps.iter().rposition(|step| step.chat == chat) else { continue };
            fixture.expect_last_message(chat, &format!("#{last}"));
            for text in fixture.telegram.texts(chat) {
                prop_assert!(!text.contains(&format!("chat {}", 3 - chat)), "chat {chat} shows {text:?}");
            }
        }
        // Each model request contains messages of one chat only.
        let mixed = fixture.model.wait_until(SOON, |desk| {
            Some(desk.requests().any(|request| {
                let body = request.body().to_string();
                body.contains("chat 1 #") && body.contains("chat 2 #")
            }))
        });
        prop_assert_eq!(mixed, Some(false));
    }
}
