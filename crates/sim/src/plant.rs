//! Bugs that are planted to show that the simulation can fail.
//!
//! Each is a plausible mistake in the code that turns decisions into commits and effects: a switch at the exact place
//! where the shipped code does it right.

use petasos_gateway::simulation::Planted;

use crate::case::Scenario;
use crate::promise::Promise;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bug {
    /// The platform's cursor is committed by itself, before the messages.
    CursorFirst,
    /// A turn ends without the messages that were merged into it.
    ForgetsMerged,
    /// The end of the turn is one commit, the answer that is owed another.
    AnswerAfterEnd,
    /// After a crash every tool whose result is missing is run again.
    RepeatsTools,
    /// What an abandoned call brings is given to the turn that runs now.
    HearsOldWork,
    /// A send without an answer is repeated as if it had not happened.
    UnmarkedCopy,
    /// A preview is shown before the intent is stored.
    PreviewFirst,
    /// The way back is the chat that wrote last, whoever asked.
    CurrentChat,
    /// Whoever was held when a drain is taken back is forgotten.
    ForgetsHeld,
    /// A link gives up after three attempts.
    GivesUpLink,
    /// A completion counts as delivered before it is a message.
    DeliveredFirst,
    /// The queue of a session has no end.
    EndlessQueue,
    /// The connector hears that we have something as soon as we have read it.
    AcksFirst,
    /// The connector lets us go idle, and goes on as before.
    GrantsWithoutFlip,
    /// What the connector has sent it forgets, before we have it.
    DeletesOnDelivery,
    /// The connector counts a message as heard before it is in its queue.
    CursorBeforeQueue,
    /// Whoever asks a connector again under the same number is served again.
    RepeatsRequests,
    /// What the store refused counts as kept.
    IgnoresRefusals,
    /// Whoever can keep nothing stays connected, until the connector blames its messages.
    StaysConnected,
    /// The run of a job is one commit, its next moment another.
    RunsAgain,
    /// Suspects are held, and nothing resumes them.
    ForgetsSuspects,
    /// Messages that no tool result took along are dropped at the end of the turn.
    LosesSteering,
    /// Turns that were interrupted are not resumed when their platform is connected.
    ForgetsCandidates,
    /// The old preview stays beside the new message that takes its place.
    LeavesPreview,
    /// The answer of a job is enqueued in one commit, and marked as told in another.
    TellsTwice,
    /// The page hears that a message is kept before it is.
    AcksBeforeCommit,
    /// Turns of people begin during a drain.
    BeginsWhileDraining,
    /// A step that the store refused counts as stored.
    RefusedStep,
    /// A question that timed out counts as consent.
    SilenceIsConsent,
    /// A summary hides the rows behind those that it stands for.
    HidesTooMuch,
    /// After a restart a message is let in without its files.
    ForgetsFiles,
    /// A run is one commit, the name of its request another.
    RepeatsRuns,
}

impl Bug {
    pub const ALL: [Self; 32] = [
        Self::CursorFirst,
        Self::ForgetsMerged,
        Self::AnswerAfterEnd,
        Self::RepeatsTools,
        Self::HearsOldWork,
        Self::UnmarkedCopy,
        Self::PreviewFirst,
        Self::CurrentChat,
        Self::ForgetsHeld,
        Self::GivesUpLink,
        Self::DeliveredFirst,
        Self::EndlessQueue,
        Self::AcksFirst,
        Self::GrantsWithoutFlip,
        Self::DeletesOnDelivery,
        Self::CursorBeforeQueue,
        Self::RepeatsRequests,
        Self::IgnoresRefusals,
        Self::StaysConnected,
        Self::RunsAgain,
        Self::ForgetsSuspects,
        Self::LosesSteering,
        Self::ForgetsCandidates,
        Self::LeavesPreview,
        Self::TellsTwice,
        Self::AcksBeforeCommit,
        Self::BeginsWhileDraining,
        Self::RefusedStep,
        Self::SilenceIsConsent,
        Self::HidesTooMuch,
        Self::ForgetsFiles,
        Self::RepeatsRuns,
    ];

    /// The promises that it breaks; it must be found as one of them.
    pub const fn breaks(self) -> &'static [Promise] {
        match self {
            Self::CursorFirst
            | Self::AcksFirst
            | Self::GrantsWithoutFlip
            | Self::DeletesOnDelivery
            | Self::CursorBeforeQueue
            | Self::AcksBeforeCommit
            | Self::IgnoresRefusals => &[Promise::G1],
            Self::ForgetsMerged
            | Self::StaysConnected
            | Self::ForgetsSuspects
            | Self::LosesSteering
            | Self::HidesTooMuch
            | Self::ForgetsFiles
            | Self::ForgetsCandidates => &[Promise::G2],
            // What it began is not on disk, and its answer is in no outbox.
            Self::RefusedStep => &[Promise::G2, Promise::G3, Promise::G4],
            Self::BeginsWhileDraining => &[Promise::G6],
            Self::AnswerAfterEnd => &[Promise::G2, Promise::G4],
            Self::RepeatsTools | Self::RunsAgain | Self::RepeatsRuns => &[Promise::G3],
            // The wrong answer counts as one: nobody sees the right one.
            Self::HearsOldWork => &[Promise::G2, Promise::G3],
            Self::UnmarkedCopy
            | Self::PreviewFirst
            | Self::RepeatsRequests
            | Self::LeavesPreview
            | Self::TellsTwice => &[Promise::G4],
            Self::CurrentChat => &[Promise::G5],
            Self::ForgetsHeld => &[Promise::G2, Promise::G6],
            Self::GivesUpLink => &[Promise::G7],
            Self::DeliveredFirst => &[Promise::G8],
            Self::EndlessQueue => &[Promise::G9],
            Self::SilenceIsConsent => &[Promise::Consent],
        }
    }

    /// The scenario that is about it.
    pub const fn shows_in(self) -> Scenario {
        match self {
            Self::CursorFirst
            | Self::AnswerAfterEnd
            | Self::RepeatsTools
            | Self::ForgetsSuspects
            | Self::ForgetsCandidates
            | Self::AcksBeforeCommit => Scenario::Crash,
            Self::ForgetsMerged | Self::HearsOldWork | Self::CurrentChat | Self::LosesSteering => {
                Scenario::Conversation
            }
            Self::UnmarkedCopy | Self::PreviewFirst | Self::GivesUpLink | Self::LeavesPreview => {
                Scenario::Flaky
            }
            Self::ForgetsHeld | Self::BeginsWhileDraining => Scenario::Drain,
            Self::DeliveredFirst => Scenario::Completions,
            Self::EndlessQueue => Scenario::Flood,
            Self::AcksFirst
            | Self::GrantsWithoutFlip
            | Self::DeletesOnDelivery
            | Self::CursorBeforeQueue
            | Self::RepeatsRequests => Scenario::Relay,
            Self::IgnoresRefusals | Self::StaysConnected | Self::RefusedStep => Scenario::Disk,
            Self::RunsAgain | Self::TellsTwice => Scenario::Jobs,
            Self::SilenceIsConsent => Scenario::Approvals,
            Self::HidesTooMuch => Scenario::Compaction,
            Self::ForgetsFiles => Scenario::Media,
            Self::RepeatsRuns => Scenario::Runs,
        }
    }

    /// The switch of it in the shipped code.
    pub(crate) const fn planted(self) -> Planted {
        match self {
            Self::CursorFirst => Planted::CursorFirst,
            Self::ForgetsMerged => Planted::ForgetsMerged,
            Self::AnswerAfterEnd => Planted::AnswerAfterEnd,
            Self::RepeatsTools => Planted::RepeatsTools,
            Self::HearsOldWork => Planted::HearsOldWork,
            Self::UnmarkedCopy => Planted::UnmarkedCopy,
            Self::PreviewFirst => Planted::PreviewFirst,
            Self::CurrentChat => Planted::CurrentChat,
            Self::ForgetsHeld => Planted::ForgetsHeld,
            Self::GivesUpLink => Planted::GivesUpLink,
            Self::DeliveredFirst => Planted::DeliveredFirst,
            Self::EndlessQueue => Planted::EndlessQueue,
            Self::IgnoresRefusals => Planted::IgnoresRefusals,
            Self::RunsAgain => Planted::RunsAgain,
            Self::ForgetsSuspects => Planted::ForgetsSuspects,
            Self::LosesSteering => Planted::LosesSteering,
            Self::ForgetsCandidates => Planted::ForgetsCandidates,
            Self::LeavesPreview => Planted::LeavesPreview,
            Self::TellsTwice => Planted::TellsTwice,
            Self::AcksBeforeCommit => Planted::AcksBeforeCommit,
            Self::BeginsWhileDraining => Planted::BeginsWhileDraining,
            Self::RefusedStep => Planted::RefusedStep,
            Self::AcksFirst => Planted::AcksFirst,
            Self::GrantsWithoutFlip => Planted::GrantsWithoutFlip,
            Self::DeletesOnDelivery => Planted::DeletesOnDelivery,
            Self::CursorBeforeQueue => Planted::CursorBeforeQueue,
            Self::RepeatsRequests => Planted::RepeatsRequests,
            Self::StaysConnected => Planted::StaysConnected,
            Self::SilenceIsConsent => Planted::SilenceIsConsent,
            Self::HidesTooMuch => Planted::HidesTooMuch,
            Self::ForgetsFiles => Planted::ForgetsFiles,
            Self::RepeatsRuns => Planted::RepeatsRuns,
        }
    }
}
