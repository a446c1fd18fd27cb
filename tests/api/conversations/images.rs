//! Images in requests and answers.

use petasos_fakes::model::{Answer, Point};
use serde_json::json;

use super::output_text;
use crate::support::SOON;
use crate::support::api::{Api, chat_body, content, streamed_text};

const PNG: &str =
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";

#[test]
fn input_images_survive_a_crash() {
    let mut api = Api::start();
    let gate = api.program.model.gate(Point::Before);
    let part = json!({ "type": "input_image", "image_url": format!("data:image/png;base64,{PNG}") });
    let input =
        json!([{ "role": "user", "content": [{ "type": "input_text", "text": "what is this" }, part] }]);
    let run = api.start_run(&json!({ "input": input }));
    assert!(gate.wait(SOON), "the model was never asked");
    api.kill_and_restart();
    gate.open();
    api.wait_run(&run, "completed");
    let asked = api.program.model.requests().pop().expect("a request").body().to_string();
    assert!(asked.contains(PNG), "the model got no image");
    // Other parts, and data that is not an image, are rejected.
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
    // A URL in the local network is not fetched, and the model learns that there is no image.
    let near = format!("{}/x.png", api.program.model.url());
    let part = json!({ "type": "image_url", "image_url": { "url": near } });
    let body =
        json!({ "messages": [{ "role": "user", "content": [{ "type": "text", "text": "look" }, part] }] });
    let reply = api.post("/v1/chat/completions", &body);
    assert_eq!(reply.status, 200, "{}", reply.body);
    assert!(content(&reply).contains("could not be read"), "{}", reply.body);
}

#[test]
fn answer_embeds_permitted_images() {
    use base64::Engine;
    let api = Api::start();
    let picture = api.program.home.path().join("workspace/cat.png");
    let bytes = base64::engine::general_purpose::STANDARD.decode(PNG).expect("a picture");
    std::fs::create_dir_all(picture.parent().expect("a folder")).expect("made");
    std::fs::write(&picture, bytes).expect("written");
    let key = api.program.home.path().join("config.yaml");
    let text = format!("Here is a cat.\nMEDIA:{}\nMEDIA:{}", picture.display(), key.display());
    api.program.model.respond(move |_| Answer::text(text.clone()));
    let shown = format!("![image](data:image/png;base64,{PNG})");
    let check = |text: &str| {
        assert!(text.contains("Here is a cat.") && text.contains(&shown), "{text}");
        assert!(text.contains("config.yaml was not sent") && !text.contains("sk-test"), "{text}");
    };
    check(&content(&api.post("/v1/chat/completions", &chat_body("a cat"))));
    let response = api.post("/v1/responses", &json!({ "input": "a cat" })).json();
    check(&output_text(&response));
    assert_eq!(
        api.get(&format!("/v1/responses/{}", response["id"].as_str().expect("an id"))).json(),
        response
    );
    let run = api.start_run(&json!({ "input": "a cat" }));
    check(api.wait_run(&run, "completed")["output"].as_str().expect("an output"));
    let mut body = chat_body("a cat");
    body["stream"] = json!(true);
    check(&streamed_text(&api.stream("/v1/chat/completions", &body).rest()));
}
