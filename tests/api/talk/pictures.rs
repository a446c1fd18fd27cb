//! Pictures that come in and go out.

use petasos_fakes::model::{Answer, Point};
use serde_json::json;

use super::text_of;
use crate::support::SOON;
use crate::support::api::{Api, content, joined, said};

const PNG: &str =
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";

#[test]
fn pictures_come_in_and_outlive_a_crash() {
    let mut api = Api::start();
    let gate = api.bench.model.gate(Point::Before);
    let part = json!({ "type": "input_image", "image_url": format!("data:image/png;base64,{PNG}") });
    let input =
        json!([{ "role": "user", "content": [{ "type": "input_text", "text": "what is this" }, part] }]);
    let run = api.start_run(&json!({ "input": input }));
    assert!(gate.wait(SOON), "the model was never asked");
    api.crash();
    gate.open();
    api.await_run(&run, "completed");
    let asked = api.bench.model.requests().pop().expect("a request").body().to_string();
    assert!(asked.contains(PNG), "the model saw no picture");
    // Nothing but pictures, and what calls itself one is one.
    for (part, code) in [
        (json!({ "type": "image_url", "image_url": { "url": "file:///etc/passwd" } }), "invalid_image_url"),
        (
            json!({ "type": "image_url", "image_url": { "url": "data:text/html;base64,PGI+" } }),
            "invalid_image_url",
        ),
        (json!({ "type": "input_file", "file_id": "x" }), "unsupported_content_type"),
    ] {
        let reply =
            api.post("/v1/chat/completions", &json!({ "messages": [{ "role": "user", "content": [part] }] }));
        assert_eq!((reply.status, &reply.json()["error"]["code"]), (400, &json!(code)));
        assert_eq!(reply.json()["error"]["param"], "messages[0].content");
    }
    // An address within our own network is not asked, and the model hears that there is no picture.
    let near = format!("{}/x.png", api.bench.model.url());
    let part = json!({ "type": "image_url", "image_url": { "url": near } });
    let body =
        json!({ "messages": [{ "role": "user", "content": [{ "type": "text", "text": "look" }, part] }] });
    let reply = api.post("/v1/chat/completions", &body);
    assert_eq!(reply.status, 200, "{}", reply.body);
    assert!(content(&reply).contains("could not be read"), "{}", reply.body);
}

#[test]
fn pictures_that_an_answer_names_are_in_it_if_they_may_leave() {
    use base64::Engine;
    let api = Api::start();
    let picture = api.bench.home.path().join("workspace/cat.png");
    let bytes = base64::engine::general_purpose::STANDARD.decode(PNG).expect("a picture");
    std::fs::create_dir_all(picture.parent().expect("a folder")).expect("made");
    std::fs::write(&picture, bytes).expect("written");
    let key = api.bench.home.path().join("config.yaml");
    let text = format!("Here is a cat.\nMEDIA:{}\nMEDIA:{}", picture.display(), key.display());
    api.bench.model.respond(move |_| Answer::text(text.clone()));
    let shown = format!("![image](data:image/png;base64,{PNG})");
    let fine = |text: &str| {
        assert!(text.contains("Here is a cat.") && text.contains(&shown), "{text}");
        assert!(text.contains("config.yaml was not sent") && !text.contains("sk-test"), "{text}");
    };
    fine(&content(&api.post("/v1/chat/completions", &said("a cat"))));
    let response = api.post("/v1/responses", &json!({ "input": "a cat" })).json();
    fine(&text_of(&response));
    assert_eq!(
        api.get(&format!("/v1/responses/{}", response["id"].as_str().expect("an id"))).json(),
        response
    );
    let run = api.start_run(&json!({ "input": "a cat" }));
    fine(api.await_run(&run, "completed")["output"].as_str().expect("an output"));
    let mut body = said("a cat");
    body["stream"] = json!(true);
    fine(&joined(&api.stream("/v1/chat/completions", &body).rest()));
}
