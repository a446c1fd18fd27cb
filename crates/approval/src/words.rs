//! What people read of a question, and of its end.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use super::{Ask, Choice, Ending, Reply, describe};
use petasos_core::outbox::Button;

/// Characters of a command that are repeated when its question is over.
const REPEATED: usize = 200;
/// A command longer than this is shown with its size, so that a reader notices a client that folds long messages.
const SIZED: usize = 400;

/// The command of an approval request, as [`super::display`] shows it.
#[derive(Debug, Clone, Copy)]
pub struct Subject<'a> {
    pub command: &'a str,
    /// Where it would run.
    pub folder: Option<&'a str>,
}

/// The choices that the person who caused the request may take. The answer is checked again when it comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Offer {
    /// An administrator is asked.
    Every,
    /// Anyone else is asked: choices that last are left out.
    OnlyThisCommand,
}

impl Offer {
    fn includes(self, choice: Choice) -> bool {
        match self {
            Self::Every => true,
            Self::OnlyThisCommand => !choice.lasts(),
        }
    }
}

/// The question as it stands in a chat: the whole command, and how to answer by typing.
#[must_use]
pub fn question(ask: &Ask, subject: Subject, seconds: u64, offer: Offer) -> String {
    let warning = if ask.advised_against { "\nThe second model advises against it." } else { "" };
    let scopes: Vec<_> = ask.choices().into_iter().filter_map(scope).collect();
    let (scopes, remark) = match offer {
        _ if scopes.is_empty() => (String::new(), ""),
        Offer::Every => (format!(" [{}]", scopes.join("|")), ""),
        Offer::OnlyThisCommand => {
            (String::new(), " An administrator may add session or always to allow such commands for longer.")
        }
    };
    format!(
        "⚠️ May I run this command?\n\n```\n{}\n```\n{}{warning}{}\n\nAnswer within {seconds} s: /approve{scopes} or \
         /deny [reason]. From another chat, name it: /approve {}{remark}",
        subject.command,
        describe(&ask.categories),
        remarks(subject),
        ask.id,
    )
}

fn remarks(subject: Subject) -> String {
    let mut remarks = String::new();
    if let Some(folder) = subject.folder {
        remarks.push_str(&format!("\nFolder: `{folder}`"));
    }
    let size = subject.command.chars().count();
    if size > SIZED {
        let lines = subject.command.lines().count();
        remarks.push_str(&format!("\nThe command above is whole: {size} characters, {lines} lines."));
    }
    if subject.command.contains('⟨') {
        remarks.push_str(
            "\n⟨…⟩ stands for characters that cannot be seen, or for a secret value that is not shown; they are part of \
             the command.",
        );
    }
    remarks
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

/// One for each choice that is offered. Empty if the id does not fit behind a button.
#[must_use]
pub fn buttons(ask: &Ask, offer: Offer) -> Vec<Button> {
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
    ask.choices().into_iter().filter(|choice| offer.includes(*choice)).filter_map(button).collect()
}

fn scope(choice: Choice) -> Option<&'static str> {
    match choice {
        Choice::Session | Choice::Always => Some(choice.as_str()),
        Choice::Once | Choice::Deny => None,
    }
}

/// The beginning of a command that was shown whole before.
fn preview(command: &str) -> String {
    let shown: String = command.chars().take(REPEATED).collect();
    match command.chars().nth(REPEATED) {
        Some(_) => format!("{shown}… ({} characters)", command.chars().count()),
        None => shown,
    }
}

#[cfg(test)]
mod tests {
    use core::time::Duration;

    use super::super::Category;
    use super::*;
    use petasos_core::time::Millis;

    fn about(command: &str) -> Subject<'_> {
        Subject { command, folder: None }
    }

    fn ask(category: Category) -> Ask {
        Ask::new("q01234567", Vec::from([category]), Millis(0), Duration::from_secs(60))
    }

    #[test]
    fn a_question_says_what_it_is_about_and_how_to_answer() {
        let text = question(&ask(Category::RecursiveDelete), about("rm -rf ./x"), 60, Offer::Every);
        for phrase in
            ["rm -rf ./x", "Deletes folders", "/approve [session|always]", "/deny", "60 s", "q01234567"]
        {
            assert!(text.contains(phrase), "{phrase:?} is missing in {text}");
        }
        let obscured = question(&ask(Category::Obscured), about("$X"), 60, Offer::Every);
        assert!(!obscured.contains("always"), "what cannot be remembered is not offered: {obscured}");
    }

    #[test]
    fn question_to_a_guest_names_lasting_choices_only_as_an_administrators() {
        let text = question(&ask(Category::RecursiveDelete), about("rm -rf ./x"), 60, Offer::OnlyThisCommand);
        assert!(
            text.contains("/approve or /deny") && text.contains("An administrator may add session"),
            "{text}"
        );
        let obscured = question(&ask(Category::Obscured), about("$X"), 60, Offer::OnlyThisCommand);
        assert!(!obscured.contains("administrator"), "no administrator may allow it for longer: {obscured}");
    }

    #[test]
    fn shows_long_commands_whole_and_repeats_only_their_beginning() {
        let command = format!("echo {}; rm -rf ./x", "x".repeat(900));
        let text = question(&ask(Category::Obscured), about(&command), 60, Offer::Every);
        assert!(text.contains(&format!("```\n{command}\n```")), "{text}");
        assert!(text.contains("is whole: 917 characters, 1 lines"), "{text}");
        let over = outcome(&command, &Ending::TimedOut);
        assert!(over.contains("… (917 characters)") && !over.contains("rm -rf"), "{over}");
    }

    #[test]
    fn names_the_folder_and_explains_what_is_spelled_out() {
        let subject = Subject { command: "rm ⟨U+200B⟩", folder: Some("/srv/x") };
        let text = question(&ask(Category::Obscured), subject, 60, Offer::Every);
        assert!(text.contains("Folder: `/srv/x`") && text.contains("cannot be seen"), "{text}");
    }

    #[test]
    fn every_button_comes_back_as_its_answer() {
        for (category, offer, count) in [
            (Category::Git, Offer::Every, 4),
            (Category::Obscured, Offer::Every, 2),
            (Category::Git, Offer::OnlyThisCommand, 2),
        ] {
            let buttons = buttons(&ask(category), offer);
            let replies: Vec<_> = buttons.iter().filter_map(|button| Reply::decode(&button.data)).collect();
            assert_eq!((buttons.len(), replies.len()), (count, count));
            assert!(replies.iter().all(|reply| reply.id == "q01234567"));
            let lasting = replies.iter().filter(|reply| reply.choice.lasts()).count();
            assert_eq!(lasting, count - 2, "{category:?}, {offer:?}");
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
