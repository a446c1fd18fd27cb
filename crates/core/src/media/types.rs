//! File types by name, MIME type and leading bytes.

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MediaKind {
    Image,
    Audio,
    Video,
    Document,
}

/// Extension, type and kind. The first extension of a type is the one used for new files.
const TYPES: &[(&str, &str, MediaKind)] = &[
    ("jpg", "image/jpeg", MediaKind::Image),
    ("jpeg", "image/jpeg", MediaKind::Image),
    ("png", "image/png", MediaKind::Image),
    ("webp", "image/webp", MediaKind::Image),
    ("gif", "image/gif", MediaKind::Image),
    ("ogg", "audio/ogg", MediaKind::Audio),
    ("oga", "audio/ogg", MediaKind::Audio),
    ("opus", "audio/ogg", MediaKind::Audio),
    ("mp3", "audio/mpeg", MediaKind::Audio),
    ("m4a", "audio/mp4", MediaKind::Audio),
    ("wav", "audio/wav", MediaKind::Audio),
    ("flac", "audio/flac", MediaKind::Audio),
    ("mp4", "video/mp4", MediaKind::Video),
    ("mov", "video/quicktime", MediaKind::Video),
    ("webm", "video/webm", MediaKind::Video),
    ("mkv", "video/x-matroska", MediaKind::Video),
    ("pdf", "application/pdf", MediaKind::Document),
    ("zip", "application/zip", MediaKind::Document),
    ("json", "application/json", MediaKind::Document),
    ("txt", "text/plain", MediaKind::Document),
    ("log", "text/plain", MediaKind::Document),
    ("md", "text/markdown", MediaKind::Document),
    ("csv", "text/csv", MediaKind::Document),
    ("html", "text/html", MediaKind::Document),
    ("docx", "application/vnd.openxmlformats-officedocument.wordprocessingml.document", MediaKind::Document),
    ("xlsx", "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet", MediaKind::Document),
];

/// The type by file name. An unknown extension is a document.
pub fn type_of_name(name: &str) -> (&'static str, MediaKind) {
    let extension = name.rsplit_once('.').map_or("", |(_, extension)| extension);
    let known = TYPES.iter().find(|(known, ..)| known.eq_ignore_ascii_case(extension));
    known.map_or(("application/octet-stream", MediaKind::Document), |(_, mime, kind)| (mime, *kind))
}

/// The extension and kind of a MIME type; parameters behind `;` are ignored.
pub fn extension_for(mime: &str) -> Option<(&'static str, MediaKind)> {
    let bare = mime.split(';').next().unwrap_or_default().trim();
    let known = TYPES.iter().find(|(_, known, _)| known.eq_ignore_ascii_case(bare));
    known.map(|(extension, _, kind)| (*extension, *kind))
}

/// The image type by the first sixteen bytes. `None`: not an image that models and clients can show.
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
    fn determines_the_type_by_file_name() {
        for (name, mime, kind) in [
            ("a.PNG", "image/png", MediaKind::Image),
            ("song.opus", "audio/ogg", MediaKind::Audio),
            ("b.tar.zip", "application/zip", MediaKind::Document),
            ("Makefile", "application/octet-stream", MediaKind::Document),
            ("", "application/octet-stream", MediaKind::Document),
        ] {
            assert_eq!(type_of_name(name), (mime, kind), "{name}");
        }
    }

    #[test]
    fn finds_the_extension_of_a_mime_type() {
        assert_eq!(extension_for("image/jpeg"), Some(("jpg", MediaKind::Image)));
        assert_eq!(extension_for("Audio/OGG; codecs=opus"), Some(("ogg", MediaKind::Audio)));
        assert_eq!(extension_for("application/x-msdownload"), None);
        assert_eq!(extension_for(""), None);
    }

    #[test]
    fn determines_the_image_type_by_leading_bytes() {
        assert_eq!(image_type(b"\xff\xd8\xff\xe0rest"), Some("image/jpeg"));
        assert_eq!(image_type(b"\x89PNG\r\n\x1a\n...."), Some("image/png"));
        assert_eq!(image_type(b"GIF89a"), Some("image/gif"));
        assert_eq!(image_type(b"RIFF\x01\x02\x03\x04WEBPVP8 "), Some("image/webp"));
        for other in [&b"<html>"[..], b"", b"\xff\xd8", b"RIFF1234WAVE", b"%PDF-1.7"] {
            assert_eq!(image_type(other), None, "{other:?}");
        }
    }
}
