//! Fixture of the sweep: one home with its fakes, and the processes that run there in turn.

use std::os::unix::net::UnixDatagram;
use std::process::{Child, Output, Stdio};

use petasos_fakes::Connector;
use petasos_fakes::hooks::Sender;

use crate::support::{ProgramFixture, SOON};

pub type SweepResult = Result<(), String>;

const MARK: &str = "Recovered reply";

pub struct SweepFixture {
    pub program: ProgramFixture,
    pub env: Vec<(&'static str, String)>,
    /// Further environment of the process that is killed.
    pub kill_env: Vec<(&'static str, String)>,
    /// A command that was started before the kill.
    pub command: Option<Child>,
    /// A sender that repeats webhook deliveries until they are accepted.
    pub provider: Option<Sender>,
    pub connector: Option<Connector>,
    pub manager: Option<UnixDatagram>,
    /// Port of the API or the webhook listener.
    pub port: u16,
}

impl SweepFixture {
    pub fn new(program: ProgramFixture) -> Self {
        Self {
            program,
            env: vec![],
            kill_env: vec![],
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

    /// Starts the process that is killed, or the one after it.
    pub fn launch(&mut self) {
        let env: Vec<_> =
            self.env.iter().chain(&self.kill_env).map(|(name, value)| (*name, value.as_str())).collect();
        self.program.launch_with(&env);
    }

    /// Starts a process and waits until it accepts commands.
    pub fn launch_ready(&mut self) {
        self.launch();
        self.program.wait_state("running");
    }

    pub fn spawn_command(&mut self, args: &[&str]) {
        let mut command = self.program.command(args);
        let begun = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        self.command = Some(begun.expect("petasos runs"));
    }

    pub fn wait_command(&mut self) -> Result<Output, String> {
        let mut command = self.command.take().ok_or("no command was started")?;
        let over = wait("the command ends", || command.try_wait().is_ok_and(|status| status.is_some()));
        if let Err(error) = over {
            let _ = command.kill();
            return Err(error);
        }
        command.wait_with_output().map_err(|error| error.to_string())
    }

    pub fn texts(&self, chat: i64) -> Vec<String> {
        self.program.telegram.texts(chat)
    }

    pub fn wait_text(&self, chat: i64, want: &str) -> SweepResult {
        let seen = self.program.telegram.wait_until(SOON, |state| {
            state.messages(chat).any(|message| message.text.contains(want)).then_some(())
        });
        seen.ok_or_else(|| format!("{want:?} never came: {:?}", short(&self.texts(chat))))
    }

    /// At most one message with this text is unmarked.
    pub fn check_no_unmarked_copy(&self, chat: i64, phrase: &str) -> SweepResult {
        let texts = self.texts(chat);
        match unmarked(&texts, phrase) {
            0 | 1 => Ok(()),
            _more => Err(format!("an unmarked copy: {:?}", short(&texts))),
        }
    }

    pub fn check_model_calls(&self, most: u64) -> SweepResult {
        let asked = self.program.model.read(|state| state.request_count());
        if asked > most { Err(format!("the model was called {asked} times")) } else { Ok(()) }
    }
}

impl Drop for SweepFixture {
    fn drop(&mut self) {
        if let Some(mut command) = self.command.take() {
            let _ = command.kill();
            let _ = command.wait();
        }
    }
}

pub fn unmarked(texts: &[String], phrase: &str) -> usize {
    texts.iter().filter(|text| text.contains(phrase) && !text.contains(MARK)).count()
}

pub fn is_marked(text: &str) -> bool {
    text.contains(MARK)
}

pub fn short(texts: &[String]) -> Vec<String> {
    texts.iter().map(|text| text.chars().take(70).collect()).collect()
}

pub fn wait(description: &str, condition: impl FnMut() -> bool) -> SweepResult {
    petasos_fakes::wait::poll(SOON, condition).ok_or_else(|| format!("never: {description}"))
}
