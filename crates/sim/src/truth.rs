//! Checks of the promises against the world and the store, independent of the gateway's own state.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use petasos_core::admission::{Ack, MAX_QUEUED};
use petasos_core::journal::MessageOutcome;
use petasos_core::link;
use petasos_core::media::extract;
use petasos_core::outbox::{Kind, State};
use petasos_core::transcript::Role;
use petasos_core::{InboxId, Millis, OutboxId, TurnId};
use petasos_store::{MessageStage, Reads, RowState};

use crate::outside::{Class, MARK, Said, Shown, World, cited, tag_of};
use crate::promise::Promise;

/// Observed events that later checks need.
#[derive(Debug, Default)]
pub(crate) struct Truth {
    /// Which turn each accepted message went into.
    claims: BTreeMap<InboxId, TurnId>,
    /// Growing answers: they keep their place, whatever is sent meanwhile.
    pub(crate) streamed: BTreeSet<(TurnId, u32)>,
    /// Their items, from the commit that stages them.
    staged: BTreeSet<OutboxId>,
    last_sent: BTreeMap<usize, OutboxId>,
    /// Runs of jobs, by the job and its due time.
    occurrences: BTreeMap<(usize, String), InboxId>,
    /// Work that was given away and is not waited for.
    dispatched: BTreeSet<usize>,
}

pub(crate) type Check = Result<(), (Promise, String)>;

fn broken(promise: Promise, what: impl Into<String>) -> Check {
    Err((promise, what.into()))
}

impl Truth {
    pub(crate) fn tool_ran(&self, world: &World, call: &str) -> Check {
        if world.effects.get(call).is_some_and(|times| *times > 1) {
            return broken(Promise::G3, format!("tool call {call} took effect twice"));
        }
        Ok(())
    }

    /// No message belongs to a turn that is over.
    pub(crate) fn stranded(&self, store: &Reads) -> Check {
        match store.stranded() {
            Ok(stranded) if stranded.is_empty() => Ok(()),
            found => broken(Promise::G2, format!("messages belong to a turn that is over: {found:?}")),
        }
    }

    /// An accepted message is part of a turn.
    pub(crate) fn claimed(&mut self, inbox: InboxId, turn: TurnId) -> Check {
        if *self.claims.entry(inbox).or_insert(turn) != turn {
            return broken(Promise::G3, format!("message {inbox} is in two turns"));
        }
        Ok(())
    }

    pub(crate) fn is_claimed(&self, inbox: InboxId) -> bool {
        self.claims.contains_key(&inbox)
    }

    /// `set`: its clock was set, so what it measures may be wrong for a while.
    /// `heard`: how long ago something came in.
    pub(crate) fn link_state(
        &self,
        link: &link::Link,
        heard: Option<Duration>,
        set: bool,
        now: Millis,
    ) -> Check {
        let slack = Duration::from_secs(if set { 60 } else { 5 });
        match &link.state {
            link::State::Waiting { until, .. }
                if until.since(now) > Duration::from_secs(3600) + slack && !set =>
            {
                broken(Promise::G7, format!("the next try is in {} s", until.since(now).as_secs()))
            }
            // It says itself that it is down, and has its own patience.
            link::State::Up { .. } if link.retry_reason.is_some() => Ok(()),
            link::State::Up { .. } => match heard {
                None => broken(Promise::G7, "a link counts as up that never said anything"),
                Some(silence) if silence > Duration::from_secs(120) + slack => broken(
                    Promise::G7,
                    format!("a link counts as up that is silent for {} s", silence.as_secs()),
                ),
                Some(_) => Ok(()),
            },
            link::State::Waiting { .. } | link::State::Connecting { .. } => Ok(()),
            link::State::Fatal { .. } | link::State::Paused => {
                broken(Promise::G7, "a link was given up, though time would have healed it")
            }
        }
    }

    /// A job runs; `run` names the job and the due time.
    pub(crate) fn job_ran(&mut self, job: usize, run: &str, inbox: InboxId) -> Check {
        let name = run.split('!').next().unwrap_or_default().to_owned();
        if *self.occurrences.entry((job, name)).or_insert(inbox) != inbox {
            return broken(Promise::G3, format!("[j{job}] runs twice for {run}"));
        }
        Ok(())
    }

    pub(crate) fn has_run(&self, job: usize) -> bool {
        self.occurrences.keys().any(|(number, _)| *number == job)
    }

    /// A growing answer is about to be shown.
    pub(crate) fn staged(&mut self, item: OutboxId) {
        self.staged.insert(item);
    }

    /// Work was given away, and its end is to be told.
    pub(crate) fn dispatched(&mut self, work: usize) {
        self.dispatched.insert(work);
    }

    /// After every start: what was acknowledged is still there, word for word.
    pub(crate) fn started(&self, world: &World, store: &Reads) -> Check {
        let here = |said: &&Said| said.acked && (said.inbox.is_some() || said.buffer.is_none());
        for said in world.said.iter().filter(here) {
            let kept = said.inbox.map(|id| store.pending(id));
            let same = matches!(&kept, Some(Ok(Some(pending))) if pending.inbound.text == said.text);
            if !same {
                return broken(Promise::G1, format!("{} was acknowledged and is gone: {kept:?}", said.text));
            }
        }
        Ok(())
    }

    /// A message is in the inbox for the first time: nothing that was written behind it there is in there yet.
    pub(crate) fn in_order(&self, world: &World, number: usize) -> Check {
        let said = &world.said[number];
        let behind = world.said.iter().skip(number + 1).filter(|it| it.chat == said.chat);
        match behind.into_iter().find(|it| it.inbox.is_some()) {
            Some(other) if world.chats[said.chat].class != Class::Pull => {
                broken(Promise::G2, format!("{} has overtaken {}", other.text, said.text))
            }
            Some(_) | None => Ok(()),
        }
    }

    /// Something has changed in a chat.
    pub(crate) fn shown(&mut self, world: &World, at: usize, sent: Option<OutboxId>) -> Check {
        let chat = &world.chats[at];
        let Some(last) = chat.shown.last() else { return Ok(()) };
        for shown in chat.visible() {
            let homes = cited(&shown.text, 'm').into_iter().map(|number| world.said[number].chat);
            let homes =
                homes.chain(cited(&shown.text, 'c').into_iter().map(|number| world.ended[number].chat));
            let jobs = cited(&shown.text, 'j').into_iter().map(|number| world.errands[number].chat);
            let files = cited(&shown.text, 'f').into_iter().map(|number| world.said[number].chat);
            let mut homes = homes.chain(jobs).chain(files);
            if let Some(home) = homes.find(|home| *home != at) {
                let text = &shown.text;
                return broken(Promise::G5, format!("{text:?} is for chat {home} and stands in chat {at}"));
            }
        }
        let unmarked = |shown: &&crate::outside::Shown| !shown.text.starts_with(MARK);
        let same = chat.visible().filter(unmarked).filter(|it| match (it.about.step, last.about.step) {
            // A preview is the first part of the answer that it becomes.
            (Some(one), Some(other)) => {
                one == other
                    && it.about.item.map_or(0, |(_, part)| part)
                        == last.about.item.map_or(0, |(_, part)| part)
            }
            // A message that was changed in place is no copy of what could not be changed.
            (None, None) => it.about.item == last.about.item && it.text == last.text,
            (Some(_), None) | (None, Some(_)) => false,
        });
        if same.count() > 1 {
            return broken(Promise::G4, format!("an unmarked copy of {:?} in chat {at}", last.text));
        }
        if let Some(item) = sent {
            let before = self.last_sent.insert(at, item);
            let streamed = last.about.step.is_some_and(|step| self.streamed.contains(&step))
                || self.staged.contains(&item);
            if before.is_some_and(|before| before > item) && !streamed {
                return broken(Promise::G4, format!("item {item} left after {before:?}"));
            }
        }
        Ok(())
    }

    pub(crate) fn queue(&self, waiting: usize) -> Check {
        if waiting > MAX_QUEUED + 1 {
            return broken(Promise::G9, format!("{waiting} messages wait in one session"));
        }
        Ok(())
    }

    /// When everything has come to rest.
    pub(crate) fn end(&self, world: &World, store: &Reads) -> Check {
        self.answers(world, store)?;
        self.occurrences(world, store)?;
        self.completions(world, store)?;
        self.questions(store)?;
        self.conversations(world, store)?;
        self.files(world, store)
    }

    /// No question is left open.
    fn questions(&self, store: &Reads) -> Check {
        match store.all_open_questions() {
            Ok(open) if open.is_empty() => Ok(()),
            found => broken(Promise::G2, format!("questions never ended: {found:?}")),
        }
    }

    /// Nothing that was said is gone from its conversation, and a summary stands for what the model does not see.
    fn conversations(&self, world: &World, store: &Reads) -> Check {
        let lost = |error: petasos_store::Error| (Promise::G1, format!("the store cannot be read: {error}"));
        for (number, said) in world.said.iter().enumerate().filter(|(_, said)| said.text.starts_with("hello"))
        {
            let Some(turn) = said.inbox.and_then(|inbox| self.claims.get(&inbox)) else { continue };
            let Some(journaled) = store.turn(*turn).map_err(lost)? else { continue };
            let rows = store.rows_last(&journaled.turn.session, 10_000).map_err(lost)?;
            let name = format!("[m{number}]");
            let there = |row: &&petasos_store::TranscriptRow| row.message.content.contains(&name);
            if !rows.iter().filter(|row| row.message.role != Role::Assistant).any(|row| there(&row)) {
                return broken(Promise::G1, format!("{name} is gone from its conversation"));
            }
            let hidden = rows.iter().any(|row| row.state == RowState::Compacted);
            let stands = |row: &petasos_store::TranscriptRow| {
                row.message.role == Role::Summary && row.state == RowState::Active
            };
            if hidden && !rows.iter().any(stands) {
                return broken(Promise::G1, "rows are hidden, and no summary stands for them");
            }
        }
        Ok(())
    }

    /// Files named by a delivered answer have arrived with it.
    fn files(&self, world: &World, store: &Reads) -> Check {
        for (at, said) in world.said.iter().enumerate().filter(|(_, said)| said.file) {
            let Some(turn) = said.inbox.and_then(|inbox| self.claims.get(&inbox)) else { continue };
            let items = store.items_of_turn(*turn).unwrap_or_default();
            let delivered = items.iter().filter(|item| item.state == State::Done);
            for item in delivered.filter(|item| !extract(&item.draft.text).files.is_empty()) {
                let of_item = |it: &&Shown| it.about.item.is_some_and(|(id, _)| id == item.id);
                let mut there = world.chats[said.chat].shown.iter().filter(of_item);
                // The file itself, or why it was not sent.
                if !there.any(|it| it.text.contains('📎')) {
                    return broken(Promise::G4, format!("the answer to [m{at}] came without its file"));
                }
            }
        }
        Ok(())
    }

    /// Every message has its outcome, and people see it.
    fn answers(&self, world: &World, store: &Reads) -> Check {
        let lost = |error: petasos_store::Error| (Promise::G2, format!("the store cannot be read: {error}"));
        for (number, said) in world.said.iter().enumerate().filter(|(_, said)| said.written) {
            let Some(inbox) = said.inbox else {
                if said.aside {
                    continue; // the connector gave it up, and lists it
                }
                return broken(Promise::G2, format!("[m{number}] was never accepted"));
            };
            let Some(found) = store.receipt_of(inbox).map_err(lost)? else {
                return broken(Promise::G1, format!("[m{number}] was accepted and is gone"));
            };
            let outcome = match found.stage {
                MessageStage::Settled { outcome, .. } => outcome,
                stage => return broken(Promise::G2, format!("[m{number}] has no outcome: {stage:?}")),
            };
            self.outcome(world, store, number, inbox, outcome)?;
        }
        self.notices(world, store)?;
        let open = store.outbox_counts().map_err(lost)?;
        if open.due + open.sending + open.streaming > 0 {
            return broken(Promise::G4, format!("something is still owed: {open:?}"));
        }
        Ok(())
    }

    /// Every job ran as often as it was to, and every answer of a run was told.
    fn occurrences(&self, world: &World, store: &Reads) -> Check {
        let dead = store.items_in(State::Dead, 10_000).unwrap_or_default();
        for ((job, run), inbox) in &self.occurrences {
            let stage = store.receipt_of(*inbox).ok().flatten().map(|it| it.stage);
            if !matches!(stage, Some(MessageStage::Settled { outcome: MessageOutcome::Answered, .. })) {
                continue; // it failed, and that is told once in a row
            }
            let words = store.last_message_text(*inbox, Role::Assistant).ok().flatten().unwrap_or_default();
            let Some(tag) = tag_of(&words) else { continue };
            let told = |text: &str| tag_of(text) == Some(tag);
            let chat = &world.chats[world.errands[*job].chat];
            let seen = chat.visible().any(|it| told(&it.text));
            if !seen && !chat.blocked && !dead.iter().any(|item| told(&item.draft.text)) {
                return broken(Promise::G8, format!("[j{job}] of {run} was never told"));
            }
        }
        for (number, errand) in world.errands.iter().enumerate().filter(|(_, errand)| errand.made) {
            let ran = self.occurrences.keys().filter(|(job, _)| *job == number).count();
            if ran as u32 != errand.runs {
                return broken(Promise::G8, format!("[j{number}] ran {ran} times, not {}", errand.runs));
            }
        }
        Ok(())
    }

    fn outcome(
        &self,
        world: &World,
        store: &Reads,
        number: usize,
        inbox: InboxId,
        outcome: MessageOutcome,
    ) -> Check {
        let said = &world.said[number];
        if said.text.starts_with('/') || !said.text.contains("[m") {
            return Ok(()); // commands and answers to questions are answered with notices, which are counted
        }
        match outcome {
            MessageOutcome::Answered | MessageOutcome::Merged => {
                if self.is_answered(world, store, said.chat, inbox, number, 'm') {
                    return Ok(());
                }
                broken(
                    Promise::G2,
                    format!("[m{number}] counts as {} without a visible outcome", outcome.as_str()),
                )
            }
            MessageOutcome::Cancelled => {
                // By what came in after it, in whatever order it was written.
                let same = |it: &&Said| it.chat == said.chat && it.user == said.user;
                let acted = world.said.iter().filter(same).any(|it| it.inbox > Some(inbox));
                if acted {
                    Ok(())
                } else {
                    broken(Promise::G2, format!("[m{number}] was cancelled without a request"))
                }
            }
            MessageOutcome::Refused | MessageOutcome::Dead => Ok(()),
        }
    }

    fn is_answered(
        &self,
        world: &World,
        store: &Reads,
        chat: usize,
        inbox: InboxId,
        number: usize,
        letter: char,
    ) -> bool {
        let Some(turn) = self.claims.get(&inbox) else { return false };
        let there = world.chats[chat].visible().any(|it| cited(&it.text, letter).contains(&number));
        match world.chats[chat].class {
            Class::Plain | Class::Keyed | Class::Relayed => {
                let given_up =
                    || store.items_of_turn(*turn).is_ok_and(|it| it.iter().any(|it| it.state == State::Dead));
                there || given_up()
            }
            Class::Pull => {
                let Ok(Some(journaled)) = store.turn(*turn) else { return false };
                let rows = store.rows_last(&journaled.turn.session, 10_000).unwrap_or_default();
                let answers = |row: &&petasos_store::TranscriptRow| row.message.role == Role::Assistant;
                rows.iter().filter(answers).any(|row| cited(&row.message.content, letter).contains(&number))
            }
        }
    }

    /// Refused messages and commands got a reply.
    fn notices(&self, world: &World, store: &Reads) -> Check {
        for (at, chat) in world.chats.iter().enumerate().filter(|(_, chat)| chat.class != Class::Pull) {
            let here = world.said.iter().filter(|said| said.chat == at && said.written);
            let mut needed = 0;
            for inbox in here.filter_map(|said| said.inbox).filter(|id| !self.claims.contains_key(id)) {
                let stage = store.receipt_of(inbox).ok().flatten().map(|it| it.stage);
                let told = [MessageOutcome::Answered, MessageOutcome::Refused, MessageOutcome::Dead];
                needed += usize::from(
                    matches!(stage, Some(MessageStage::Settled { outcome, .. }) if told.contains(&outcome)),
                );
            }
            let acks = [Ack::Queued, Ack::Interrupting, Ack::Steered, Ack::Held, Ack::AfterRestart];
            // Said in between, of a message that is answered later.
            let is_ack = |text: &str| {
                text.contains("Your message is kept")
                    || acks.iter().filter_map(|ack| ack.text()).any(|ack| text.contains(ack))
            };
            let is_told = |text: &str| ["[m", "[c", "[j"].iter().any(|name| text.contains(name));
            let is_notice = |text: &str| !is_ack(text) && !is_told(text);
            let mut seen: BTreeSet<OutboxId> = BTreeSet::new();
            seen.extend(
                chat.visible()
                    .filter(|it| is_notice(&it.text) && it.about.step.is_none())
                    .filter_map(|it| it.about.item)
                    .map(|(id, _)| id),
            );
            let dead = store.items_in(State::Dead, 10_000).unwrap_or_default();
            seen.extend(
                dead.iter()
                    .filter(|it| it.draft.kind == Kind::Notice && it.draft.turn.is_none())
                    .map(|it| it.id),
            );
            if seen.len() < needed {
                let count = seen.len();
                return broken(Promise::G2, format!("chat {at}: {needed} were to be told and {count} were"));
            }
        }
        Ok(())
    }

    fn completions(&self, world: &World, store: &Reads) -> Check {
        let waiting = store.queued_completions().unwrap_or_default();
        if let Some(first) = waiting.first() {
            return broken(Promise::G8, format!("{} was never handed over", first.dispatch));
        }
        for (number, ended) in
            world.ended.iter().enumerate().filter(|(number, _)| self.dispatched.contains(number))
        {
            // A conversation that was ended meanwhile is not told.
            let renewed = world.said.iter().any(|said| said.chat == ended.chat && said.text == "/new");
            let Some(inbox) = ended.inbox else {
                if renewed {
                    continue;
                }
                return broken(Promise::G8, format!("[c{number}] ended and never became a message"));
            };
            let stage = store.receipt_of(inbox).ok().flatten().map(|it| it.stage);
            let told = match stage {
                Some(MessageStage::Settled {
                    outcome: MessageOutcome::Answered | MessageOutcome::Merged,
                    ..
                }) => self.is_answered(world, store, ended.chat, inbox, number, 'c'),
                // It was stopped, or its turn failed with a notice.
                Some(MessageStage::Settled { outcome: MessageOutcome::Cancelled, .. }) => {
                    world.said.iter().any(|said| said.chat == ended.chat && said.written)
                }
                Some(MessageStage::Settled {
                    outcome: MessageOutcome::Refused | MessageOutcome::Dead,
                    ..
                }) => true,
                Some(MessageStage::Queued { .. } | MessageStage::Running { .. }) | None => false,
            };
            if !told {
                let chat = ended.chat;
                return broken(Promise::G8, format!("chat {chat} never heard of [c{number}]: {stage:?}"));
            }
        }
        Ok(())
    }
}
