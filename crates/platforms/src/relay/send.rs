//! The way out: one question over the shared connection, one answer, one try.

use std::time::Duration;

use petasos_core::message::Attachment;
use petasos_core::{Route, Source};
use petasos_relay::action::held_kind;
use petasos_relay::{Action, Answer, Media, address};
use reqwest::Url;
use reqwest::header::AUTHORIZATION;
use serde::Deserialize;
use serde_json::{Map, Value};
use tracing::info;

use super::parse::unique;
use super::{Error, Relay, control};
use crate::http::{self, Failure};
use crate::upload::Upload;
use crate::{File, Kind, Mark, Part, Receipt, SendOptions, Show, download};

/// What a connector takes at most.
pub(super) const LARGEST_FILE: u64 = 25 << 20;
const MEDIA_WITHIN: Duration = Duration::from_secs(30);
/// The longest key that can be the number of a question.
const LONGEST_KEY: usize = 128;

#[derive(Deserialize)]
struct Uploaded {
    id: String,
}

impl Relay {
    /// `key`: of the message's own; the connector may know it.
    pub async fn send(
        &self,
        to: &Route,
        part: &Part,
        options: &SendOptions<'_>,
        key: Option<&str>,
    ) -> Result<Receipt, Error> {
        if part.is_empty() {
            return Ok(Receipt::default());
        }
        let request = key.filter(|key| key.len() <= LONGEST_KEY).map_or_else(unique, str::to_owned);
        if let Some(receipt) = self.follow_up(to, part, options, &request).await? {
            return Ok(receipt);
        }
        let reply_to = to.reply_to.clone().filter(|id| options.reply && held_kind(id).is_none());
        let (chat_id, metadata) = (to.chat_id.clone(), self.metadata(to));
        let action = match &part.file {
            None => Action::Send { chat_id, content: part.text.clone(), reply_to, metadata },
            Some(file) => Action::SendMedia {
                chat_id,
                media_kind: shown(file.show),
                source_url: self.upload(file).await?,
                content: part.text.clone(),
                filename: Some(file.name.clone()),
                reply_to,
                metadata,
            },
        };
        let answer = self.ask(to, &action, request).await?;
        Ok(Receipt { message_id: answer.message_id, ..Receipt::default() })
    }

    /// Answers what is no message through what the connector holds of it. `None`: there is no such way, or no longer;
    /// the chat itself is left, under the same number, so that it is said once whatever became of the other.
    async fn follow_up(
        &self,
        to: &Route,
        part: &Part,
        options: &SendOptions<'_>,
        request: &str,
    ) -> Result<Option<Receipt>, Error> {
        let kind =
            to.reply_to.as_deref().filter(|_| options.reply && part.file.is_none()).and_then(held_kind);
        let (Some(kind), Some(session_key)) = (kind, options.session) else { return Ok(None) };
        let (session_key, kind) = (session_key.to_owned(), kind.to_owned());
        let content = part.text.clone();
        let action = Action::FollowUp { session_key, kind, content, metadata: self.metadata(to) };
        if !self.offers(to, action.op()) {
            return Ok(None);
        }
        match self.ask(to, &action, request.to_owned()).await {
            Ok(answer) => Ok(Some(Receipt { message_id: answer.message_id, ..Receipt::default() })),
            Err(error) if error.is_only_about_the_way() => {
                info!(platform = %to.platform, "what the connector held is gone; the chat itself is told");
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// How long the connector remembers the numbers of questions.
    pub fn key_memory(&self) -> Option<Duration> {
        let memory = self.wire.descriptor(self.platform).map(|it| it.request_memory).unwrap_or_default();
        (memory > 0).then(|| Duration::from_secs(memory))
    }

    pub async fn edit(&self, to: &Route, message_id: &str, part: &Part) -> Result<Receipt, Error> {
        let (chat_id, metadata) = (to.chat_id.clone(), self.metadata(to));
        let content = part.text.clone();
        let action = Action::Edit { chat_id, message_id: message_id.to_owned(), content, metadata };
        let answer = self.ask(to, &action, unique()).await?;
        let message_id = answer.message_id.unwrap_or_else(|| message_id.to_owned());
        Ok(Receipt { message_id: Some(message_id), ..Receipt::default() })
    }

    /// Where nothing can be taken back it stays, and whoever asks must know.
    pub async fn delete(&self, to: &Route, message_id: &str) -> Result<(), Error> {
        let (chat_id, metadata) = (to.chat_id.clone(), self.metadata(to));
        let action = Action::Delete { chat_id, message_id: message_id.to_owned(), metadata };
        if !self.offers(to, action.op()) {
            return Err(Error::of(&Answer::failed(format!("unsupported op: {}", action.op()))));
        }
        match self.ask(to, &action, unique()).await {
            Err(error) if error.kind() == Kind::NotFound => Ok(()),
            answer => answer.map(drop),
        }
    }

    pub async fn typing(&self, to: &Route) -> Result<(), Error> {
        let (chat_id, metadata) = (to.chat_id.clone(), self.metadata(to));
        self.courtesy(to, Action::Typing { chat_id, content: None, metadata }).await
    }

    pub async fn react(&self, to: &Route, mark: Mark) -> Result<(), Error> {
        let Some(message_id) = to.reply_to.clone().filter(|id| held_kind(id).is_none()) else {
            return Ok(());
        };
        let react = |emoji: &str, remove| Action::React {
            chat_id: to.chat_id.clone(),
            message_id: message_id.clone(),
            emoji: emoji.to_owned(),
            remove,
            metadata: self.metadata(to),
        };
        match mark {
            Mark::Seen => self.courtesy(to, react(SEEN, false)).await,
            Mark::Done | Mark::Failed => {
                let last = if mark == Mark::Done { DONE } else { FAILED };
                self.courtesy(to, react(SEEN, true)).await?;
                self.courtesy(to, react(last, false)).await
            }
            Mark::Cleared => self.courtesy(to, react(SEEN, true)).await,
        }
    }

    /// Files that people sent. Our credentials are shown to the connector's own files alone.
    pub async fn fetch(
        &self,
        _source: &Source,
        attachment: &Attachment,
        most: u64,
        to: &mut tokio::fs::File,
    ) -> Result<download::Fetched, download::Error> {
        if attachment.size.is_some_and(|size| size > most) {
            return Err(download::Error::TooLarge { most });
        }
        let base = self.wire.files.base();
        let own = |at: &Url| at.origin() == base.origin() && at.path().starts_with("/relay/media/");
        let token = self.wire.credentials().map(|it| petasos_core::Secret::new(control::token(&it)));
        let shown = |at: &Url| token.clone().filter(|_| own(at));
        self.wire.files.fetch(&attachment.reference, &shown, most, to).await
    }

    async fn ask(&self, to: &Route, action: &Action, request: String) -> Result<Answer, Error> {
        let answer = self.wire.ask((to.platform, to.chat_id.clone()), action, request).await?;
        if answer.success { Ok(answer) } else { Err(Error::of(&answer)) }
    }

    /// What is not offered is left out, and so is everything where nothing is let through.
    async fn courtesy(&self, to: &Route, action: Action) -> Result<(), Error> {
        let op = action.op();
        if self.wire.is_declined(to.platform, &to.chat_id) {
            return Ok(());
        }
        if !self.offers(to, op) {
            if self.wire.is_first_lack(op) {
                info!(platform = %to.platform, op, "the connector does not offer this; it is left out");
            }
            return Ok(());
        }
        self.ask(to, &action, unique()).await.map(drop)
    }

    fn offers(&self, to: &Route, op: &str) -> bool {
        self.wire.descriptor(to.platform).is_some_and(|it| it.supports(op))
    }

    fn metadata(&self, to: &Route) -> Map<String, Value> {
        let mut metadata = self.wire.metadata(to.platform, &to.chat_id);
        if let Some(thread) = &to.thread_id {
            metadata.insert("thread_id".to_owned(), thread.as_str().into());
        }
        metadata
    }

    /// The address under which the connector has the file now.
    async fn upload(&self, file: &File) -> Result<String, Error> {
        let upload = Upload::open(file).await?;
        let url = address::endpoint(&self.wire.config.url, "media");
        let mut request = self.wire.client.post(&url).header("X-Media-Filename", plain(&file.name));
        if let Some(credentials) = self.wire.credentials() {
            request = request.header(AUTHORIZATION, format!("Bearer {}", control::token(&credentials)));
        }
        let within = upload.patience(MEDIA_WITHIN);
        let answer = http::once(upload.bare(request), within).await.map_err(unsent)?;
        if answer.status != 200 {
            let after = answer.retry_after;
            let kind = if answer.status >= 500 { Kind::Transient } else { Kind::NoFiles };
            return Err(Error::Refused { kind, ambiguous: false, after, for_good: false });
        }
        let Uploaded { id } = serde_json::from_slice(&answer.body)
            .map_err(|error| Failure::Unreached(format!("column {} of its answer", error.column())))?;
        Ok(format!("{url}/{id}"))
    }
}

/// Nobody has seen a file that only the connector may have.
fn unsent(failure: Failure) -> Failure {
    match failure {
        Failure::Lost(_) | Failure::Silent(_) | Failure::TooLarge | Failure::Garbage(_) => {
            Failure::Unreached("the file did not get to the connector".to_owned())
        }
        Failure::Unreached(_) | Failure::File(_) => failure,
    }
}

/// What a header may hold.
fn plain(name: &str) -> String {
    let kept = |c: char| if c.is_ascii_graphic() || c == ' ' { c } else { '_' };
    name.chars().take(255).map(kept).collect()
}

const fn shown(show: Show) -> Media {
    match show {
        Show::Photo => Media::Image,
        Show::Voice => Media::Voice,
        Show::Audio => Media::Audio,
        Show::Video => Media::Video,
        Show::Document => Media::Document,
    }
}

const SEEN: &str = "👀";
const DONE: &str = "✅";
const FAILED: &str = "❌";
