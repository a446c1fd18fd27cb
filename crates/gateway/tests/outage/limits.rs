//! Rate limits with a manual clock.

use petasos_fakes::model::Point;
use petasos_fakes::telegram::Fault;

use crate::three_platforms::{CHAT, ThreePlatforms};
use crate::{MINUTE, SECOND, calm};

const OTHER: i64 = 8;

#[test]
fn typing_rate_limit_delays_all_requests_of_the_chat() {
    let mut world = ThreePlatforms::idle();
    world.telegram.on("sendChatAction").does(Fault::too_many(30));
    let gate = world.model.gate(Point::Before);
    world.start(calm());
    world.time.until("connected", MINUTE, SECOND, || world.all_connected());
    world.telegram.push_text(CHAT, CHAT, "hello");
    let of_chat = || world.telegram.calls().iter().filter(|call| call.chat() == Some(CHAT)).count();
    world.time.until("refused", MINUTE, SECOND, || (of_chat() > 0).then_some(()));
    gate.open();
    world.telegram.push_text(OTHER, OTHER, "hello");
    world.time.pass(25 * SECOND, SECOND);
    assert_eq!(of_chat(), 1, "{:?}", world.telegram.calls());
    assert_eq!(world.telegram.texts(OTHER).len(), 1, "the other chat goes on");
    let answered = || (!world.telegram.texts(CHAT).is_empty()).then_some(());
    world.time.until("answered", 10 * SECOND, SECOND, answered);
}

#[test]
fn answer_rate_limit_delays_typing() {
    let mut world = ThreePlatforms::idle();
    world.telegram.on("sendMessage").does(Fault::too_many(30));
    world.start(calm());
    world.time.until("connected", MINUTE, SECOND, || world.all_connected());
    world.telegram.push_text(CHAT, CHAT, "one");
    let refused = || (!world.telegram.calls_of("sendMessage").is_empty()).then_some(());
    world.time.until("refused", MINUTE, SECOND, refused);
    let typed = world.telegram.calls_of("sendChatAction").len();
    let gate = world.model.gate(Point::Before);
    world.telegram.push_text(CHAT, CHAT, "two");
    world.time.pass(25 * SECOND, SECOND);
    assert_eq!(world.telegram.calls_of("sendChatAction").len(), typed);
    gate.open();
    let answered = || (world.telegram.texts(CHAT).len() == 2).then_some(());
    world.time.until("answered", 20 * SECOND, SECOND, answered);
    assert_eq!(world.telegram.calls_of("sendMessage").len(), 3, "one refusal");
}
