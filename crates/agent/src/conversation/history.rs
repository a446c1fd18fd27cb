//! Fits a conversation into a context window by dropping its oldest exchanges. Pure.

use std::borrow::Cow;

use petasos_core::transcript::{CLEARED_TOOL_OUTPUT, Message, Role};

const PICTURE: usize = 1500;

/// Estimated tokens: four characters per token, plus a fixed cost per row.
pub(crate) fn estimate_tokens(message: &Message) -> usize {
    let calls: usize =
        message.tool_calls.iter().map(|call| call.name.len() + call.arguments.len() + 16).sum();
    (message.content.len() + calls) / 4 + 4 + message.pictures.len() * PICTURE
}

/// Drops the oldest exchanges so that the conversation fits into `budget` tokens; a note in the first row
/// says so. An exchange starts with a user message and is dropped whole, so a tool call never loses its
/// result. If the last exchange alone is too large, its tool outputs are emptied, oldest first.
///
/// The cut moves in steps of a quarter of the budget, so that prompt caches stay valid in between.
pub(crate) fn fit_to_budget(messages: &[Message], budget: usize) -> Cow<'_, [Message]> {
    let sizes: Vec<usize> = messages.iter().map(estimate_tokens).collect();
    let total: usize = sizes.iter().sum();
    if total <= budget {
        return Cow::Borrowed(messages);
    }
    let quarter = (budget / 4).max(1);
    let excess = (total - budget).div_ceil(quarter) * quarter;
    let start = first_kept(messages, &sizes, excess);
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

/// Index of the first row to keep when at least `excess` tokens must go; the last exchange always stays.
fn first_kept(messages: &[Message], sizes: &[usize], excess: usize) -> usize {
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
    let mut total: usize = kept.iter().map(estimate_tokens).sum();
    for message in kept.iter_mut().filter(|message| message.role == Role::Tool) {
        if total <= budget {
            return;
        }
        if message.content.len() > CLEARED_TOOL_OUTPUT.len() {
            total -= estimate_tokens(message);
            message.content = CLEARED_TOOL_OUTPUT.to_owned();
            total += estimate_tokens(message);
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
            Message::tool_request("", vec![call.clone()], Millis(0)),
            Message::tool(&call, "x".repeat(size), EffectState::Known, Millis(0)),
            Message::assistant(format!("answer {number}"), Millis(0)),
        ]
    }

    fn conversation(exchanges: usize) -> Vec<Message> {
        (0..exchanges).flat_map(|number| exchange(number, 360)).collect()
    }

    fn total(messages: &[Message]) -> usize {
        messages.iter().map(estimate_tokens).sum()
    }

    #[test]
    fn keeps_conversation_that_fits() {
        let whole = conversation(3);
        assert_eq!(fit_to_budget(&whole, 10_000), whole);
    }

    #[test]
    fn drops_oldest_exchanges_whole_and_labels_the_cut() {
        let rows = conversation(20);
        let kept = fit_to_budget(&rows, 1000);
        assert!(total(&kept) <= 1000);
        assert_eq!(kept.len() % 4, 0);
        assert_eq!(kept[0].role, Role::User);
        assert!(kept[0].content.contains("left out") && kept[0].content.contains("question"));
        assert_eq!(kept.last().unwrap().content, "answer 19");
    }

    #[test]
    fn cut_stays_in_place_while_conversation_grows_a_little() {
        let starts: Vec<usize> =
            (20..26).map(|n| n * 4 - fit_to_budget(&conversation(n), 2000).len()).collect();
        let mut distinct = starts.clone();
        distinct.dedup();
        assert!(distinct.len() <= 3, "{starts:?}");
    }

    #[test]
    fn single_large_exchange_loses_outputs_but_no_rows() {
        let mut rows = exchange(0, 8000);
        rows.extend(exchange(1, 8000).into_iter().skip(1));
        let kept = fit_to_budget(&rows, 2500);
        assert_eq!(kept.len(), rows.len());
        assert_eq!(kept[2].content, CLEARED_TOOL_OUTPUT);
        assert_eq!(kept[5].content.len(), 8000);
    }
}
