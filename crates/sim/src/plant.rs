//! Bugs that are planted to show that the simulation can fail.
//!
//! Each is a plausible mistake in the code that turns decisions into commits and effects: a switch at the exact place
//! where the shipped code does it right.

use petasos_gateway::simulation::PlantedBug;

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
    /// The result of an abandoned call is applied to the current turn.
    AcceptsStaleResult,
    /// A send without an answer is repeated as if it had not happened.
    UnmarkedCopy,
    /// A preview is shown before the intent is stored.
    PreviewFirst,
    /// The way back is the chat that wrote last, whoever asked.
    CurrentChat,
    /// Messages held during a drain are dropped when it is cancelled.
    DropsHeldQueue,
    /// A link gives up after three attempts.
    AbandonsLink,
    /// A completion counts as delivered before it is a message.
    DeliveredFirst,
    /// The queue of a session has no end.
    EndlessQueue,
    /// The connector hears that we have something as soon as we have read it.
    AcksFirst,
    /// The connector lets us go idle, and goes on as before.
    GrantsWithoutFlip,
    /// The connector deletes entries when it sends them, before the acknowledgement.
    DeletesOnDelivery,
    /// The connector counts a message as heard before it is in its queue.
    CursorBeforeQueue,
    /// The connector repeats a request that has the same id.
    RepeatsRequests,
    /// A message that the store refused counts as stored.
    IgnoresRefusals,
    /// A gateway that can store nothing stays connected, until the connector dead-letters its messages.
    StaysConnected,
    /// The run of a job is one commit, its next moment another.
    RunsJobTwice,
    /// Suspects are held, and nothing resumes them.
    ForgetsSuspects,
    /// Messages that no tool result took along are dropped at the end of the turn.
    LosesSteering,
    /// Turns that were interrupted are not resumed when their platform is connected.
    ForgetsCandidates,
    /// The old preview stays beside the new message that takes its place.
    LeavesPreview,
    /// The answer of a job is enqueued in one commit, and marked as told in another.
    ReportsTwice,
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
    /// Commits are written without a sync.
    UnsyncedCommits,
    /// A file of the home that must survive a power cut is replaced without a sync.
    UnsyncedFiles,
    /// A downloaded file is stored without a sync.
    UnsyncedDownloads,
}

impl Bug {
    pub const ALL: [Self; 35] = [
        Self::CursorFirst,
        Self::ForgetsMerged,
        Self::AnswerAfterEnd,
        Self::RepeatsTools,
        Self::AcceptsStaleResult,
        Self::UnmarkedCopy,
        Self::PreviewFirst,
        Self::CurrentChat,
        Self::DropsHeldQueue,
        Self::AbandonsLink,
        Self::DeliveredFirst,
        Self::EndlessQueue,
        Self::AcksFirst,
        Self::GrantsWithoutFlip,
        Self::DeletesOnDelivery,
        Self::CursorBeforeQueue,
        Self::RepeatsRequests,
        Self::IgnoresRefusals,
        Self::StaysConnected,
        Self::RunsJobTwice,
        Self::ForgetsSuspects,
        Self::LosesSteering,
        Self::ForgetsCandidates,
        Self::LeavesPreview,
        Self::ReportsTwice,
        Self::AcksBeforeCommit,
        Self::BeginsWhileDraining,
        Self::RefusedStep,
        Self::SilenceIsConsent,
        Self::HidesTooMuch,
        Self::ForgetsFiles,
        Self::RepeatsRuns,
        Self::UnsyncedCommits,
        Self::UnsyncedFiles,
        Self::UnsyncedDownloads,
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
            | Self::IgnoresRefusals
            | Self::UnsyncedCommits => &[Promise::G1],
            // The file has other content, or cannot be found.
            Self::UnsyncedDownloads => &[Promise::G1, Promise::G2],
            Self::ForgetsMerged
            | Self::StaysConnected
            | Self::ForgetsSuspects
            | Self::LosesSteering
            | Self::HidesTooMuch
            | Self::ForgetsFiles
            | Self::ForgetsCandidates => &[Promise::G2],
            // Its start is not on disk, its answer is in no outbox, or the report that it answers is not settled.
            Self::RefusedStep => &[Promise::G2, Promise::G3, Promise::G4, Promise::G8],
            Self::BeginsWhileDraining | Self::UnsyncedFiles => &[Promise::G6],
            Self::AnswerAfterEnd => &[Promise::G2, Promise::G4],
            Self::RepeatsTools | Self::RunsJobTwice | Self::RepeatsRuns => &[Promise::G3],
            // The wrong answer counts as one: nobody sees the right one.
            Self::AcceptsStaleResult => &[Promise::G2, Promise::G3],
            Self::UnmarkedCopy
            | Self::PreviewFirst
            | Self::RepeatsRequests
            | Self::LeavesPreview
            | Self::ReportsTwice => &[Promise::G4],
            Self::CurrentChat => &[Promise::G5],
            Self::DropsHeldQueue => &[Promise::G2, Promise::G6],
            Self::AbandonsLink => &[Promise::G7],
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
            | Self::AcksBeforeCommit
            | Self::UnsyncedCommits => Scenario::Crash,
            Self::ForgetsMerged | Self::AcceptsStaleResult | Self::CurrentChat | Self::LosesSteering => {
                Scenario::Conversation
            }
            Self::UnmarkedCopy | Self::PreviewFirst | Self::AbandonsLink | Self::LeavesPreview => {
                Scenario::Flaky
            }
            Self::DropsHeldQueue | Self::BeginsWhileDraining => Scenario::Drain,
            Self::DeliveredFirst => Scenario::Completions,
            Self::EndlessQueue => Scenario::Flood,
            Self::AcksFirst
            | Self::GrantsWithoutFlip
            | Self::DeletesOnDelivery
            | Self::CursorBeforeQueue
            | Self::RepeatsRequests => Scenario::Relay,
            Self::IgnoresRefusals | Self::StaysConnected | Self::RefusedStep => Scenario::Disk,
            Self::RunsJobTwice | Self::ReportsTwice => Scenario::Jobs,
            Self::SilenceIsConsent => Scenario::Approvals,
            Self::HidesTooMuch => Scenario::Compaction,
            Self::ForgetsFiles | Self::UnsyncedDownloads => Scenario::Media,
            Self::UnsyncedFiles => Scenario::Storm,
            Self::RepeatsRuns => Scenario::Runs,
        }
    }

    /// The switch of it in the shipped code.
    pub(crate) const fn planted(self) -> PlantedBug {
        match self {
            Self::CursorFirst => PlantedBug::CursorFirst,
            Self::ForgetsMerged => PlantedBug::ForgetsMerged,
            Self::AnswerAfterEnd => PlantedBug::AnswerAfterEnd,
            Self::RepeatsTools => PlantedBug::RepeatsTools,
            Self::AcceptsStaleResult => PlantedBug::AcceptsStaleResult,
            Self::UnmarkedCopy => PlantedBug::UnmarkedCopy,
            Self::PreviewFirst => PlantedBug::PreviewFirst,
            Self::CurrentChat => PlantedBug::CurrentChat,
            Self::DropsHeldQueue => PlantedBug::DropsHeldQueue,
            Self::AbandonsLink => PlantedBug::AbandonsLink,
            Self::DeliveredFirst => PlantedBug::DeliveredFirst,
            Self::EndlessQueue => PlantedBug::EndlessQueue,
            Self::IgnoresRefusals => PlantedBug::IgnoresRefusals,
            Self::RunsJobTwice => PlantedBug::RunsJobTwice,
            Self::ForgetsSuspects => PlantedBug::ForgetsSuspects,
            Self::LosesSteering => PlantedBug::LosesSteering,
            Self::ForgetsCandidates => PlantedBug::ForgetsCandidates,
            Self::LeavesPreview => PlantedBug::LeavesPreview,
            Self::ReportsTwice => PlantedBug::ReportsTwice,
            Self::AcksBeforeCommit => PlantedBug::AcksBeforeCommit,
            Self::BeginsWhileDraining => PlantedBug::BeginsWhileDraining,
            Self::RefusedStep => PlantedBug::RefusedStep,
            Self::AcksFirst => PlantedBug::AcksFirst,
            Self::GrantsWithoutFlip => PlantedBug::GrantsWithoutFlip,
            Self::DeletesOnDelivery => PlantedBug::DeletesOnDelivery,
            Self::CursorBeforeQueue => PlantedBug::CursorBeforeQueue,
            Self::RepeatsRequests => PlantedBug::RepeatsRequests,
            Self::StaysConnected => PlantedBug::StaysConnected,
            Self::SilenceIsConsent => PlantedBug::SilenceIsConsent,
            Self::HidesTooMuch => PlantedBug::HidesTooMuch,
            Self::ForgetsFiles => PlantedBug::ForgetsFiles,
            Self::RepeatsRuns => PlantedBug::RepeatsRuns,
            Self::UnsyncedCommits => PlantedBug::UnsyncedCommits,
            Self::UnsyncedFiles => PlantedBug::UnsyncedFiles,
            Self::UnsyncedDownloads => PlantedBug::UnsyncedDownloads,
        }
    }
}
