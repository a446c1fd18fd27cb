//! Pages of the open internet as text.

use futures_util::future::join_all;
use petasos_agent::readable;
use petasos_platforms::page::{Page, Pages};
use serde_json::{Value, json};

use super::Outcome;

/// Characters of one page; the caller may keep what is too much for the model elsewhere.
const MOST: usize = 100_000;

pub(super) async fn run(pages: Option<&Pages>, urls: &[String]) -> Outcome {
    let Some(pages) = pages else { return Err("Pages cannot be fetched here.".to_owned()) };
    let results = join_all(urls.iter().map(|url| one(pages, url))).await;
    if let [result] = results.as_slice()
        && let Some(error) = result.get("error").and_then(Value::as_str)
    {
        return Err(error.to_owned());
    }
    Ok(json!({ "results": results }))
}

/// One page's failure is not the others'.
async fn one(pages: &Pages, url: &str) -> Value {
    match pages.get(url).await {
        // A long page takes its time; nobody else has to wait for it.
        Ok(page) => match petasos_runtime::blocking(move || shown(&page)).await {
            Ok(value) => value,
            Err(_panicked) => json!({"url": url, "error": format!("{url}: it could not be read")}),
        },
        Err(error) => json!({"url": url, "error": format!("{url}: {error}")}),
    }
}

fn shown(page: &Page) -> Value {
    let text = String::from_utf8_lossy(&page.body);
    let textual = page.mime.starts_with("text/")
        || ["json", "xml", "javascript", "yaml"].iter().any(|kind| page.mime.contains(kind));
    if page.body.contains(&0) || !(textual || page.mime.is_empty()) {
        return json!({"url": page.url, "error": format!("{} is no text ({}).", page.url, page.mime)});
    }
    let html = page.mime.contains("html") || text.trim_start().starts_with("<!");
    let (title, text) = if html { readable(&text) } else { (None, text.into_owned()) };
    let end = text.char_indices().nth(MOST).map(|(end, _)| end);
    let content = end.map_or(text.as_str(), |end| &text[..end]);
    json!({"url": page.url, "title": title, "content": content, "truncated": page.cut || end.is_some()})
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(mime: &str, body: &str) -> Page {
        Page { url: "https://x.example/".into(), mime: mime.into(), body: body.into(), cut: false }
    }

    #[test]
    fn pages_are_text_and_what_is_none_is_refused() {
        let html = shown(&page("text/html", "<title>T</title><p>hello <b>you</b>"));
        assert_eq!((html["title"].as_str(), html["content"].as_str()), (Some("T"), Some("T\n\nhello you")));
        assert_eq!(shown(&page("application/json", "{\"a\":1}"))["content"], "{\"a\":1}");
        assert_eq!(shown(&page("", "<!doctype html><p>x"))["content"], "x");
        assert!(shown(&page("image/png", "x"))["error"].as_str().is_some());
        assert!(shown(&page("text/plain", "a\0b"))["error"].as_str().is_some());
        let long = shown(&page("text/plain", &"ä".repeat(MOST + 1)));
        assert_eq!(long["truncated"], true);
        assert_eq!(long["content"].as_str().map(|text| text.chars().count()), Some(MOST));
    }
}
