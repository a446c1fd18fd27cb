//! Rules: which requests shall go wrong, how many of them, and how.
//!
//! Owns the table of one fake: `F` is what that fake calls a fault, `P` how it names a chat. A rule is asked
//! when a request arrives: one that is already being served, such as a long poll that waits, is not touched
//! by a new rule. The table has a lock of its own, taken inside the world's and never the other way round.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::gate::{Door, Gate};
use crate::road::Held;

/// On which side of the processing a gate stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    Before,
    After,
}

#[derive(Debug, Clone)]
pub(crate) enum Act<F> {
    Fault(F),
    Gate(Side, Arc<Door>),
}

/// A rule being written. Unless told otherwise a fault strikes once, and a gate stops everybody.
#[derive(Debug)]
#[must_use = "a rule does nothing until `does` or `gate`"]
pub struct When<'a, F, P> {
    rules: &'a Rules<F, P>,
    name: String,
    place: Option<P>,
    saying: Option<Saying>,
    skip: u64,
    times: Times,
}

/// Whether a request is meant, by its text.
pub type Saying = fn(&str) -> bool;

#[derive(Debug)]
enum Times {
    Unsaid,
    Exactly(u64),
    Always,
}

impl<'a, F, P> When<'a, F, P> {
    pub(crate) fn new(rules: &'a Rules<F, P>, name: String) -> Self {
        Self { rules, name, place: None, saying: None, skip: 0, times: Times::Unsaid }
    }

    /// Only requests for this chat; each fake lends it the name that its service uses.
    pub(crate) fn place(mut self, place: P) -> Self {
        self.place = Some(place);
        self
    }

    /// Only requests whose text is like this.
    pub fn saying(mut self, saying: Saying) -> Self {
        self.saying = Some(saying);
        self
    }

    /// From the `n`th matching request on, counting from 1; only that one unless `times` or `always`.
    pub fn nth(mut self, n: u64) -> Self {
        self.skip = n.saturating_sub(1);
        if matches!(self.times, Times::Unsaid) {
            self.times = Times::Exactly(1);
        }
        self
    }

    pub fn times(mut self, k: u64) -> Self {
        self.times = Times::Exactly(k);
        self
    }

    pub fn always(mut self) -> Self {
        self.times = Times::Always;
        self
    }

    pub fn does(self, fault: F) {
        let left = match self.times {
            Times::Unsaid => Some(1),
            Times::Exactly(k) => Some(k),
            Times::Always => None,
        };
        self.add(left, Act::Fault(fault));
    }

    #[must_use]
    pub fn gate(self, side: Side) -> Gate {
        let gate = Gate::new();
        let left = match self.times {
            Times::Unsaid | Times::Always => None,
            Times::Exactly(k) => Some(k),
        };
        self.add(left, Act::Gate(side, gate.door()));
        gate
    }

    fn add(self, left: Option<u64>, act: Act<F>) {
        let Self { rules, name, place, saying, skip, times: _ } = self;
        rules.lock().rules.push(Rule { name, place, saying, skip, left, act });
    }
}

#[derive(Debug)]
pub(crate) struct Rules<F, P>(Mutex<Table<F, P>>);

#[derive(Debug)]
struct Table<F, P> {
    rules: Vec<Rule<F, P>>,
    /// Faults that met a request so far.
    struck: u64,
    /// Where faults that hang wait; replaced when released.
    hang: Arc<Door>,
}

#[derive(Debug)]
struct Rule<F, P> {
    /// `*` is every request.
    name: String,
    place: Option<P>,
    saying: Option<Saying>,
    /// Matching requests to let pass first.
    skip: u64,
    /// `None`: for ever.
    left: Option<u64>,
    act: Act<F>,
}

impl<F, P> Rules<F, P> {
    pub(crate) fn new() -> Self {
        Self(Mutex::new(Table { rules: Vec::new(), struck: 0, hang: Arc::default() }))
    }

    /// Lets go on what hangs now.
    pub(crate) fn release_hangs(&self) {
        let hang = std::mem::take(&mut self.lock().hang);
        hang.open();
    }

    /// Gates go too; requests already standing there are their gate's business. Opens all hangs.
    pub(crate) fn clear(&self) {
        self.lock().rules.clear();
        self.release_hangs();
    }

    pub(crate) fn struck(&self) -> u64 {
        self.lock().struck
    }

    fn lock(&self) -> MutexGuard<'_, Table<F, P>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<F: Clone, P: PartialEq> Rules<F, P> {
    /// What shall happen to this request; rules that are used up are dropped. A fault whose time has not
    /// come (`ready`) waits for another request.
    pub(crate) fn take(
        &self,
        name: &str,
        place: Option<P>,
        text: Option<&str>,
        ready: impl Fn(&F) -> bool,
    ) -> Held<F> {
        let mut table = self.lock();
        let hit = |rule: &mut Rule<F, P>| rule.hit(name, place.as_ref(), text, &ready);
        let acts: Vec<Act<F>> = table.rules.iter_mut().filter_map(hit).collect();
        table.struck += acts.iter().filter(|act| matches!(act, Act::Fault(_))).count() as u64;
        table.rules.retain(|rule| !rule.used_up());
        Held { acts, hang: table.hang.clone() }
    }
}

impl<F: Clone, P: PartialEq> Rule<F, P> {
    fn hit(
        &mut self,
        name: &str,
        place: Option<&P>,
        text: Option<&str>,
        ready: impl Fn(&F) -> bool,
    ) -> Option<Act<F>> {
        let named = self.name == "*" || self.name.eq_ignore_ascii_case(name);
        let here = self.place.is_none() || self.place.as_ref() == place;
        let early = matches!(&self.act, Act::Fault(fault) if !ready(fault));
        let said = self.saying.is_none_or(|saying| text.is_some_and(saying));
        if !named || !here || !said || early {
            return None;
        }
        if self.skip > 0 {
            self.skip -= 1;
            return None;
        }
        self.left = match self.left {
            None => None,
            Some(left) => Some(left.checked_sub(1)?),
        };
        Some(self.act.clone())
    }

    fn used_up(&self) -> bool {
        let opened = match &self.act {
            Act::Gate(_, door) => door.is_open(),
            Act::Fault(_) => false,
        };
        opened || self.left == Some(0)
    }
}

#[cfg(test)]
mod tests {
    use super::{Rules, When};

    type Writing<'a> = When<'a, &'static str, u64>;

    /// Which of eight requests are hit; even ones go to chat 2, odd ones to chat 1.
    #[track_caller]
    fn check(name: &str, write: impl FnOnce(Writing<'_>) -> Writing<'_>, want: &[u64]) {
        let rules = Rules::new();
        write(When::new(&rules, name.to_owned())).does("fault");
        let take = |number: u64| {
            let text = format!("text {number}");
            rules.take("sendMessage", Some(2 - number % 2), Some(&text), |_| true)
        };
        let hit = |number: &u64| !take(*number).acts.is_empty();
        let got: Vec<u64> = (1..=8).filter(hit).collect();
        assert_eq!((got.as_slice(), rules.struck()), (want, want.len() as u64), "{name}");
    }

    #[test]
    fn rules_hit_what_they_name() {
        check("SENDmessage", |when| when, &[1]);
        check("sendMessage", |when| when.nth(3), &[3]);
        check("sendMessage", |when| when.place(2).nth(2).times(2), &[4, 6]);
        check("*", |when| when.nth(7).always(), &[7, 8]);
        check("editMessageText", |when| when.always(), &[]);
        check("sendMessage", |when| when.place(3).always(), &[]);
        check("*", |when| when.saying(|text| text.contains('5')), &[5]);
    }

    #[test]
    fn a_fault_waits_until_it_is_ready() {
        let rules: Rules<_, u64> = Rules::new();
        When::new(&rules, "getUpdates".to_owned()).does("again");
        let hits = |ready: bool| rules.take("getUpdates", None, None, |_| ready).acts.len();
        assert_eq!([hits(false), hits(true), hits(true)], [0, 1, 0]);
    }
}
