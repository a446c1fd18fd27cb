//! Outbound operations: one request over the shared connection, one answer, one attempt.

use std::time::Duration;

use petasos_core::message::Attachment;
use petasos_core::{Route, Source};
use petasos_relay::action::held_kind;
use petasos_relay::{Action, Answer, Media, address};
use petasos_runtime::random;
use reqwest::Url;
use reqwest::header::AUTHORIZATION;
use serde::Deserialize;
use serde_json::{Map, Value};
use tracing::info;

use super::{Error, Relay, control};
use crate::http::{self, HttpError};
use crate::upload::Upload;
use crate::{Kind, MediaKind, OutgoingFile, Part, Receipt, SendOptions, StatusReaction, download};

pub(super) const LARGEST_FILE: u64 = 25 << 20;
const MEDIA_WITHIN: Duration = Duration::from_secs(30);
const LONGEST_KEY: usize = 128;

#[derive(Deserialize)]
struct UploadReply {
    id: String,
}

impl Relay {
    /// `key`: idempotency key, which the connector may recognise.
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
        let request =
            key.filter(|key| key.len() <= LONGEST_KEY).map_or_else(random::hex::<16>, str::to_owned);
        if let Some(receipt) = self.follow_up(to, part, options, &request).await? {
            return Ok(receipt);
        }
        let reply_to = to.reply_to.clone().filter(|id| options.reply && held_kind(id).is_none());
        let chat_id = to.chat_id.clone();
        let metadata = self.metadata(to);
        let action = match &part.file {
            None => Action::Send { chat_id, content: part.text.clone(), reply_to, metadata },
            Some(file) => Action::SendMedia {
                chat_id,
                media_kind: media_of(file.show),
                source_url: self.upload(file).await?,
                content: part.text.clone(),
                filename: Some(file.name.clone()),
                reply_to,
                metadata,
            },
        };
        let answer = self.request(to, &action, request).await?;
        Ok(Receipt { message_id: answer.message_id, ..Receipt::default() })
    }

    /// Answers an interaction through the connector's permission. `None`: expired; the caller then writes to the chat
    /// under the same request id, so that the message is sent once.
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
        let session_key = session_key.to_owned();
        let kind = kind.to_owned();
        let content = part.text.clone();
        let action = Action::FollowUp { session_key, kind, content, metadata: self.metadata(to) };
        if !self.offers(to, action.op()) {
            return Ok(None);
        }
        match self.request(to, &action, request.to_owned()).await {
            Ok(answer) => Ok(Some(Receipt { message_id: answer.message_id, ..Receipt::default() })),
            Err(error) if error.is_only_about_the_way() => {
                info!(platform = %to.platform, "interaction permission expired; sending to the chat");
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    pub fn idempotency_window(&self) -> Option<Duration> {
        let memory = self.wire.descriptor(self.platform).map(|it| it.request_memory).unwrap_or_default();
        (memory > 0).then(|| Duration::from_secs(memory))
    }

    pub async fn edit(&self, to: &Route, message_id: &str, part: &Part) -> Result<Receipt, Error> {
        let chat_id = to.chat_id.clone();
        let metadata = self.metadata(to);
        let content = part.text.clone();
        let action = Action::Edit { chat_id, message_id: message_id.to_owned(), content, metadata };
        let answer = self.request(to, &action, random::hex::<16>()).await?;
        let message_id = answer.message_id.unwrap_or_else(|| message_id.to_owned());
        Ok(Receipt { message_id: Some(message_id), ..Receipt::default() })
    }

    /// Unsupported deletions fail visibly.
    pub async fn delete(&self, to: &Route, message_id: &str) -> Result<(), Error> {
        let chat_id = to.chat_id.clone();
        let metadata = self.metadata(to);
        let action = Action::Delete { chat_id, message_id: message_id.to_owned(), metadata };
        if !self.offers(to, action.op()) {
            return Err(Error::of(&Answer::failed(format!("unsupported op: {}", action.op()))));
        }
        match self.request(to, &action, random::hex::<16>()).await {
            Err(error) if error.kind() == Kind::NotFound => Ok(()),
            answer => answer.map(drop),
        }
    }

    pub async fn typing(&self, to: &Route) -> Result<(), Error> {
        let chat_id = to.chat_id.clone();
        let metadata = self.metadata(to);
        self.best_effort(to, Action::Typing { chat_id, content: None, metadata }).await
    }

    pub async fn react(&self, to: &Route, mark: StatusReaction) -> Result<(), Error> {
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
            StatusReaction::Seen => self.best_effort(to, react(SEEN, false)).await,
            StatusReaction::Done | StatusReaction::Failed => {
                let last = if mark == StatusReaction::Done { DONE } else { FAILED };
                self.best_effort(to, react(SEEN, true)).await?;
                self.best_effort(to, react(last, false)).await
            }
            StatusReaction::Cleared => self.best_effort(to, react(SEEN, true)).await,
        }
    }

    /// Downloads a file. Credentials are sent only to the connector's own files.
    pub async fn fetch(
        &self,
        _source: &Source,
        attachment: &Attachment,
        max_size: u64,
        to: &mut tokio::fs::File,
    ) -> Result<download::Fetched, download::Error> {
        if attachment.size.is_some_and(|size| size > max_size) {
            return Err(download::Error::TooLarge { max_size });
        }
        let base = self.wire.files.base();
        let own = |at: &Url| at.origin() == base.origin() && at.path().starts_with("/relay/media/");
        let token = self.wire.credentials().map(|it| petasos_core::Secret::new(control::token(&it)));
        let shown = |at: &Url| token.clone().filter(|_| own(at));
        self.wire.files.fetch(&attachment.reference, &shown, max_size, to).await
    }

    async fn request(&self, to: &Route, action: &Action, request: String) -> Result<Answer, Error> {
        let answer = self.wire.request((to.platform, to.chat_id.clone()), action, request).await?;
        if answer.success { Ok(answer) } else { Err(Error::of(&answer)) }
    }

    /// Best effort: skipped if unsupported or refused.
    async fn best_effort(&self, to: &Route, action: Action) -> Result<(), Error> {
        let op = action.op();
        if self.wire.is_declined(to.platform, &to.chat_id) {
            return Ok(());
        }
        if !self.offers(to, op) {
            if self.wire.is_first_use_of_missing(op) {
                info!(platform = %to.platform, op, "operation not supported by the connector; skipped");
            }
            return Ok(());
        }
        self.request(to, &action, random::hex::<16>()).await.map(drop)
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

    async fn upload(&self, file: &OutgoingFile) -> Result<String, Error> {
        let upload = Upload::open(file).await?;
        let url = address::endpoint(&self.wire.config.url, "media");
        let mut request = self.wire.client.post(&url).header("X-Media-Filename", header_safe(&file.name));
        if let Some(credentials) = self.wire.credentials() {
            request = request.header(AUTHORIZATION, format!("Bearer {}", control::token(&credentials)));
        }
        let within = upload.timeout(MEDIA_WITHIN);
        let answer = http::send(upload.raw_body(request), within).await.map_err(unsent)?;
        if answer.status != 200 {
            let after = answer.retry_after;
            let kind = if answer.status >= 500 { Kind::Transient } else { Kind::NoFiles };
            return Err(Error::Refused { kind, ambiguous: false, after, for_good: false });
        }
        let UploadReply { id } = serde_json::from_slice(&answer.body)
            .map_err(|error| HttpError::ConnectFailed(format!("column {} of its answer", error.column())))?;
        Ok(format!("{url}/{id}"))
    }
}

/// An upload has no visible effect.
fn unsent(failure: HttpError) -> HttpError {
    match failure {
        HttpError::ConnectionLost(_)
        | HttpError::Timeout(_)
        | HttpError::TooLarge
        | HttpError::Malformed(_) => {
            HttpError::ConnectFailed("the file did not get to the connector".to_owned())
        }
        HttpError::ConnectFailed(_) | HttpError::UnreadableFile(_) => failure,
    }
}

/// Removes characters that a header cannot hold.
fn header_safe(name: &str) -> String {
    let kept = |c: char| if c.is_ascii_graphic() || c == ' ' { c } else { '_' };
    name.chars().take(255).map(kept).collect()
}

const fn media_of(show: MediaKind) -> Media {
    match show {
        MediaKind::Photo => Media::Image,
        MediaKind::Voice => Media::Voice,
        MediaKind::Audio => Media::Audio,
        MediaKind::Video => Media::Video,
        MediaKind::Document => Media::Document,
    }
}

const SEEN: &str = "👀";
const DONE: &str = "✅";
const FAILED: &str = "❌";
