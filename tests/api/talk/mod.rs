//! Conversations of programs with the real gateway: responses, sessions, jobs, keys, pages of others, and a gateway that
//! wants to rest.

mod keys;
mod pictures;
mod responses;
mod sessions;
mod work;

use crate::support::api::Api;
use crate::support::http::Reply;
use serde_json::Value;

fn text_of(response: &Value) -> String {
    let items = response["output"].as_array().expect("items").iter();
    let messages = items.filter(|item| item["type"] == "message");
    messages.map(|item| item["content"][0]["text"].as_str().expect("a text")).collect()
}

fn id_of(reply: &Reply) -> String {
    assert_eq!(reply.status, 200, "{}", reply.body);
    reply.json()["id"].as_str().expect("an id").to_owned()
}

/// What the model was shown last, without what the system says.
fn shown(api: &Api) -> Vec<String> {
    let asked = api.bench.model.requests().pop().expect("a request");
    let said = asked.messages().iter().filter(|it| it["role"] != "system");
    said.map(|it| it["content"].as_str().unwrap_or_default().to_owned()).collect()
}
