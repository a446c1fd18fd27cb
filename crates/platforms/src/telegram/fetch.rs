//! Files that people send: a handle becomes a path (`getFile`), and the path a download.

use petasos_core::message::Attachment;
use serde::Deserialize;
use serde_json::json;

use super::{Telegram, is_own_server};
use crate::download::{Error, Fetched};

/// Telegram's own server hands out nothing larger.
const MOST: u64 = 20 << 20;

#[derive(Deserialize)]
struct Found {
    file_path: Option<String>,
}

impl Telegram {
    pub async fn fetch(
        &self,
        attachment: &Attachment,
        most: u64,
        to: &mut tokio::fs::File,
    ) -> Result<Fetched, Error> {
        let most = if is_own_server(&self.config) { most } else { most.min(MOST) };
        if attachment.size.is_some_and(|size| size > most) {
            return Err(Error::TooLarge { most });
        }
        let parameters = json!({ "file_id": attachment.reference });
        let found: Found = self
            .talk
            .call("getFile", &parameters, self.config.request_timeout)
            .await
            .map_err(crate::Error::from)?;
        // Telegram keeps the path for an hour; one that has none any more is asked for again.
        let path = found.file_path.ok_or(Error::Status { status: 404, after: None })?;
        self.files.fetch(&self.address(&path), &|_| None, most, to).await
    }

    /// `<base>/bot<token>/…` has its files at `<base>/file/bot<token>/…`, unless the owner says where.
    fn address(&self, path: &str) -> String {
        let token = self.config.token.expose();
        if let Some(files) = &self.config.base_file_url {
            return format!("{files}{token}/{path}");
        }
        let base = self.config.base_url.strip_suffix("bot").unwrap_or(&self.config.base_url);
        format!("{base}file/bot{token}/{path}")
    }
}
