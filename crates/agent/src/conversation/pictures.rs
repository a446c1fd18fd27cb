//! Pictures for model requests: read from the cache on demand, only the newest.
//!
//! A missing or oversized picture is left out; its line in the text remains.

use std::collections::HashMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use petasos_core::transcript::Picture;
use tokio::io::AsyncReadExt as _;

use crate::conversation::normalise::ConversationItem;
use crate::files::protected;

/// Largest picture that every provider accepts, in bytes.
const MAX_BYTES: u64 = 5 << 20;
const MAX_PICTURES: usize = 8;

/// Base64 data by path.
#[derive(Debug, Default)]
pub(crate) struct Pictures(HashMap<String, String>);

impl Pictures {
    pub(crate) async fn load(items: &[ConversationItem]) -> Self {
        let mut found = HashMap::new();
        for picture in newest(items) {
            match read(&picture.path).await {
                Ok(Some(bytes)) => drop(found.insert(picture.path.clone(), STANDARD.encode(bytes))),
                Ok(None) => {}
                Err(error) => tracing::debug!(%error, "cannot load picture"),
            }
        }
        Self(found)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The loaded ones among `pictures`: MIME type and data.
    pub(crate) fn loaded<'a>(&'a self, pictures: &'a [Picture]) -> impl Iterator<Item = (&'a str, &'a str)> {
        pictures.iter().filter_map(|it| Some((it.mime.as_str(), self.0.get(&it.path)?.as_str())))
    }
}

fn newest(items: &[ConversationItem]) -> Vec<&Picture> {
    let named = items.iter().rev().filter_map(|item| match item {
        ConversationItem::User { pictures, .. } => Some(pictures),
        ConversationItem::Assistant { .. } | ConversationItem::Result { .. } => None,
    });
    named.flatten().take(MAX_PICTURES).collect()
}

/// `None` if the file is too large.
async fn read(path: &str) -> std::io::Result<Option<Vec<u8>>> {
    if tokio::fs::metadata(path).await?.len() > MAX_BYTES {
        return Ok(None);
    }
    let opened = protected::open_file(rustix::fs::CWD, path)?;
    let mut bytes = Vec::new();
    let mut file = tokio::fs::File::from_std(opened.into()).take(MAX_BYTES);
    file.read_to_end(&mut bytes).await?;
    Ok(Some(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn leaves_out_missing_and_oversized_pictures() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = |name: &str| folder.path().join(name).to_str().expect("text").to_owned();
        std::fs::write(path("small"), b"abc").expect("written");
        std::fs::File::create(path("large")).expect("made").set_len(MAX_BYTES + 1).expect("long enough");
        let pictures: Vec<Picture> = ["small", "large", "gone"]
            .map(|name| Picture { path: path(name), mime: "image/png".into() })
            .into();
        let items = [ConversationItem::User { text: String::new(), pictures: pictures.clone() }];
        let found = Pictures::load(&items).await;
        assert_eq!(found.loaded(&pictures).collect::<Vec<_>>(), [("image/png", "YWJj")]);
    }
}
