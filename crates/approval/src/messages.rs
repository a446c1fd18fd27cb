//! Texts and buttons of approval requests.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use super::{ApprovalOutcome, ApprovalRequest, ButtonData, Choice, describe};
use petasos_core::outbox::Button;

/// Maximum length of the command in the outcome text.
const MAX_PREVIEW_CHARS: usize = 200;
/// Longer commands are shown with their size, because some clients fold long messages.
const SIZE_SHOWN_ABOVE: usize = 400;

/// The command of a request, as formatted by [`super::display`].
#[derive(Debug, Clone, Copy)]
pub struct CommandSummary<'a> {
    pub command: &'a str,
    pub folder: Option<&'a str>,
}

/// The choices offered to the approver. The answer is checked again when it arrives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OfferedChoices {
    AllChoices,
    /// For other users: no lasting choices.
    OnlyThisCommand,
}

impl OfferedChoices {
    fn includes(self, choice: Choice) -> bool {
        match self {
            Self::AllChoices => true,
            Self::OnlyThisCommand => !choice.lasts(),
        }
    }
}

/// How the approver can answer in the chat of the request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AnswerMethod {
    Buttons,
    Commands,
}

/// The text of a request: the whole command and how to answer.
#[must_use]
pub fn question_text(
    request: &ApprovalRequest,
    subject: CommandSummary,
    seconds: u64,
    offer: OfferedChoices,
    method: AnswerMethod,
) -> String {
    let warning = if request.advised_against { "\nThe second model advises against it." } else { "" };
    format!(
        "⚠️ May I run this command?\n\n```\n{}\n```\n{}{warning}{}\n\nAnswer within {seconds} s{}. From another \
         chat: /approve {}{}",
        subject.command,
        describe(&request.categories),
        remarks(subject),
        how_to_answer(request, offer, method),
        request.id,
        administrator_hint(request, offer),
    )
}

fn how_to_answer(request: &ApprovalRequest, offer: OfferedChoices, method: AnswerMethod) -> String {
    let scopes = lasting_scopes(request);
    match (method, offer) {
        (AnswerMethod::Buttons, _) => " with a button".into(),
        (AnswerMethod::Commands, OfferedChoices::AllChoices) if !scopes.is_empty() => {
            format!(": /approve [{}] or /deny [reason]", scopes.join("|"))
        }
        (AnswerMethod::Commands, _) => ": /approve or /deny [reason]".into(),
    }
}

fn administrator_hint(request: &ApprovalRequest, offer: OfferedChoices) -> &'static str {
    match offer {
        OfferedChoices::OnlyThisCommand if !lasting_scopes(request).is_empty() => {
            "\nAn administrator can allow such commands for longer with /approve session or /approve always."
        }
        OfferedChoices::OnlyThisCommand | OfferedChoices::AllChoices => "",
    }
}

fn lasting_scopes(request: &ApprovalRequest) -> Vec<&'static str> {
    request.choices().into_iter().filter_map(scope).collect()
}

fn remarks(subject: CommandSummary) -> String {
    let mut remarks = String::new();
    if let Some(folder) = subject.folder {
        remarks.push_str(&format!("\nFolder: `{folder}`"));
    }
    let size = subject.command.chars().count();
    if size > SIZE_SHOWN_ABOVE {
        let lines = subject.command.lines().count();
        let noun = if lines == 1 { "line" } else { "lines" };
        remarks.push_str(&format!("\nThe command is shown in full ({size} characters, {lines} {noun})."));
    }
    if subject.command.contains('⟨') {
        remarks.push_str(
            "\n⟨…⟩ stands for characters that cannot be seen, or for a secret value that is not shown; they are part of \
             the command.",
        );
    }
    remarks
}

/// The text that replaces the request afterwards.
#[must_use]
pub fn outcome_text(command: &str, outcome: &ApprovalOutcome) -> String {
    let what = match outcome {
        ApprovalOutcome::Allowed { choice: Choice::Once | Choice::Deny } => "✅ Allowed once.".to_string(),
        ApprovalOutcome::Allowed { choice: Choice::Session } => "✅ Allowed for this session.".to_string(),
        ApprovalOutcome::Allowed { choice: Choice::Always } => "✅ Allowed from now on.".to_string(),
        ApprovalOutcome::Denied { reason: None } => "🚫 Denied. The command was not run.".to_string(),
        ApprovalOutcome::Denied { reason: Some(reason) } => {
            format!("🚫 Denied ({reason}). The command was not run.")
        }
        ApprovalOutcome::TimedOut => "⌛ No answer in time. The command was not run.".to_string(),
        ApprovalOutcome::Lost => {
            "♻️ The request was lost in a restart of the gateway. The command was not run.".to_string()
        }
        ApprovalOutcome::Answered { text } => format!("💬 {text}"),
    };
    format!("{what}\n\n```\n{}\n```", preview(command))
}

/// One button per offered choice; empty if the id does not fit.
#[must_use]
pub fn buttons(request: &ApprovalRequest, offer: OfferedChoices) -> Vec<Button> {
    let button = |choice: Choice| {
        let data = ButtonData { choice, id: request.id.clone() }.encode()?;
        let label = match choice {
            Choice::Once => "✅ Once",
            Choice::Session => "This session",
            Choice::Always => "Always",
            Choice::Deny => "🚫 Deny",
        };
        Some(Button { label: label.to_string(), data })
    };
    request.choices().into_iter().filter(|choice| offer.includes(*choice)).filter_map(button).collect()
}

fn scope(choice: Choice) -> Option<&'static str> {
    match choice {
        Choice::Session | Choice::Always => Some(choice.as_str()),
        Choice::Once | Choice::Deny => None,
    }
}

fn preview(command: &str) -> String {
    let shown: String = command.chars().take(MAX_PREVIEW_CHARS).collect();
    match command.chars().nth(MAX_PREVIEW_CHARS) {
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

    fn about(command: &str) -> CommandSummary<'_> {
        CommandSummary { command, folder: None }
    }

    fn text_of(category: Category, command: &str, offer: OfferedChoices, method: AnswerMethod) -> String {
        question_text(&request(category), about(command), 60, offer, method)
    }

    fn request(category: Category) -> ApprovalRequest {
        ApprovalRequest::new("q01234567", Vec::from([category]), Millis(0), Duration::from_secs(60))
    }

    #[test]
    fn question_contains_the_command_and_how_to_answer() {
        let text = text_of(
            Category::RecursiveDelete,
            "rm -rf ./x",
            OfferedChoices::AllChoices,
            AnswerMethod::Commands,
        );
        for phrase in
            ["rm -rf ./x", "Deletes folders", "/approve [session|always]", "/deny", "60 s", "q01234567"]
        {
            assert!(text.contains(phrase), "{phrase:?} is missing in {text}");
        }
        let obscured = text_of(Category::Obscured, "$X", OfferedChoices::AllChoices, AnswerMethod::Commands);
        assert!(!obscured.contains("always"), "an approval that cannot last is not offered: {obscured}");
    }

    #[test]
    fn question_with_buttons_lists_no_commands_for_its_chat() {
        for offer in [OfferedChoices::AllChoices, OfferedChoices::OnlyThisCommand] {
            let text = text_of(Category::RecursiveDelete, "rm -rf ./x", offer, AnswerMethod::Buttons);
            assert!(
                text.contains("within 60 s with a button. From another chat: /approve q01234567"),
                "{text}"
            );
            assert!(!text.contains("/deny") && !text.contains("[session|always]"), "{text}");
        }
    }

    #[test]
    fn offers_lasting_choices_to_administrators_only() {
        let text = text_of(
            Category::RecursiveDelete,
            "rm -rf ./x",
            OfferedChoices::OnlyThisCommand,
            AnswerMethod::Commands,
        );
        assert!(text.contains("/approve or /deny") && text.contains("An administrator can allow"), "{text}");
        let obscured =
            text_of(Category::Obscured, "$X", OfferedChoices::OnlyThisCommand, AnswerMethod::Commands);
        assert!(!obscured.contains("administrator"), "no administrator may allow it for longer: {obscured}");
    }

    #[test]
    fn shows_long_commands_in_full_and_then_shortened() {
        let command = format!("echo {}; rm -rf ./x", "x".repeat(900));
        let text = text_of(Category::Obscured, &command, OfferedChoices::AllChoices, AnswerMethod::Buttons);
        assert!(text.contains(&format!("```\n{command}\n```")), "{text}");
        assert!(text.contains("in full (917 characters, 1 line)"), "{text}");
        let over = outcome_text(&command, &ApprovalOutcome::TimedOut);
        assert!(over.contains("… (917 characters)") && !over.contains("rm -rf"), "{over}");
    }

    #[test]
    fn names_the_folder_and_explains_escaped_characters() {
        let subject = CommandSummary { command: "rm ⟨U+200B⟩", folder: Some("/srv/x") };
        let text = question_text(
            &request(Category::Obscured),
            subject,
            60,
            OfferedChoices::AllChoices,
            AnswerMethod::Buttons,
        );
        assert!(text.contains("Folder: `/srv/x`") && text.contains("cannot be seen"), "{text}");
    }

    #[test]
    fn every_button_decodes_to_its_choice() {
        for (category, offer, count) in [
            (Category::Git, OfferedChoices::AllChoices, 4),
            (Category::Obscured, OfferedChoices::AllChoices, 2),
            (Category::Git, OfferedChoices::OnlyThisCommand, 2),
        ] {
            let buttons = buttons(&request(category), offer);
            let replies: Vec<_> =
                buttons.iter().filter_map(|button| ButtonData::decode(&button.data)).collect();
            assert_eq!((buttons.len(), replies.len()), (count, count));
            assert!(replies.iter().all(|reply| reply.id == "q01234567"));
            let lasting = replies.iter().filter(|reply| reply.choice.lasts()).count();
            assert_eq!(lasting, count - 2, "{category:?}, {offer:?}");
        }
    }

    #[test]
    fn every_outcome_states_whether_the_command_ran() {
        let denied =
            |reason: Option<&str>| ApprovalOutcome::Denied { reason: reason.map(ToString::to_string) };
        for (outcome, want) in [
            (ApprovalOutcome::Allowed { choice: Choice::Session }, "for this session"),
            (denied(None), "not run"),
            (denied(Some("use trash")), "use trash"),
            (ApprovalOutcome::TimedOut, "in time"),
            (ApprovalOutcome::Lost, "restart"),
        ] {
            let text = outcome_text("rm -rf ./x", &outcome);
            assert!(text.contains(want) && text.contains("rm -rf ./x"), "{text}");
        }
    }
}
