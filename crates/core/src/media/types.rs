//! What a file is: by the end of its name, by the type a platform gives it, by its first bytes.

/// What people do with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sort {
    Image,
    Audio,
    Video,
    Document,
}

/// Extension, type and sort. Of several extensions for one type the first is the one we give.
const TYPES: &[(&str, &str, Sort)] = &[
    ("jpg", "image/jpeg", Sort::Image),
    ("jpeg", "image/jpeg", Sort::Image),
    ("png", "image/png", Sort::Image),
    ("webp", "image/webp", Sort::Image),
    ("gif", "image/gif", Sort::Image),
    ("ogg", "audio/ogg", Sort::Audio),
    ("oga", "audio/ogg", Sort::Audio),
    ("opus", "audio/ogg", Sort::Audio),
    ("mp3", "audio/mpeg", Sort::Audio),
    ("m4a", "audio/mp4", Sort::Audio),
    ("wav", "audio/wav", Sort::Audio),
    ("flac", "audio/flac", Sort::Audio),
    ("mp4", "video/mp4", Sort::Video),
    ("mov", "video/quicktime", Sort::Video),
    ("webm", "video/webm", Sort::Video),
    ("mkv", "video/x-matroska", Sort::Video),
    ("pdf", "application/pdf", Sort::Document),
    ("zip", "application/zip", Sort::Document),
    ("json", "application/json", Sort::Document),
    ("txt", "text/plain", Sort::Document),
    ("log", "text/plain", Sort::Document),
    ("md", "text/markdown", Sort::Document),
    ("csv", "text/csv", Sort::Document),
    ("html", "text/html", Sort::Document),
    ("docx", "application/vnd.openxmlformats-officedocument.wordprocessingml.document", Sort::Document),
    ("xlsx", "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet", Sort::Document),
];

/// By its name alone. Nothing known about it makes it a document.
pub fn of_name(name: &str) -> (&'static str, Sort) {
    let extension = name.rsplit_once('.').map_or("", |(_, extension)| extension);
    let known = TYPES.iter().find(|(known, ..)| known.eq_ignore_ascii_case(extension));
    known.map_or(("application/octet-stream", Sort::Document), |(_, mime, sort)| (mime, *sort))
}

/// What a file of this type is called, and what it is; parameters behind `;` do not count.
pub fn extension_for(mime: &str) -> Option<(&'static str, Sort)> {
    let bare = mime.split(';').next().unwrap_or_default().trim();
    let known = TYPES.iter().find(|(_, known, _)| known.eq_ignore_ascii_case(bare));
    known.map(|(extension, _, sort)| (*extension, *sort))
}

/// The type of an image by its first bytes (sixteen are enough). `None`: none that models and clients can show.
pub fn image_type(head: &[u8]) -> Option<&'static str> {
    match head {
        [0xff, 0xd8, 0xff, ..] => Some("image/jpeg"),
        [0x89, b'P', b'N', b'G', 0x0d, 0x0a, 0x1a, 0x0a, ..] => Some("image/png"),
        [b'G', b'I', b'F', b'8', b'7' | b'9', b'a', ..] => Some("image/gif"),
        [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P', ..] => Some("image/webp"),
        _other => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_tells_what_a_file_is() {
        for (name, mime, sort) in [
            ("a.PNG", "image/png", Sort::Image),
            ("song.opus", "audio/ogg", Sort::Audio),
            ("b.tar.zip", "application/zip", Sort::Document),
            ("Makefile", "application/octet-stream", Sort::Document),
            ("", "application/octet-stream", Sort::Document),
        ] {
            assert_eq!(of_name(name), (mime, sort), "{name}");
        }
    }

    #[test]
    fn a_type_gives_one_extension() {
        assert_eq!(extension_for("image/jpeg"), Some(("jpg", Sort::Image)));
        assert_eq!(extension_for("Audio/OGG; codecs=opus"), Some(("ogg", Sort::Audio)));
        assert_eq!(extension_for("application/x-msdownload"), None);
        assert_eq!(extension_for(""), None);
    }

    #[test]
    fn an_image_is_known_by_its_first_bytes_only() {
        assert_eq!(image_type(b"\xff\xd8\xff\xe0rest"), Some("image/jpeg"));
        assert_eq!(image_type(b"\x89PNG\r\n\x1a\n...."), Some("image/png"));
        assert_eq!(image_type(b"GIF89a"), Some("image/gif"));
        assert_eq!(image_type(b"RIFF\x01\x02\x03\x04WEBPVP8 "), Some("image/webp"));
        for other in [&b"<html>"[..], b"", b"\xff\xd8", b"RIFF1234WAVE", b"%PDF-1.7"] {
            assert_eq!(image_type(other), None, "{other:?}");
        }
    }
}
