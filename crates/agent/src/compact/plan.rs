//! Which rows go. The first ones and the newest stay; what lies between is emptied, or summed up.
//!
//! A call and its results are never separated, and the user's newest words always stay.

use std::ops::Range;

use petasos_core::compaction::Replaced;
use petasos_core::ids::RowId;
use petasos_core::transcript::{EMPTIED, Message, Role};

use super::Room;
use crate::history::estimate;

/// Rows at the beginning that stay.
const HEAD: usize = 3;
/// Rows at the end that stay if they can.
const TAIL: usize = 20;
/// The same when the provider has refused the prompt already.
const SHORT_TAIL: usize = 4;
/// Fewer rows than this are not worth a summary.
const MIDDLE: usize = 3;
/// Shorter results are not worth emptying.
const OUTPUT: usize = 200;

/// Whether the pass must make room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Force {
    /// The conversation has reached our own limit.
    No,
    /// Somebody asked for it, or the provider refused the prompt.
    Yes,
}

/// What would be sent to the model.
#[derive(Debug, Clone, Copy)]
pub struct Conversation<'a> {
    pub rows: &'a [Message],
    /// Their names, in the same order.
    pub ids: &'a [RowId],
    /// Tokens of instructions and tools.
    pub fixed: usize,
    /// Tokens of the last prompt as the provider counted them; 0: unknown.
    pub reported: u64,
}

/// One pass.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// Places of tool results whose text goes.
    emptied: Vec<usize>,
    /// Places of the rows to sum up.
    middle: Option<Range<usize>>,
}

/// What is left after a pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct After {
    pub tokens: usize,
    /// Tokens up to the newest assistant row: what the provider would have counted for it.
    pub prompt: u64,
}

impl Conversation<'_> {
    /// Tokens of the next prompt: what the provider counted last, and our guess at what came since.
    pub fn tokens(&self) -> usize {
        match (self.reported, self.newest()) {
            (reported @ 1.., Some(newest)) => {
                usize::try_from(reported).unwrap_or(usize::MAX).saturating_add(size(&self.rows[newest..]))
            }
            _ => self.guess(),
        }
    }

    pub fn is_long(&self, room: Room) -> bool {
        self.rows.len() > room.rows || self.tokens() >= room.tokens
    }

    /// `None`: nothing can go.
    pub fn plan(&self, room: Room, force: Force) -> Option<Plan> {
        let head = self.head(room);
        let tail = self.tail(room, force).max(head);
        let old = self.outputs(head..tail);
        if force == Force::No && self.rows.len() <= room.rows && self.frees_enough(&old, room) {
            return Some(Plan { emptied: old, middle: None });
        }
        if tail - head >= MIDDLE {
            let emptied = if force == Force::Yes { self.outputs(tail..self.last_batch()) } else { vec![] };
            return Some(Plan { emptied, middle: Some(head..tail) });
        }
        let emptied = self.outputs(0..self.last_batch());
        (!emptied.is_empty()).then_some(Plan { emptied, middle: None })
    }

    /// The rows to sum up, an earlier summary among them.
    pub fn middle(&self, plan: &Plan) -> Vec<&Message> {
        let question = self.question();
        let middle = plan.middle.clone().unwrap_or_default();
        middle.filter(|at| Some(*at) != question).map(|at| &self.rows[at]).collect()
    }

    pub fn emptied(&self, plan: &Plan) -> Vec<RowId> {
        plan.emptied.iter().map(|at| self.ids[*at]).collect()
    }

    /// How the store carries a plan out. `None`: nothing is to be replaced.
    pub fn replaced(&self, plan: &Plan, summary: String) -> Option<Replaced> {
        let middle = plan.middle.clone()?;
        let question = self.question().filter(|at| middle.contains(at));
        let head = self.ids[..middle.start].iter().copied();
        let keep = head.chain(question.map(|at| self.ids[at])).collect();
        let through = self.ids[middle.end - 1];
        // Before the question it helps to answer, if anything was.
        let place = match question {
            Some(at) if at > middle.start => self.ids[at - 1],
            Some(_) | None => through,
        };
        Some(Replaced { through, keep, place, summary })
    }

    pub fn after(&self, plan: &Plan, summary: &str) -> After {
        let (question, newest) = (self.question(), self.newest().unwrap_or(0));
        let gone = |at: usize| {
            plan.middle.as_ref().is_some_and(|middle| middle.contains(&at)) && Some(at) != question
        };
        let left = |range: Range<usize>| -> usize {
            let rows = range.filter(|at| !gone(*at));
            rows.map(|at| match plan.emptied.contains(&at) {
                true => EMPTIED.len() / 4 + 4,
                false => estimate(&self.rows[at]),
            })
            .sum()
        };
        let before = self.fixed + summary.len() / 4 + left(0..newest);
        let all = before + left(newest..self.rows.len());
        After { tokens: self.corrected(all), prompt: self.corrected(before) as u64 }
    }

    fn guess(&self) -> usize {
        self.fixed.saturating_add(size(self.rows))
    }

    /// Our guess, by the measure of what the provider counted last.
    fn corrected(&self, guess: usize) -> usize {
        let (counted, ours) = (self.tokens() as u128, self.guess().max(1) as u128);
        let scaled = (guess as u128) * counted.clamp(ours / 2, ours * 4) / ours;
        usize::try_from(scaled).unwrap_or(usize::MAX)
    }

    fn newest(&self) -> Option<usize> {
        self.rows.iter().rposition(|row| row.role == Role::Assistant)
    }

    fn question(&self) -> Option<usize> {
        self.rows.iter().rposition(|row| row.role == Role::User)
    }

    /// Where the rows begin that the model has not seen yet.
    fn last_batch(&self) -> usize {
        self.newest().unwrap_or(self.rows.len())
    }

    fn head(&self, room: Room) -> usize {
        let mut head = HEAD.min(self.rows.len());
        while head > 0 && size(&self.rows[..head]) > room.tokens / 5 {
            head -= 1;
        }
        // An earlier summary is there to be brought up to date.
        let summary = self.rows.iter().position(|row| row.role == Role::Summary);
        self.whole(head.min(summary.unwrap_or(head)))
    }

    fn tail(&self, room: Room, force: Force) -> usize {
        let (budget, least) = match force {
            Force::No => (room.tokens / 5, TAIL),
            // Whatever our limit: it was too much.
            Force::Yes => ((room.tokens / 10).min(size(self.rows) / 4), SHORT_TAIL),
        };
        let most = (room.rows / 4).max(least);
        let (mut tokens, mut start) = (0, self.rows.len());
        while start > 0 {
            tokens += estimate(&self.rows[start - 1]);
            let count = self.rows.len() - start + 1;
            if count > most || tokens > room.tokens / 2 || (count > least && tokens > budget) {
                break;
            }
            start -= 1;
        }
        self.whole(start)
    }

    /// The nearest place before which no call waits for its result.
    fn whole(&self, mut at: usize) -> usize {
        while at > 0 && self.rows.get(at).is_some_and(|row| row.role == Role::Tool) {
            at -= 1;
        }
        at
    }

    fn outputs(&self, range: Range<usize>) -> Vec<usize> {
        let worth = |row: &Message| row.role == Role::Tool && row.content.len() > OUTPUT;
        range.filter(|at| worth(&self.rows[*at])).collect()
    }

    /// Emptying alone is enough if it leaves a good part of the room free.
    fn frees_enough(&self, outputs: &[usize], room: Room) -> bool {
        let plan = Plan { emptied: outputs.to_vec(), middle: None };
        !outputs.is_empty() && self.after(&plan, "").tokens < room.tokens / 4 * 3
    }
}

fn size(rows: &[Message]) -> usize {
    rows.iter().map(estimate).sum()
}

#[cfg(test)]
mod tests {
    use petasos_core::Millis;
    use petasos_core::transcript::{EffectState, ToolCall};

    use super::*;

    const ROOM: Room = Room { tokens: 4_000, rows: 400 };

    const IDS: [RowId; 1_000] = {
        let mut ids = [RowId(0); 1_000];
        let mut at = 0;
        while at < 1_000 {
            ids[at] = RowId(at as i64 + 1);
            at += 1;
        }
        ids
    };

    fn user(size: usize) -> Message {
        Message::user("u".repeat(size), Millis(0))
    }

    fn answer(size: usize) -> Message {
        Message::assistant("a".repeat(size), Millis(0))
    }

    fn used(id: usize, size: usize) -> [Message; 2] {
        let call = ToolCall { id: format!("c{id}"), name: "clock".into(), arguments: "{}".into() };
        let result = Message::tool(&call, "r".repeat(size), EffectState::Known, Millis(0));
        [Message::asking("", vec![call], Millis(0)), result]
    }

    fn of(rows: &[Message]) -> Conversation<'_> {
        Conversation { rows, ids: &IDS[..rows.len()], fixed: 0, reported: 0 }
    }

    fn talk(exchanges: usize, size: usize) -> Vec<Message> {
        (0..exchanges).flat_map(|_| [user(size), answer(size)]).collect()
    }

    #[test]
    fn what_the_provider_counted_replaces_our_guess() {
        let rows = talk(3, 400);
        let ours = Conversation { fixed: 50, ..of(&rows) };
        assert_eq!(ours.tokens(), 50 + 6 * 104);
        let told = Conversation { reported: 3_000, ..ours };
        assert_eq!(told.tokens(), 3_000 + 104, "the newest answer came after that prompt");
        assert!(!ours.is_long(ROOM) && told.is_long(Room { tokens: 3_100, ..ROOM }));
        assert!(ours.is_long(Room { rows: 5, ..ROOM }));
    }

    #[test]
    fn the_beginning_and_the_newest_rows_stay() {
        let rows = talk(40, 400);
        let conversation = of(&rows);
        let plan = conversation.plan(ROOM, Force::No).expect("a plan");
        let middle = plan.middle.clone().expect("rows to sum up");
        assert_eq!(
            (middle.start, rows.len() - middle.end),
            (3, 19),
            "half the room is the most for the rest"
        );
        let replaced = conversation.replaced(&plan, "s".into()).expect("replaced");
        assert_eq!(replaced.keep, [RowId(1), RowId(2), RowId(3)]);
        assert_eq!((replaced.through, replaced.place), (RowId(61), RowId(61)));
        let after = conversation.after(&plan, "s");
        assert!(after.tokens < ROOM.tokens / 4 * 3, "{after:?}");
    }

    #[test]
    fn many_short_rows_are_too_many_as_well() {
        let rows = talk(300, 4);
        let plan = of(&rows).plan(ROOM, Force::No).expect("a plan");
        let middle = plan.middle.expect("rows to sum up");
        assert_eq!(rows.len() - middle.end, 100);
    }

    #[test]
    fn emptying_old_outputs_comes_first_and_may_be_enough() {
        let mut rows: Vec<Message> = (0..6).flat_map(|id| used(id, 2_000)).collect();
        rows.insert(0, user(10));
        rows.extend((0..12).flat_map(|_| [user(40), answer(40)]));
        let conversation = of(&rows);
        let plan = conversation.plan(Room { tokens: 3_000, rows: 400 }, Force::No).expect("a plan");
        assert_eq!(plan.middle, None);
        assert!(conversation.emptied(&plan).contains(&RowId(5)));
        assert!(conversation.after(&plan, "").tokens < 2_250);
    }

    #[test]
    fn calls_keep_their_results_on_the_same_side() {
        let rows: Vec<Message> =
            [vec![user(4)], (0..60).flat_map(|id| used(id, 150)).collect(), vec![answer(4)]].concat();
        for extra in 0..4 {
            let rows = &rows[..rows.len() - extra];
            let plan = of(rows).plan(Room { tokens: 2_000, rows: 60 }, Force::No).expect("a plan");
            let middle = plan.middle.expect("rows to sum up");
            assert_ne!(rows[middle.start].role, Role::Tool);
            assert_ne!(rows[middle.end].role, Role::Tool);
        }
    }

    #[test]
    fn the_question_being_worked_on_stays_behind_the_summary_of_what_led_to_it() {
        let mut rows: Vec<Message> = (0..10).flat_map(|_| [user(40), answer(40)]).collect();
        rows.push(Message::user("the question", Millis(0)));
        rows.extend((0..40).flat_map(|id| used(id, 300)));
        let conversation = of(&rows);
        let plan = conversation.plan(Room { tokens: 3_000, rows: 60 }, Force::No).expect("a plan");
        let replaced = conversation.replaced(&plan, "s".into()).expect("replaced");
        assert_eq!(replaced.keep, [RowId(1), RowId(2), RowId(3), RowId(21)]);
        assert_eq!(replaced.place, RowId(20));
        assert!(replaced.through > RowId(21));
        assert!(conversation.middle(&plan).iter().all(|row| row.content != "the question"));
    }

    #[test]
    fn an_earlier_summary_is_summed_up_again() {
        let mut rows = vec![user(4), Message::summary("before", Millis(0))];
        rows.extend((0..40).flat_map(|_| [user(400), answer(400)]));
        let conversation = of(&rows);
        let plan = conversation.plan(ROOM, Force::No).expect("a plan");
        assert_eq!(conversation.middle(&plan)[0].content, "before");
    }

    #[test]
    fn when_forced_a_short_conversation_loses_its_outputs_and_then_has_nothing_to_give() {
        let [ask, result] = used(1, 4_000);
        let rows = vec![user(4), ask, result, answer(4), user(4)];
        let conversation = of(&rows);
        let plan = conversation.plan(ROOM, Force::Yes).expect("a plan");
        assert_eq!((conversation.emptied(&plan), plan.middle), (vec![RowId(3)], None));
        let rows = vec![user(40_000)];
        assert_eq!(of(&rows).plan(ROOM, Force::Yes), None);
    }
}
