"""The OpenAI Python SDK against a running gateway at PETASOS_URL with PETASOS_KEY. The model echoes its input."""

import os

from openai import APIStatusError, OpenAI

URL, KEY = os.environ["PETASOS_URL"], os.environ["PETASOS_KEY"]
client = OpenAI(base_url=f"{URL}/v1", api_key=KEY, max_retries=0)


def models():
    assert [model.id for model in client.models.list()] == ["petasos"]


def chat():
    messages = [{"role": "system", "content": "be brief"}, {"role": "user", "content": "one"}]
    answer = client.chat.completions.create(model="petasos", messages=messages)
    assert answer.choices[0].message.content == "echo: one", answer
    assert answer.choices[0].finish_reason == "stop" and answer.usage.total_tokens >= 0
    messages += [{"role": "assistant", "content": "echo: one"}, {"role": "user", "content": "two"}]
    assert client.chat.completions.create(model="petasos", messages=messages).choices[0].message.content == "echo: two"


def streamed_chat():
    messages = [{"role": "user", "content": "stream this please"}]
    chunks = list(client.chat.completions.create(model="petasos", messages=messages, stream=True))
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert text == "echo: stream this please", text
    assert chunks[-1].choices[0].finish_reason == "stop" and chunks[-1].usage is not None


def responses():
    first = client.responses.create(model="petasos", input="hello", instructions="be kind")
    assert first.status == "completed" and first.output_text == "echo: hello", first
    assert client.responses.retrieve(first.id).output_text == "echo: hello"
    second = client.responses.create(model="petasos", input="again", previous_response_id=first.id)
    assert second.output_text == "echo: again"
    client.responses.delete(first.id)
    try:
        client.responses.retrieve(first.id)
        raise AssertionError("a deleted response was returned")
    except APIStatusError as error:
        assert error.status_code == 404


def streamed_responses():
    events = list(client.responses.create(model="petasos", input="flow", stream=True))
    kinds = [event.type for event in events]
    assert kinds[0] == "response.created" and kinds[-1] == "response.completed", kinds
    assert "".join(event.delta for event in events if event.type == "response.output_text.delta") == "echo: flow"
    assert [event.sequence_number for event in events] == list(range(len(events)))
    with client.responses.stream(model="petasos", input="managed") as stream:
        for _ in stream:
            pass
        assert stream.get_final_response().output_text == "echo: managed"


def tools_are_shown():
    events = list(client.responses.create(model="petasos", input="tool:clock", stream=True))
    items = [event.item.type for event in events if event.type == "response.output_item.done"]
    assert items == ["function_call", "function_call_output", "message"], items


def background():
    response = client.responses.create(model="petasos", input="later", background=True)
    assert response.status in ("queued", "in_progress", "completed"), response.status
    while response.status in ("queued", "in_progress"):
        response = client.responses.retrieve(response.id)
    assert response.output_text == "echo: later"


def errors():
    try:
        OpenAI(base_url=f"{URL}/v1", api_key="wrong", max_retries=0).models.list()
        raise AssertionError("a wrong key was accepted")
    except APIStatusError as error:
        assert error.status_code == 401 and error.code == "invalid_api_key"
    try:
        client.chat.completions.create(model="petasos", messages=[])
        raise AssertionError("a request without messages was accepted")
    except APIStatusError as error:
        assert error.status_code == 400


for check in [models, chat, streamed_chat, responses, streamed_responses, tools_are_shown, background, errors]:
    check()
    print("ok", check.__name__)
