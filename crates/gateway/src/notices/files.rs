//! Files of messages, in both directions.

use std::fmt::Display;

/// Prefix of a message that may be a duplicate. Contains no character that any markup reserves. Key phrase: "Recovered reply, may be
/// a duplicate".
pub(crate) const DUPLICATE_PREFIX: &str = "♻️ Recovered reply, may be a duplicate\n\n";

pub(crate) const UNREADABLE_PICTURE: &str = "📎 A file could not be read.";

pub(crate) const TYPE_NOT_ALLOWED: &str = "I may not send files of this kind here";
pub(crate) const REFUSED_BY_PLATFORM: &str = "the platform did not accept it";

/// Reasons of [`not_sent`].
pub(crate) const MISSING: &str = "it does not exist";
pub(crate) const NOT_A_FILE: &str = "it is not a file";
pub(crate) const UNREADABLE: &str = "it cannot be read";
/// Does not reveal whether the file exists.
pub(crate) const NOT_ALLOWED: &str = "I may not send this file";
pub(crate) const NOT_RECENT: &str = "I may only send new files and files from the allowed folders";
pub(crate) const HARD_LINK: &str = "it is a hard link, but a copy of it can be sent";
pub(crate) const NO_FILES_HERE: &str = "files cannot be sent here";
pub(crate) const PICTURES_ONLY: &str = "only pictures can be sent here";

/// Reasons of [`not_received`]; the model reads them too.
pub(crate) const DOWNLOAD_FAILED: &str = "downloading it failed";
pub(crate) const TOO_MANY: &str = "there are too many files in one message";
pub(crate) const NO_DOWNLOAD_HERE: &str = "files cannot be received here";
pub(crate) const EMPTY: &str = "it is empty";
pub(crate) const NO_PICTURE: &str = "it is not a picture that can be shown";

/// Behind a message whose end was dropped.
pub(crate) const MESSAGE_CUT: &str = "\n[The rest of this message was cut: it is longer than 1 MB.]";

pub(crate) fn not_received(kind: &str, name: &str, reason: impl Display) -> String {
    format!("⚠️ I could not read your {kind}{name}: {reason}.")
}

pub(crate) fn not_sent(name: &str, reason: impl Display) -> String {
    format!("📎 {name} was not sent: {reason}.")
}

pub(crate) fn too_large(megabytes: u64, limit: u64, platform: &str) -> String {
    format!("it has {megabytes} MB, but {platform} accepts at most {limit} MB")
}

/// An answer that consists of files only, in the place of its preview.
pub(crate) fn names(names: &[String]) -> String {
    format!("📎 {}", names.join(", "))
}
