//! One home, its fakes, and the processes that live there one after the other.

use std::os::unix::net::UnixDatagram;
use std::process::{Child, Output, Stdio};
use std::time::{Duration, Instant};

use petasos_fakes::Connector;
use petasos_fakes::hooks::Sender;

use crate::support::{Bench, SOON};

pub type Outcome = Result<(), String>;

/// A copy that says that it may be one.
const MARK: &str = "Recovered reply";

pub struct Life {
    pub bench: Bench,
    /// Of every process.
    pub env: Vec<(&'static str, String)>,
    /// Of the process that dies, besides.
    pub dying: Vec<(&'static str, String)>,
    /// A command that was begun while the gateway lived.
    pub command: Option<Child>,
    /// A program that delivers to our webhook until it is answered.
    pub provider: Option<Sender>,
    pub connector: Option<Connector>,
    /// The service manager's.
    pub manager: Option<UnixDatagram>,
    /// Where the gateway listens, if something knocks there.
    pub port: u16,
}

impl Life {
    pub fn new(bench: Bench) -> Self {
        Self {
            bench,
            env: vec![],
            dying: vec![],
            command: None,
            provider: None,
            connector: None,
            manager: None,
            port: 0,
        }
    }

    pub fn env(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.env.push((name, value.into()));
        self
    }

    /// Starts a process: the one that dies, or the one after it.
    pub fn launch(&mut self) {
        let env: Vec<_> =
            self.env.iter().chain(&self.dying).map(|(name, value)| (*name, value.as_str())).collect();
        self.bench.launch_with(&env);
    }

    /// The same, and waits until it takes commands.
    pub fn launch_ready(&mut self) {
        self.launch();
        self.bench.await_state("running");
    }

    /// Gives the gateway a command and does not wait for it.
    pub fn begin(&mut self, args: &[&str]) {
        let mut command = self.bench.command(args);
        let begun = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        self.command = Some(begun.expect("petasos runs"));
    }

    /// Waits for the end of the command.
    pub fn ended(&mut self) -> Result<Output, String> {
        let mut command = self.command.take().ok_or("no command was begun")?;
        let over = wait("the command ends", || command.try_wait().is_ok_and(|status| status.is_some()));
        if let Err(error) = over {
            let _ = command.kill();
            return Err(error);
        }
        command.wait_with_output().map_err(|error| error.to_string())
    }

    pub fn texts(&self, chat: i64) -> Vec<String> {
        self.bench.telegram.texts(chat)
    }

    /// Waits until some message of the chat contains this.
    pub fn sees(&self, chat: i64, want: &str) -> Outcome {
        let seen = self.bench.telegram.wait_until(SOON, |world| {
            world.messages(chat).any(|message| message.text.contains(want)).then_some(())
        });
        seen.ok_or_else(|| format!("{want:?} never came: {:?}", short(&self.texts(chat))))
    }

    /// Of the messages with these words at most one is unmarked.
    pub fn at_most_one_unmarked(&self, chat: i64, words: &str) -> Outcome {
        let texts = self.texts(chat);
        match unmarked(&texts, words) {
            0 | 1 => Ok(()),
            _more => Err(format!("an unmarked copy: {:?}", short(&texts))),
        }
    }

    /// How often the model was asked at most.
    pub fn asked_at_most(&self, most: u64) -> Outcome {
        let asked = self.bench.model.look(|desk| desk.request_count());
        if asked > most { Err(format!("the model was asked {asked} times")) } else { Ok(()) }
    }
}

impl Drop for Life {
    fn drop(&mut self) {
        if let Some(mut command) = self.command.take() {
            let _ = command.kill();
            let _ = command.wait();
        }
    }
}

pub fn unmarked(texts: &[String], words: &str) -> usize {
    texts.iter().filter(|text| text.contains(words) && !text.contains(MARK)).count()
}

pub fn is_marked(text: &str) -> bool {
    text.contains(MARK)
}

pub fn short(texts: &[String]) -> Vec<String> {
    texts.iter().map(|text| text.chars().take(70).collect()).collect()
}

/// For what nobody rings a bell for.
pub fn wait(what: &str, mut look: impl FnMut() -> bool) -> Outcome {
    let until = Instant::now() + SOON;
    while !look() {
        if Instant::now() > until {
            return Err(format!("never: {what}"));
        }
        std::thread::park_timeout(Duration::from_millis(5));
    }
    Ok(())
}
