//! The stall limit with a manual clock.

use petasos_fakes::model::Answer;
use petasos_gateway::StallLimits;

use crate::three_platforms::{CHAT, ThreePlatforms};
use crate::{MINUTE, SECOND, calm};

const WHOLE: &str = "a b c d e f g h i j k l m n o p q r s t";

#[test]
fn each_model_chunk_restarts_the_stall_limit() {
    let chunks = 20;
    let pause = 2 * MINUTE;
    let limit = StallLimits::default().stop.expect("a limit");
    assert!(pause < limit && chunks * pause > limit, "it takes longer than silence may");
    let mut world = ThreePlatforms::idle();
    world.model.script(Answer::text(WHOLE).chunks(chunks as usize).every(pause));
    world.start(calm());
    world.time.until("connected", MINUTE, SECOND, || world.all_connected());
    world.telegram.push_text(CHAT, CHAT, "slowly");
    let answered = || (!world.telegram.texts(CHAT).is_empty()).then_some(());
    world.time.until("answered", 2 * limit, 5 * SECOND, answered);
    assert_eq!(world.telegram.texts(CHAT), [WHOLE], "neither warned nor stopped");
}
