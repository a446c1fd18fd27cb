//! Responses, sessions, images, keys, jobs, limits and health.

mod images;
mod keys;
mod operations;
mod responses;
mod sessions;

use crate::support::api::Api;
use crate::support::http::HttpResponse;
use serde_json::Value;

fn output_text(response: &Value) -> String {
    let items = response["output"].as_array().expect("items").iter();
    let messages = items.filter(|item| item["type"] == "message");
    messages.map(|item| item["content"][0]["text"].as_str().expect("a text")).collect()
}

fn expect_id(reply: &HttpResponse) -> String {
    assert_eq!(reply.status, 200, "{}", reply.body);
    reply.json()["id"].as_str().expect("an id").to_owned()
}

fn last_model_input(api: &Api) -> Vec<String> {
    let asked = api.program.model.requests().pop().expect("a request");
    let messages = asked.messages().iter().filter(|it| it["role"] != "system");
    messages.map(|it| it["content"].as_str().unwrap_or_default().to_owned()).collect()
}
