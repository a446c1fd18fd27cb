//! Claiming the head of a lane, also for a dead chat.

use petasos_core::journal::Write;
use petasos_core::outbox::State;
use petasos_store::LaneClaim;

use crate::fixture::{Home, NOW, lane, later, telegram};

const LANE: &str = "telegram:7";
const DAY: u64 = 86_400;

fn claim(home: &mut Home, seconds: u64) -> LaneClaim {
    home.write(|tx| tx.claim_head(&lane(LANE), later(seconds)))
}

#[test]
fn claims_the_first_item_and_marks_it_as_being_sent() {
    let mut home = Home::new();
    assert!(claim(&mut home, 0).head.is_none());
    let first = home.enqueue("7", "one");
    home.enqueue("7", "two");
    let claimed = claim(&mut home, 0);
    assert_eq!((claimed.head, claimed.probing, claimed.dead_lettered), (Some(first.clone()), false, 0));
    assert_eq!(home.item(first.id).state, State::Sending);
    let again = claim(&mut home, 0).head.unwrap();
    assert_eq!((again.id, again.state), (first.id, State::Sending), "it holds back the second one");
}

#[test]
fn items_for_a_dead_chat_are_dead_lettered_between_probes() {
    let mut home = Home::new();
    let dead =
        Write::MarkChatDead { platform: telegram(), chat_id: "7".into(), reason: "blocked".into(), at: NOW };
    home.apply(&[dead]).unwrap();
    let barred = [home.enqueue("7", "one").id, home.enqueue("7", "two").id];
    let elsewhere = home.enqueue("8", "three").id;
    let claimed = claim(&mut home, 60);
    assert_eq!((claimed.head, claimed.probing, claimed.dead_lettered), (None, false, 2));
    for id in barred {
        let item = home.item(id);
        assert!(item.state == State::Dead && item.last_error.is_some_and(|it| it.contains("blocked")));
    }
    assert_eq!(home.item(elsewhere).state, State::Due);
    let probe = home.enqueue("7", "four");
    let claimed = claim(&mut home, DAY);
    assert_eq!((claimed.head, claimed.probing, claimed.dead_lettered), (Some(probe), true, 0));
}
