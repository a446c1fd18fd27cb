//! Making a conversation fit into a model's window. Pure.

use std::borrow::Cow;

use petasos_core::transcript::{EMPTIED, Message, Role};

/// What a picture costs at most providers.
const PICTURE: usize = 1500;

/// A rough number of tokens: four characters each, and a little for every row.
pub fn estimate(message: &Message) -> usize {
    let calls: usize =
        message.tool_calls.iter().map(|call| call.name.len() + call.arguments.len() + 16).sum();
    (message.content.len() + calls) / 4 + 4 + message.pictures.len() * PICTURE
}

/// The conversation without its oldest exchanges, so that it fits into `budget` tokens; a note in its
/// first row says that something is missing. An exchange starts with a user's words and is dropped whole,
/// so a tool call never loses its result. If the last exchange alone is too large, its tool outputs are
/// emptied, oldest first.
///
/// The cut moves in steps of a quarter of the budget: while it stays, prompt caches hold.
pub fn fit(messages: &[Message], budget: usize) -> Cow<'_, [Message]> {
    let sizes: Vec<usize> = messages.iter().map(estimate).collect();
    let total: usize = sizes.iter().sum();
    if total <= budget {
        return Cow::Borrowed(messages);
    }
    let quarter = (budget / 4).max(1);
    let excess = (total - budget).div_ceil(quarter) * quarter;
    let start = cut(messages, &sizes, excess);
    let mut kept = messages[start..].to_vec();
    if start > 0
        && let Some(first) = kept.first_mut()
    {
        first.content = format!(
            "(Earlier parts of this conversation, {start} entries, were left out.)\n\n{}",
            first.content
        );
    }
    empty_outputs(&mut kept, budget);
    Cow::Owned(kept)
}

/// The first exchange to keep when at least `excess` must go; the last exchange always stays.
fn cut(messages: &[Message], sizes: &[usize], excess: usize) -> usize {
    let mut dropped = 0;
    let mut start = 0;
    for (index, message) in messages.iter().enumerate() {
        if message.role == Role::User {
            start = index;
            if dropped >= excess {
                break;
            }
        }
        dropped += sizes[index];
    }
    start
}

fn empty_outputs(kept: &mut [Message], budget: usize) {
    let mut total: usize = kept.iter().map(estimate).sum();
    for message in kept.iter_mut().filter(|message| message.role == Role::Tool) {
        if total <= budget {
            return;
        }
        if message.content.len() > EMPTIED.len() {
            total -= estimate(message);
            message.content = EMPTIED.to_owned();
            total += estimate(message);
        }
    }
}

#[cfg(test)]
mod tests {
    use petasos_core::Millis;
    use petasos_core::transcript::{EffectState, ToolCall};

    use super::*;

    fn exchange(number: usize, size: usize) -> Vec<Message> {
        let call = ToolCall { id: format!("c{number}"), name: "clock".into(), arguments: "{}".into() };
        vec![
            Message::user(format!("question {number}"), Millis(0)),
            Message::asking("", vec![call.clone()], Millis(0)),
            Message::tool(&call, "x".repeat(size), EffectState::Known, Millis(0)),
            Message::assistant(format!("answer {number}"), Millis(0)),
        ]
    }

    fn conversation(exchanges: usize) -> Vec<Message> {
        (0..exchanges).flat_map(|number| exchange(number, 360)).collect()
    }

    fn total(messages: &[Message]) -> usize {
        messages.iter().map(estimate).sum()
    }

    #[test]
    fn what_fits_is_left_alone() {
        let whole = conversation(3);
        assert_eq!(fit(&whole, 10_000), whole);
    }

    #[test]
    fn oldest_exchanges_go_whole_and_the_cut_is_labelled() {
        let rows = conversation(20);
        let kept = fit(&rows, 1000);
        assert!(total(&kept) <= 1000);
        assert_eq!(kept.len() % 4, 0);
        assert_eq!(kept[0].role, Role::User);
        assert!(kept[0].content.contains("left out") && kept[0].content.contains("question"));
        assert_eq!(kept.last().unwrap().content, "answer 19");
    }

    #[test]
    fn the_cut_stays_in_place_while_the_conversation_grows_a_little() {
        let starts: Vec<usize> = (20..26).map(|n| n * 4 - fit(&conversation(n), 2000).len()).collect();
        let mut distinct = starts.clone();
        distinct.dedup();
        assert!(distinct.len() <= 3, "{starts:?}");
    }

    #[test]
    fn a_single_large_exchange_loses_outputs_but_no_rows() {
        let mut rows = exchange(0, 8000);
        rows.extend(exchange(1, 8000).into_iter().skip(1));
        let kept = fit(&rows, 2500);
        assert_eq!(kept.len(), rows.len());
        assert_eq!(kept[2].content, EMPTIED);
        assert_eq!(kept[5].content.len(), 8000);
    }
}
