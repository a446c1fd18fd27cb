//! Pictures on their way to a model: read from the cache when they are needed, and only the newest.
//!
//! A picture whose file is gone, or too large, is left out: its line in the text still says that it was there.

use std::collections::HashMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use petasos_core::transcript::Picture;
use tokio::io::AsyncReadExt as _;

use crate::hygiene::Item;
use crate::own_files;

/// Largest picture that every provider takes.
const LARGEST: u64 = 5 << 20;
/// Pictures that one call shows.
const MOST: usize = 8;

/// The pictures of one call by their path, in base 64.
#[derive(Debug, Default)]
pub(crate) struct Pictures(HashMap<String, String>);

impl Pictures {
    /// Those of the newest messages.
    pub(crate) async fn of(items: &[Item]) -> Self {
        let mut found = HashMap::new();
        for picture in newest(items) {
            match read(&picture.path).await {
                Ok(Some(bytes)) => drop(found.insert(picture.path.clone(), STANDARD.encode(bytes))),
                Ok(None) => {}
                Err(error) => tracing::debug!(%error, "a picture is not shown to the model"),
            }
        }
        Self(found)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Those among `pictures` that can be shown, with their types.
    pub(crate) fn shown<'a>(&'a self, pictures: &'a [Picture]) -> impl Iterator<Item = (&'a str, &'a str)> {
        pictures.iter().filter_map(|it| Some((it.mime.as_str(), self.0.get(&it.path)?.as_str())))
    }
}

fn newest(items: &[Item]) -> Vec<&Picture> {
    let named = items.iter().rev().filter_map(|item| match item {
        Item::User { pictures, .. } => Some(pictures),
        Item::Assistant { .. } | Item::Result { .. } => None,
    });
    named.flatten().take(MOST).collect()
}

/// `None`: too large to be shown.
async fn read(path: &str) -> std::io::Result<Option<Vec<u8>>> {
    if tokio::fs::metadata(path).await?.len() > LARGEST {
        return Ok(None);
    }
    let opened = own_files::open_file(rustix::fs::CWD, path)?;
    let mut bytes = Vec::new();
    let mut file = tokio::fs::File::from_std(opened.into()).take(LARGEST);
    file.read_to_end(&mut bytes).await?;
    Ok(Some(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_is_gone_or_too_large_is_left_out() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = |name: &str| folder.path().join(name).to_str().expect("text").to_owned();
        std::fs::write(path("small"), b"abc").expect("written");
        std::fs::File::create(path("large")).expect("made").set_len(LARGEST + 1).expect("long enough");
        let pictures: Vec<Picture> = ["small", "large", "gone"]
            .map(|name| Picture { path: path(name), mime: "image/png".into() })
            .into();
        let items = [Item::User { text: String::new(), pictures: pictures.clone() }];
        let found = Pictures::of(&items).await;
        assert_eq!(found.shown(&pictures).collect::<Vec<_>>(), [("image/png", "YWJj")]);
    }
}
