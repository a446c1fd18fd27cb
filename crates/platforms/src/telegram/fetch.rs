//! Downloads: `getFile` resolves a file id to a path.

use petasos_core::message::Attachment;
use serde::Deserialize;
use serde_json::json;

use super::{Telegram, is_own_server};
use crate::download::{Error, Fetched};

/// Limit of Telegram's own server.
const MAX_DOWNLOAD: u64 = 20 << 20;

#[derive(Deserialize)]
struct FileInfo {
    file_path: Option<String>,
}

impl Telegram {
    pub async fn fetch(
        &self,
        attachment: &Attachment,
        max_size: u64,
        to: &mut tokio::fs::File,
    ) -> Result<Fetched, Error> {
        let max_size = if is_own_server(&self.config) { max_size } else { max_size.min(MAX_DOWNLOAD) };
        if attachment.size.is_some_and(|size| size > max_size) {
            return Err(Error::TooLarge { max_size });
        }
        let parameters = json!({ "file_id": attachment.reference });
        let info: FileInfo = self
            .api
            .call("getFile", &parameters, self.config.request_timeout)
            .await
            .map_err(crate::Error::from)?;
        // Telegram keeps the path for an hour; a retry requests a new one.
        let path = info.file_path.ok_or(Error::Status { status: 404, after: None })?;
        self.files.fetch(&self.file_url(&path), &|_| None, max_size, to).await
    }

    /// `<base>/file/bot<token>/…`, unless `base_file_url` is set.
    fn file_url(&self, path: &str) -> String {
        let token = self.config.token.expose();
        if let Some(files) = &self.config.base_file_url {
            return format!("{files}{token}/{path}");
        }
        let base = self.config.base_url.strip_suffix("bot").unwrap_or(&self.config.base_url);
        format!("{base}file/bot{token}/{path}")
    }
}
