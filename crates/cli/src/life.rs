//! What a gateway says of its life, as its companions see it.

use std::time::{Duration, Instant};

use petasos_config::Home;
use petasos_core::Millis;
use petasos_gateway::home::process::Record;
use petasos_gateway::home::state;
use serde::Deserialize;

use crate::client::Client;
use crate::lock;

/// A gateway that takes longer to say how it is does not answer.
const PATIENCE: Duration = Duration::from_secs(1);

/// Whether turns may start, and who is at work.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Life {
    pub state: String,
    #[serde(default)]
    pub drain: Option<Drain>,
    #[serde(default)]
    pub holders: Vec<Holder>,
}

/// Why no turn may start.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Drain {
    /// `external`, `shutdown` or `restart`.
    pub kind: String,
    #[serde(default)]
    pub principal: Option<String>,
    #[serde(default)]
    pub reason: Option<String>,
    #[serde(default)]
    pub since: Option<Millis>,
    #[serde(default)]
    pub requested_at: Option<String>,
    #[serde(default)]
    pub deadline: Option<Millis>,
}

/// A session at work.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Holder {
    pub key: String,
    #[serde(default)]
    pub doing: Doing,
    pub since: Millis,
    #[serde(default)]
    pub skipped: bool,
    #[serde(default)]
    pub until: Option<Millis>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
pub struct Doing {
    #[serde(default)]
    at: String,
    #[serde(default)]
    tools: Vec<String>,
}

impl Doing {
    /// For people.
    pub fn words(&self) -> String {
        match self.tools.as_slice() {
            [] if self.at.is_empty() => "working".into(),
            [] => self.at.clone(),
            tools => format!("running {}", tools.join(", ")),
        }
    }
}

impl Drain {
    pub fn is_external(&self) -> bool {
        self.kind == "external"
    }
}

impl Life {
    pub fn is_draining(&self) -> bool {
        self.state == "draining"
    }

    /// It stops or starts anew, and will not take it back.
    pub fn is_leaving(&self) -> bool {
        self.drain.as_ref().is_some_and(|drain| !drain.is_external())
    }

    /// Everything is in place.
    pub fn is_up(&self) -> bool {
        matches!(self.state.as_str(), "running" | "degraded" | "draining")
    }

    /// Those who are waited for.
    pub fn awaited(&self) -> impl Iterator<Item = &Holder> {
        self.holders.iter().filter(|holder| !holder.skipped)
    }

    /// `stopping`, `restarting`, or what it says of itself.
    pub fn headline(&self) -> &str {
        let kind = self.drain.as_ref().map(|drain| drain.kind.as_str());
        headline(&self.state, kind)
    }

    /// Until when this one is waited for, if there is an end to it: only whoever leaves does not wait for ever.
    pub fn patience(&self, holder: &Holder) -> Option<Millis> {
        let drain = self.drain.as_ref().filter(|drain| !drain.is_external())?;
        drain.deadline.max(holder.until)
    }

    /// When nobody is waited for any longer.
    pub fn end(&self) -> Option<Millis> {
        self.awaited().filter_map(|holder| self.patience(holder)).max()
    }
}

/// What a gateway does, from its state and the kind of its drain.
pub fn headline<'a>(state: &'a str, kind: Option<&str>) -> &'a str {
    match (state, kind) {
        ("draining", Some("shutdown")) => "stopping",
        ("draining", Some("restart")) => "restarting",
        (state, _) => state,
    }
}

/// When the gateway that was asked to stop ends its wait for turns, as its status file says it.
pub fn published_end(home: &Home, of: &Record) -> Option<Millis> {
    let mut fields = state::read(home.path())?;
    let record: Record = serde_json::from_value(fields.clone().into()).ok()?;
    let state = fields.remove("gateway_state")?;
    let mut drain = fields.remove("drain")?;
    let holders = drain.get_mut("holders").map(serde_json::Value::take);
    let life = serde_json::json!({ "state": state, "drain": drain, "holders": holders });
    let life: Life = serde_json::from_value(life).ok().filter(|_| record.is_same(of))?;
    life.end()
}

/// What somebody who looks at a home sees.
#[derive(Debug, Clone, PartialEq)]
pub enum Sight {
    /// Nobody has it.
    Nobody,
    /// Somebody has it, and does not answer: it is starting, or almost gone. `None`: it has not said who it is.
    Silent(Option<Record>),
    Life(Record, Life),
}

impl Sight {
    pub fn life(&self) -> Option<&Life> {
        match self {
            Self::Life(_, life) => Some(life),
            Self::Nobody | Self::Silent(_) => None,
        }
    }
}

/// Looks at a home again and again.
#[derive(Debug)]
pub struct Watcher<'a> {
    home: &'a Home,
    client: Option<(Record, Client)>,
}

impl<'a> Watcher<'a> {
    pub const fn new(home: &'a Home) -> Self {
        Self { home, client: None }
    }

    pub async fn look(&mut self) -> Sight {
        let path = self.home.lock_file();
        let Some(record) = lock::holder(&path).map(|held| held.process) else {
            return if lock::is_held(&path) { Sight::Silent(None) } else { Sight::Nobody };
        };
        match self.ask(&record).await {
            Some(life) => Sight::Life(record, life),
            None => {
                self.client = None;
                Sight::Silent(Some(record))
            }
        }
    }

    async fn ask(&mut self, record: &Record) -> Option<Life> {
        let client = match &self.client {
            Some((whose, client)) if whose.is_same(record) => client,
            Some(_) | None => {
                let client = Client::connect(self.home).ok().flatten()?;
                &self.client.insert((record.clone(), client)).1
            }
        };
        tokio::time::timeout(PATIENCE, client.get("/api/gateway/drain")).await.ok()?.ok()
    }
}

/// How long the gateway of this home waits for turns when it leaves, as its state file says; `None`: it does not.
pub fn drain_timeout(home: &Home, record: Option<&Record>) -> Option<Duration> {
    let fields = state::read(home.path())?;
    let told = Record::parse(&serde_json::to_vec(&fields).ok()?);
    let same = match (told, record) {
        (Some(told), Some(record)) => told.is_same(record),
        (Some(_) | None, None) => true,
        (None, Some(_)) => false,
    };
    let seconds = fields.get("restart_drain_timeout").filter(|_| same)?.as_f64()?;
    Duration::try_from_secs_f64(seconds).ok()
}

/// The same instant on the clock that nobody sets.
pub fn instant(at: Millis) -> Option<Instant> {
    Instant::now().checked_add(at.since(crate::print::now()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn life(told: Value) -> Life {
        serde_json::from_value(told).unwrap()
    }

    #[test]
    fn the_end_is_the_last_deadline_of_those_who_are_waited_for() {
        let holder = |key: &str, skipped: bool, until: Option<u64>| json!({"key": key, "since": 1, "skipped": skipped, "until": until});
        let told = |holders: Vec<Value>| {
            life(json!({
                "state": "draining", "drain": {"kind": "shutdown", "deadline": 50}, "holders": holders,
            }))
        };
        assert_eq!(told(vec![]).end(), None);
        assert_eq!(told(vec![holder("a", false, None)]).end(), Some(Millis(50)));
        let extended = told(vec![holder("a", false, Some(70)), holder("b", true, Some(90))]);
        assert_eq!((extended.end(), extended.awaited().count()), (Some(Millis(70)), 1));
        assert!(extended.is_leaving());
        let quiet = life(
            json!({"state": "draining", "drain": {"kind": "external"}, "holders": [holder("a", false, None)]}),
        );
        assert_eq!((quiet.end(), quiet.is_leaving(), quiet.is_draining()), (None, false, true));
    }

    #[test]
    fn only_a_stop_has_a_deadline_and_a_name_of_its_own() {
        let told = |kind: &str| {
            life(json!({
                "state": "draining", "drain": {"kind": kind}, "holders": [{"key": "a", "since": 1, "until": 70}],
            }))
        };
        for (kind, headline, end) in [
            ("external", "draining", None),
            ("shutdown", "stopping", Some(Millis(70))),
            ("restart", "restarting", Some(Millis(70))),
        ] {
            assert_eq!((told(kind).headline(), told(kind).end()), (headline, end), "{kind}");
        }
        assert_eq!(headline("running", Some("shutdown")), "running");
    }

    #[test]
    fn what_somebody_does_is_told_in_words() {
        for (told, want) in [
            (json!({"at": "thinking"}), "thinking"),
            (json!({"at": "acting", "tools": ["shell", "fetch"]}), "running shell, fetch"),
            (json!({"at": "acting", "tools": []}), "acting"),
            (json!({}), "working"),
        ] {
            assert_eq!(serde_json::from_value::<Doing>(told.clone()).unwrap().words(), want, "{told}");
        }
    }
}
