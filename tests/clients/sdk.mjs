// The OpenAI Node SDK against a running gateway at PETASOS_URL with PETASOS_KEY. The model echoes its input.

import assert from 'node:assert/strict';
import OpenAI from 'openai';

const { PETASOS_URL: url, PETASOS_KEY: apiKey } = process.env;
const client = new OpenAI({ baseURL: `${url}/v1`, apiKey, maxRetries: 0 });
const model = 'petasos';

const chat = await client.chat.completions.create({ model, messages: [{ role: 'user', content: 'hi' }] });
assert.equal(chat.choices[0].message.content, 'echo: hi');

let text = '';
let finish;
const stream = await client.chat.completions.create({ model, stream: true, messages: [{ role: 'user', content: 'flow' }] });
for await (const chunk of stream) {
  text += chunk.choices[0]?.delta?.content ?? '';
  finish = chunk.choices[0]?.finish_reason ?? finish;
}
assert.equal(text, 'echo: flow');
assert.equal(finish, 'stop');

const first = await client.responses.create({ model, input: 'hello' });
assert.equal(first.output_text, 'echo: hello');
const second = await client.responses.create({ model, input: 'again', previous_response_id: first.id });
assert.equal(second.output_text, 'echo: again');

const kinds = [];
let streamed = '';
for await (const event of await client.responses.create({ model, input: 'tool:clock', stream: true })) {
  kinds.push(event.type);
  if (event.type === 'response.output_text.delta') streamed += event.delta;
}
assert.equal(kinds[0], 'response.created');
assert.equal(kinds.at(-1), 'response.completed');
assert.ok(kinds.filter((it) => it === 'response.output_item.done').length >= 3, kinds.join(' '));
assert.ok(streamed.length > 0);

await assert.rejects(
  new OpenAI({ baseURL: `${url}/v1`, apiKey: 'wrong', maxRetries: 0 }).models.list(),
  (error) => error.status === 401 && error.code === 'invalid_api_key',
);
console.log('ok');
