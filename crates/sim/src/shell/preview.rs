//! `deliver/preview.rs`, `deliver/follow.rs`: showing growing answers.

use std::time::Duration;

use petasos_core::journal::Write;
use petasos_core::lane::Rhythm;
use petasos_core::message::Delivery;
use petasos_core::outbox::{Draft, Kind};
use petasos_core::{Millis, Reached, Route, SessionKey, TurnId};
use petasos_store::Stagehand;

use super::turn::growing;
use super::{Event, Flight, Lane};
use crate::outside::{About, Answer, Ask};
use crate::plant::Bug;
use crate::promise::Promise;
use crate::sim::{Flow, Halt, Sim};

const GAP: Duration = Duration::from_millis(800);
const LANE_LINGER: Duration = Duration::from_secs(60);
/// Growing answers that one chat shows at the same time.
const MOST: usize = 8;

#[derive(Debug, Clone)]
pub(crate) struct Following {
    turn: TurnId,
    key: SessionKey,
    route: Route,
    rhythm: Rhythm,
    pub(crate) look_at: Millis,
    /// What is visible now: which step, which text, under which id.
    shown: Option<(u32, String, String)>,
}

impl Following {
    /// A look further ahead than any we plan was planned before the clock was set back.
    pub(crate) fn is_due(&self, now: Millis) -> bool {
        self.look_at <= now || self.look_at > now.after(LANE_LINGER)
    }
}

/// A preview on its way.
#[derive(Debug, Clone)]
pub(crate) struct Showing {
    following: Following,
    step: u32,
    text: String,
    /// `None`: it is the first, as a new message.
    message: Option<String>,
}

impl Sim {
    /// The chat sees from now on what becomes of the turn.
    pub(crate) fn follow(&mut self, route: &Route, turn: TurnId, key: SessionKey) {
        if !self.plan.streaming || route.delivery == Delivery::Pull || self.p().stopping {
            return;
        }
        let look_at = Millis(self.now.0 + 300);
        let rhythm = Rhythm::new(GAP);
        let following = Following { turn, key, route: route.clone(), rhythm, look_at, shown: None };
        let (name, life) = (route.lane().to_string(), self.life);
        let lane = self.lane_mut(&name);
        if lane.followed.iter().any(|it| it.turn == turn) {
            return;
        }
        if lane.followed.len() >= MOST {
            lane.followed.remove(0);
        }
        lane.followed.push(following);
        self.at(look_at, Event::LaneTick { life, lane: name });
    }

    /// Looks at a growing answer and shows what is new, if the budget allows.
    pub(crate) fn show(&mut self, lane: &mut Lane, mut following: Following) -> Flow {
        let (now, time) = (self.now, self.time);
        let live = self.p().sessions.get(&following.key).and_then(|session| {
            let turn = session.turn.as_ref().filter(|turn| turn.id == following.turn && !session.parked)?;
            Some((turn.step, session.work.as_ref().map(|work| growing(work, time)).unwrap_or_default()))
        });
        let Some((step, text)) = live else { return Ok(()) };
        following.look_at = now.after(GAP);
        let same = following.shown.as_ref().is_some_and(|(at, seen, _)| *at == step && *seen == text);
        let allowed = lane.budget.preview_at(now).max(self.free_at(lane));
        let next = following.rhythm.next_at(now);
        let at = next.map(|next| next.max(allowed));
        if text.trim().chars().count() < 4 || same || at.is_none() {
            lane.followed.push(following);
            return Ok(());
        }
        if let Some(at) = at.filter(|at| *at > now) {
            following.look_at = at.min(now.after(LANE_LINGER));
            lane.followed.push(following);
            return Ok(());
        }
        lane.budget.spend(now);
        self.preview(lane, following, step, text)
    }

    fn preview(&mut self, lane: &mut Lane, mut following: Following, step: u32, text: String) -> Flow {
        let visible = following.shown.take().filter(|(at, ..)| *at == step).map(|(_, _, message)| message);
        let message = match visible {
            Some(message) => Some(message),
            None => match self.stage(&following, step)? {
                Stagehand::Send => None,
                Stagehand::Edit(message) => Some(message),
                Stagehand::Stay => {
                    lane.followed.push(following);
                    return Ok(());
                }
            },
        };
        let (turn, shown) = (following.turn, format!("{text} ▉"));
        let about = About { item: None, step: Some((turn, step)), preview: true };
        let ask = match &message {
            Some(message) => Ask::Edit { message: message.clone(), text: shown },
            None => Ask::Send { text: shown, key: format!("preview:{turn}:{step}:{}", self.now.0) },
        };
        let showing = Showing { following, step, text, message };
        self.request(lane, ask, about, Flight::Preview(Box::new(showing)));
        Ok(())
    }

    /// The intent is stored before a first preview leaves.
    fn stage(&mut self, following: &Following, step: u32) -> Flow<Stagehand> {
        let draft = Draft {
            route: following.route.clone(),
            session_key: Some(following.key.clone()),
            turn: Some((following.turn, step)),
            kind: Kind::Answer,
            text: String::new(),
            buttons: vec![],
        };
        if self.bug == Some(Bug::PreviewFirst) {
            return Ok(Stagehand::Send);
        }
        let now = self.now;
        self.truth.streamed.insert((following.turn, step));
        let staged = self.commit("stage preview", move |tx| tx.stage_preview(&draft, now));
        // The store refuses: the outbox has the rest.
        Ok(Self::unless_full(staged)?.unwrap_or(Stagehand::Stay))
    }

    pub(crate) fn previewed(&mut self, lane: &mut Lane, showing: Showing, answer: Answer) -> Flow {
        let Showing { mut following, step, text, message } = showing;
        let (turn, now) = (following.turn, self.now);
        let first = message.is_none();
        match answer {
            Ok(id) => {
                if let (true, Some(message)) = (first, id.clone()) {
                    self.apply("preview shown", vec![Write::PreviewShown { turn, step, message }])?;
                }
                following.shown = message.or(id).map(|message| (step, text, message));
                following.rhythm.shown(now);
            }
            Err(failed) => {
                if first {
                    let gone = (failed.reached == Reached::No).then_some(Write::DropPreview { turn, step });
                    let dead = failed.dead_chat.then(|| self.chat_dead(lane));
                    self.apply("drop preview", gone.into_iter().chain(dead).collect())?;
                } else {
                    following.shown = message.map(|message| (step, text, message));
                }
                following.rhythm.failed(now, failed.fault);
                let limited = self.rate_limited(lane, failed.fault);
                self.apply("rate limit", limited.into_iter().collect())?;
            }
        }
        lane.followed.push(following);
        if lane.followed.len() > MOST + 1 {
            return Err(Halt::broken(Promise::G9, "a lane follows too many answers"));
        }
        // Something may have become due meanwhile.
        if lane.due_at.is_none() {
            lane.due_at = Some(now);
        }
        Ok(())
    }
}
