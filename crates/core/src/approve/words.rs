//! What people read of a question, and of its end.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use super::{Ask, Choice, Ending, Reply, describe};
use crate::outbox::Button;

/// Characters of a command that are shown.
const SHOWN: usize = 200;

/// The question as it stands in a chat. `command`: without secrets. Whatever the platform, it can be answered by typing.
#[must_use]
pub fn question(ask: &Ask, command: &str, seconds: u64) -> String {
    let warning = if ask.advised_against { "\nThe second model advises against it." } else { "" };
    let scopes: Vec<_> = ask.choices().into_iter().filter_map(scope).collect();
    let scopes = if scopes.is_empty() { String::new() } else { format!(" [{}]", scopes.join("|")) };
    format!(
        "⚠️ May I run this command?\n\n```\n{}\n```\n{}{warning}\n\nAnswer within {seconds} s: /approve{scopes} or \
         /deny [reason]. From another chat, name it: /approve {}",
        preview(command),
        describe(&ask.categories),
        ask.id,
    )
}

/// What stands in its place when it is over.
#[must_use]
pub fn outcome(command: &str, ending: &Ending) -> String {
    let what = match ending {
        Ending::Allowed { choice: Choice::Once | Choice::Deny } => "✅ Allowed once.".to_string(),
        Ending::Allowed { choice: Choice::Session } => "✅ Allowed for this session.".to_string(),
        Ending::Allowed { choice: Choice::Always } => "✅ Allowed from now on.".to_string(),
        Ending::Denied { reason: None } => "🚫 Denied. It was not run.".to_string(),
        Ending::Denied { reason: Some(reason) } => format!("🚫 Denied ({reason}). It was not run."),
        Ending::TimedOut => "⌛ Nobody answered in time. It was not run.".to_string(),
        Ending::Lost => "♻️ The question was lost in a restart of the gateway. It was not run.".to_string(),
        Ending::Said { text } => format!("💬 {text}"),
    };
    format!("{what}\n\n```\n{}\n```", preview(command))
}

/// One for each choice. Empty if the id does not fit behind a button.
#[must_use]
pub fn buttons(ask: &Ask) -> Vec<Button> {
    let button = |choice: Choice| {
        let data = Reply { choice, id: ask.id.clone() }.encode()?;
        let label = match choice {
            Choice::Once => "✅ Once",
            Choice::Session => "This session",
            Choice::Always => "Always",
            Choice::Deny => "🚫 Deny",
        };
        Some(Button { label: label.to_string(), data })
    };
    ask.choices().into_iter().filter_map(button).collect()
}

fn scope(choice: Choice) -> Option<&'static str> {
    match choice {
        Choice::Session | Choice::Always => Some(choice.as_str()),
        Choice::Once | Choice::Deny => None,
    }
}

/// The beginning of a command, in a form that cannot leave its frame.
fn preview(command: &str) -> String {
    let safe = command.replace("```", "'''");
    let shown: String = safe.chars().filter(|it| *it == '\n' || !it.is_control()).take(SHOWN).collect();
    match safe.chars().nth(SHOWN) {
        Some(_) => format!("{shown}… ({} characters)", safe.chars().count()),
        None => shown,
    }
}

#[cfg(test)]
mod tests {
    use core::time::Duration;

    use super::super::Category;
    use super::*;
    use crate::time::Millis;

    fn ask(category: Category) -> Ask {
        Ask::new("q01234567", Vec::from([category]), Millis(0), Duration::from_secs(60))
    }

    #[test]
    fn a_question_says_what_it_is_about_and_how_to_answer() {
        let text = question(&ask(Category::RecursiveDelete), "rm -rf ./x", 60);
        for phrase in
            ["rm -rf ./x", "Deletes folders", "/approve [session|always]", "/deny", "60 s", "q01234567"]
        {
            assert!(text.contains(phrase), "{phrase:?} is missing in {text}");
        }
        let obscured = question(&ask(Category::Obscured), "$X", 60);
        assert!(!obscured.contains("always"), "what cannot be remembered is not offered: {obscured}");
    }

    #[test]
    fn a_long_or_hostile_command_stays_in_its_frame() {
        let text = question(&ask(Category::Obscured), &format!("echo ```\u{7}{}", "x".repeat(900)), 60);
        assert_eq!(text.matches("```").count(), 2, "{text}");
        assert!(text.contains("… (909 characters)") && !text.contains('\u{7}'), "{text}");
    }

    #[test]
    fn every_button_comes_back_as_its_answer() {
        for (category, count) in [(Category::Git, 4), (Category::Obscured, 2)] {
            let buttons = buttons(&ask(category));
            let replies: Vec<_> = buttons.iter().filter_map(|button| Reply::decode(&button.data)).collect();
            assert_eq!((buttons.len(), replies.len()), (count, count));
            assert!(replies.iter().all(|reply| reply.id == "q01234567"));
        }
    }

    #[test]
    fn every_end_says_whether_it_ran() {
        let denied = |reason: Option<&str>| Ending::Denied { reason: reason.map(ToString::to_string) };
        for (ending, want) in [
            (Ending::Allowed { choice: Choice::Session }, "for this session"),
            (denied(None), "not run"),
            (denied(Some("use trash")), "use trash"),
            (Ending::TimedOut, "in time"),
            (Ending::Lost, "restart"),
        ] {
            let text = outcome("rm -rf ./x", &ending);
            assert!(text.contains(want) && text.contains("rm -rf ./x"), "{text}");
        }
    }
}
