//! Random operations, compared with a small in-memory model of inbox, turns and outbox, with crashes at any point.

use std::collections::BTreeMap;

use petasos_core::journal::{MessageOutcome, Write};
use petasos_core::outbox::State;
use petasos_core::{InboxId, OutboxId, TurnId};
use petasos_store::Accepted;
use proptest::prelude::*;

use crate::fixture::{Home, NOW, answer_draft, draft, inbound, key, lane, later, turn};

const CHATS: [&str; 3] = ["a", "b", "c"];

#[derive(Debug, Clone)]
enum Op {
    Accept {
        chat: usize,
        dedup: u8,
    },
    Start {
        chat: usize,
    },
    Finish {
        chat: usize,
    },
    Cancel {
        chat: usize,
    },
    Notice {
        chat: usize,
    },
    Send {
        chat: usize,
    },
    Part {
        chat: usize,
    },
    Delivered {
        chat: usize,
    },
    Postpone {
        chat: usize,
        seconds: u64,
        doubtful: bool,
    },
    DeadLetter {
        chat: usize,
    },
    Preview {
        chat: usize,
    },
    /// A job that fails after all its writes.
    Fail {
        chat: usize,
    },
    Crash,
}

fn op() -> impl Strategy<Value = Op> {
    let chat = 0..CHATS.len();
    prop_oneof![
        4 => (chat.clone(), 0_u8..40).prop_map(|(chat, dedup)| Op::Accept { chat, dedup }),
        3 => chat.clone().prop_map(|chat| Op::Start { chat }),
        3 => chat.clone().prop_map(|chat| Op::Finish { chat }),
        1 => chat.clone().prop_map(|chat| Op::Cancel { chat }),
        1 => chat.clone().prop_map(|chat| Op::Notice { chat }),
        3 => chat.clone().prop_map(|chat| Op::Send { chat }),
        1 => chat.clone().prop_map(|chat| Op::Part { chat }),
        3 => chat.clone().prop_map(|chat| Op::Delivered { chat }),
        1 => (chat.clone(), 0_u64..50, any::<bool>())
            .prop_map(|(chat, seconds, doubtful)| Op::Postpone { chat, seconds, doubtful }),
        1 => chat.clone().prop_map(|chat| Op::DeadLetter { chat }),
        2 => chat.clone().prop_map(|chat| Op::Preview { chat }),
        1 => chat.prop_map(|chat| Op::Fail { chat }),
        1 => Just(Op::Crash),
    ]
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum InboxState {
    Queued,
    Claimed(TurnId),
    Settled(MessageOutcome),
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct OutboxRecord {
    chat: usize,
    turn: Option<TurnId>,
    state: State,
    sent: usize,
    doubtful: bool,
    attempts: u32,
    asked: bool,
}

#[derive(Debug, Default)]
struct StoreModel {
    seen: BTreeMap<u8, InboxId>,
    inbox: BTreeMap<InboxId, (usize, InboxState)>,
    open: BTreeMap<usize, TurnId>,
    outbox: BTreeMap<OutboxId, OutboxRecord>,
    next: i64,
}

impl StoreModel {
    fn queued(&self, chat: usize) -> Vec<InboxId> {
        let waiting =
            self.inbox.iter().filter(|(_, (at, state))| *at == chat && *state == InboxState::Queued);
        waiting.map(|(id, _)| *id).collect()
    }

    fn claimed(&self, turn: TurnId) -> Vec<InboxId> {
        let mine = self.inbox.iter().filter(|(_, (_, state))| *state == InboxState::Claimed(turn));
        mine.map(|(id, _)| *id).collect()
    }

    fn settle(&mut self, ids: &[InboxId], outcome: MessageOutcome) {
        for id in ids {
            self.inbox.get_mut(id).unwrap().1 = InboxState::Settled(outcome);
        }
    }

    fn enqueue(&mut self, chat: usize, turn: Option<TurnId>, state: State) {
        self.next += 1;
        let asked = state == State::Streaming;
        let record = OutboxRecord { chat, turn, state, sent: 0, doubtful: false, attempts: 0, asked };
        self.outbox.insert(OutboxId(self.next), record);
    }

    fn streaming(&mut self, turn: TurnId) -> Option<&mut OutboxRecord> {
        self.outbox.values_mut().find(|record| record.turn == Some(turn) && record.state == State::Streaming)
    }

    fn head(&mut self, chat: usize) -> Option<(OutboxId, &mut OutboxRecord)> {
        let waiting = |record: &OutboxRecord| {
            record.chat == chat && matches!(record.state, State::Due | State::Sending)
        };
        self.outbox.iter_mut().find(|(_, record)| waiting(record)).map(|(id, record)| (*id, record))
    }
}

struct ModelHarness {
    home: Option<Home>,
    model: StoreModel,
}

impl ModelHarness {
    fn home(&mut self) -> &mut Home {
        self.home.as_mut().unwrap()
    }

    fn apply(&mut self, writes: &[Write]) {
        self.home().apply(writes).unwrap();
    }

    fn act(&mut self, op: &Op) {
        match *op {
            Op::Accept { chat, dedup } => self.accept(chat, dedup),
            Op::Start { chat } => self.start(chat),
            Op::Finish { chat } => self.finish(chat),
            Op::Cancel { chat } => self.cancel(chat),
            Op::Notice { chat } => {
                self.apply(&[Write::Enqueue(draft(CHATS[chat], "notice"))]);
                self.model.enqueue(chat, None, State::Due);
            }
            Op::Send { .. }
            | Op::Part { .. }
            | Op::Delivered { .. }
            | Op::Postpone { .. }
            | Op::DeadLetter { .. } => {
                self.deliver(op);
            }
            Op::Preview { chat } => self.preview(chat),
            Op::Fail { chat } => self.fail(chat),
            Op::Crash => self.crash(),
        }
    }

    fn accept(&mut self, chat: usize, dedup: u8) {
        let name = CHATS[chat];
        let got = self.home().write(|tx| tx.accept(&inbound(name, &dedup.to_string()), &key(name), NOW));
        match (self.model.seen.get(&dedup), got) {
            (Some(known), Accepted::Duplicate(id)) => assert_eq!(*known, id),
            (None, Accepted::New(id)) => {
                assert!(self.model.inbox.keys().all(|earlier| *earlier < id), "numbers only grow");
                self.model.seen.insert(dedup, id);
                self.model.inbox.insert(id, (chat, InboxState::Queued));
            }
            (known, got) => panic!("{known:?} and {got:?}"),
        }
    }

    /// Claims everything that waits. Must fail if a turn is open.
    fn start(&mut self, chat: usize) {
        let waiting = self.model.queued(chat);
        if waiting.is_empty() {
            return;
        }
        let new = turn(CHATS[chat], &waiting);
        let writes =
            [Write::ClaimInbox { inbox: waiting.clone(), turn: new.id }, Write::PutTurn(new.clone())];
        let started = self.home().apply(&writes);
        assert_eq!(started.is_err(), self.model.open.contains_key(&chat), "one turn at a time");
        if started.is_ok() {
            self.model.open.insert(chat, new.id);
            for id in waiting {
                self.model.inbox.get_mut(&id).unwrap().1 = InboxState::Claimed(new.id);
            }
        }
    }

    fn finish(&mut self, chat: usize) {
        let Some(turn) = self.model.open.remove(&chat) else {
            return;
        };
        let inbox = self.model.claimed(turn);
        let outcome = MessageOutcome::Answered;
        self.apply(&[
            Write::Enqueue(answer_draft(CHATS[chat], turn, 0, "answer")),
            Write::EndTurn { turn, outcome, at: NOW },
            Write::SettleInbox { inbox: inbox.clone(), outcome, at: NOW },
        ]);
        self.model.settle(&inbox, outcome);
        match self.model.streaming(turn) {
            Some(record) => record.state = State::Due,
            None => self.model.enqueue(chat, Some(turn), State::Due),
        }
    }

    fn cancel(&mut self, chat: usize) {
        let inbox = self.model.queued(chat);
        self.apply(&[Write::SettleInbox {
            inbox: inbox.clone(),
            outcome: MessageOutcome::Cancelled,
            at: NOW,
        }]);
        self.model.settle(&inbox, MessageOutcome::Cancelled);
    }

    fn deliver(&mut self, op: &Op) {
        let (Op::Send { chat }
        | Op::Part { chat }
        | Op::Delivered { chat }
        | Op::Postpone { chat, .. }
        | Op::DeadLetter { chat }) = *op
        else {
            return;
        };
        let Some((item, record)) = self.model.head(chat) else {
            return;
        };
        let write = match *op {
            Op::Send { .. } => {
                record.state = State::Sending;
                Write::Sending { item }
            }
            Op::Part { .. } => {
                (record.state, record.sent, record.doubtful, record.attempts) =
                    (State::Due, record.sent + 1, false, 0);
                Write::PartSent { item, message: "m".into(), thread: None }
            }
            Op::Delivered { .. } => {
                (record.state, record.sent, record.doubtful) = (State::Done, record.sent + 1, false);
                Write::Delivered { item, message: Some("m".into()), at: NOW }
            }
            Op::Postpone { seconds, doubtful, .. } => {
                (record.state, record.doubtful, record.attempts) =
                    (State::Due, doubtful, record.attempts + 1);
                Write::Postpone { item, not_before: later(seconds), doubtful, error: "later".into() }
            }
            _ => {
                (record.state, record.doubtful, record.attempts) = (State::Dead, false, record.attempts + 1);
                Write::DeadLetter { item, doubtful: false, error: "no".into(), at: NOW }
            }
        };
        self.apply(&[write]);
    }

    fn preview(&mut self, chat: usize) {
        let Some(turn) = self.model.open.get(&chat).copied() else {
            return;
        };
        let item =
            self.home().write(|tx| tx.open_preview(&answer_draft(CHATS[chat], turn, 0, "so far"), NOW));
        if self.model.streaming(turn).is_none() {
            self.model.enqueue(chat, Some(turn), State::Streaming);
            assert_eq!(item, OutboxId(self.model.next));
        }
    }

    fn fail(&mut self, chat: usize) {
        let Some(settled) =
            self.model.inbox.iter().find(|(_, (_, state))| matches!(state, InboxState::Settled(_)))
        else {
            return;
        };
        let again = turn(CHATS[chat], &[*settled.0]);
        let writes = [
            Write::Enqueue(draft(CHATS[chat], "never seen")),
            Write::ClaimInbox { inbox: vec![*settled.0], turn: again.id },
        ];
        assert!(self.home().apply(&writes).is_err(), "a settled message starts nothing");
    }

    fn crash(&mut self) {
        let home = self.home.take().unwrap().crash();
        self.home = Some(home);
        self.home().write(|tx| tx.recover_sending());
        for record in self.model.outbox.values_mut() {
            match record.state {
                State::Sending => {
                    (record.state, record.doubtful, record.attempts) =
                        (State::Due, true, record.attempts + 1);
                }
                State::Streaming if record.asked => record.doubtful = true,
                State::Streaming | State::Due | State::Done | State::Dead => {}
            }
        }
    }

    fn compare(&mut self) {
        let Self { home, model } = self;
        let store = &home.as_ref().unwrap().store;
        for (chat, name) in CHATS.iter().enumerate() {
            let queued: Vec<InboxId> = store.queued(&key(name)).unwrap().iter().map(|row| row.id).collect();
            assert_eq!(queued, model.queued(chat));
            let open = store.open_turn_of(&key(name)).unwrap().map(|turn| turn.id);
            assert_eq!(open, model.open.get(&chat).copied());
            let record: Vec<OutboxId> = store
                .due_of_lane(&lane(&format!("telegram:{name}")), 1000)
                .unwrap()
                .iter()
                .map(|item| item.id)
                .collect();
            let waiting = |record: &&OutboxRecord| {
                record.chat == chat && matches!(record.state, State::Due | State::Sending)
            };
            let wanted: Vec<OutboxId> =
                model.outbox.iter().filter(|(_, record)| waiting(record)).map(|(id, _)| *id).collect();
            assert_eq!(record, wanted);
        }
        for (id, record) in &model.outbox {
            let item = store.item(*id).unwrap().unwrap();
            let found = (item.state, item.sent.len(), item.doubtful, item.attempts);
            assert_eq!(found, (record.state, record.sent, record.doubtful, record.attempts), "{id}");
        }
        assert_eq!(store.stranded().unwrap(), []);
        let backlog = store.backlog().unwrap();
        let queued = model.inbox.values().filter(|(_, state)| *state == InboxState::Queued).count();
        assert_eq!(backlog.queued, queued as u64);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn store_agrees_with_the_model(ops in proptest::collection::vec(op(), 1..60)) {
        let mut harness = ModelHarness { home: Some(Home::new()), model: StoreModel::default() };
        for op in &ops {
            harness.act(op);
            harness.compare();
        }
    }
}
