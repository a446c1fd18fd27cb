//! The `web_extract` tool: web pages as text.

use futures_util::future::join_all;
use petasos_agent::html_to_text;
use petasos_platforms::page::{PageFetcher, WebPage};
use serde_json::{Value, json};

use super::ErrandResult;

/// Maximum characters of one page; the caller may store what exceeds the model's share.
const MAX_CHARS: usize = 100_000;

pub(super) async fn run(pages: Option<&PageFetcher>, urls: &[String]) -> ErrandResult {
    let Some(pages) = pages else { return Err("Web pages cannot be fetched here.".to_owned()) };
    let results = join_all(urls.iter().map(|url| fetch_page(pages, url))).await;
    if let [result] = results.as_slice()
        && let Some(error) = result.get("error").and_then(Value::as_str)
    {
        return Err(error.to_owned());
    }
    Ok(json!({ "results": results }))
}

/// Fetches one page; a failure does not affect the others.
async fn fetch_page(pages: &PageFetcher, url: &str) -> Value {
    match pages.get(url).await {
        // Off the event loop: converting a long page takes time.
        Ok(page) => match petasos_runtime::blocking(move || to_json(&page)).await {
            Ok(value) => value,
            Err(_panicked) => {
                json!({"url": url, "error": format!("{url}: the page could not be converted to text")})
            }
        },
        Err(error) => json!({"url": url, "error": format!("{url}: {error}")}),
    }
}

fn to_json(page: &WebPage) -> Value {
    let text = String::from_utf8_lossy(&page.body);
    let textual = page.mime.starts_with("text/")
        || ["json", "xml", "javascript", "yaml"].iter().any(|kind| page.mime.contains(kind));
    if page.body.contains(&0) || !(textual || page.mime.is_empty()) {
        return json!({"url": page.url, "error": format!("{} is not a text page ({}).", page.url, page.mime)});
    }
    let html = page.mime.contains("html") || text.trim_start().starts_with("<!");
    let (title, text) = if html { html_to_text(&text) } else { (None, text.into_owned()) };
    let end = text.char_indices().nth(MAX_CHARS).map(|(end, _)| end);
    let content = end.map_or(text.as_str(), |end| &text[..end]);
    json!({"url": page.url, "title": title, "content": content, "truncated": page.cut || end.is_some()})
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(mime: &str, body: &str) -> WebPage {
        WebPage { url: "https://x.example/".into(), mime: mime.into(), body: body.into(), cut: false }
    }

    #[test]
    fn converts_pages_to_text_and_refuses_other_types() {
        let html = to_json(&page("text/html", "<title>T</title><p>hello <b>you</b>"));
        assert_eq!((html["title"].as_str(), html["content"].as_str()), (Some("T"), Some("T\n\nhello you")));
        assert_eq!(to_json(&page("application/json", "{\"a\":1}"))["content"], "{\"a\":1}");
        assert_eq!(to_json(&page("", "<!doctype html><p>x"))["content"], "x");
        assert!(to_json(&page("image/png", "x"))["error"].as_str().is_some());
        assert!(to_json(&page("text/plain", "a\0b"))["error"].as_str().is_some());
        let long = to_json(&page("text/plain", &"ä".repeat(MAX_CHARS + 1)));
        assert_eq!(long["truncated"], true);
        assert_eq!(long["content"].as_str().map(|text| text.chars().count()), Some(MAX_CHARS));
    }
}
