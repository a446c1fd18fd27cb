// The field where messages are written, and their way to the gateway.

import * as keep from './keep.js';
import { Hints } from './commands.js';

const RETRY_FIRST = 500;
const RETRY_LAST = 10_000;
const HELD = 'The gateway takes no new messages for the moment. Yours is kept here and goes out when it is back.';

/**
 * Sends the messages of one chat in order, each until the gateway has it on disk. While the gateway drains, messages
 * are held, and commands, which it still obeys, go past them.
 */
export class Sender {
  constructor(chat, transcript, { onRefused, onHeld, onSignedOut }) {
    this.chat = chat;
    this.transcript = transcript;
    this.onRefused = onRefused;
    this.onHeld = onHeld;
    this.onSignedOut = onSignedOut;
    this.queue = keep.unsent(chat).map(message => this.#show(message));
    this.held = [];
    this.accepted = [];
    this.running = false;
    this.closed = false;
    this.wake = null;
    this.run();
  }

  /** Another chat is shown; what is unsent stays in the browser and goes out when this one is opened. */
  close() {
    this.closed = true;
    this.wake?.();
    for (const shown of [...this.queue, ...this.held, ...this.accepted]) shown.remove();
  }

  say(text) {
    const message = { id: keep.freshId(20), text };
    keep.keepUnsent(this.chat, message);
    if (!isCommand(text)) this.#release(); // what was said before goes first
    this.queue.push(this.#show(message));
    this.run();
  }

  /** Called when there is reason to hope: the stream is back, or the drain is over. */
  nudge() {
    this.#release();
    this.wake?.();
    this.run();
  }

  async run() {
    if (this.running) return;
    this.running = true;
    let pause = RETRY_FIRST;
    while (this.queue.length && !this.closed) {
      const shown = this.queue[0];
      const outcome = await this.#post(shown);
      if (outcome === 'later') {
        shown.say('Not sent yet. Trying again …');
        await new Promise(done => { this.wake = done; setTimeout(done, pause); });
        pause = Math.min(pause * 2, RETRY_LAST);
        continue;
      }
      pause = RETRY_FIRST;
      this.queue.shift();
      if (outcome === 'refused') continue;
      if (outcome === 'held') { this.held.push(shown); continue; }
      keep.confirmed(this.chat, shown.id);
      this.#taken(shown);
    }
    this.running = false;
  }

  /** A user row has come: the message on its way that it stands for has arrived. */
  arrived(row) {
    const shown = [...this.accepted, ...this.queue, ...this.held].find(it => isSame(row, it));
    if (!shown) return;
    shown.remove();
    shown.here = true;
    this.accepted = this.accepted.filter(it => it !== shown);
    if (this.#unhold(shown.id)) keep.confirmed(this.chat, shown.id);
  }

  /** Nothing runs and nothing waits: whatever was accepted is in the rows, perhaps merged into one. */
  settle() {
    for (const shown of this.accepted) shown.remove();
    this.accepted = [];
  }

  /** What is held goes before everything that is not under way. */
  #release() {
    for (const shown of this.held) shown.say('Sending …');
    this.queue.splice(this.running ? 1 : 0, 0, ...this.held);
    this.held = [];
  }

  /** True when it was held. */
  #unhold(id) {
    const count = this.held.length;
    this.held = this.held.filter(it => it.id !== id);
    return this.held.length < count;
  }

  #taken(shown) {
    if (shown.here) return;
    if (isCommand(shown.text)) {
      shown.remove();
      return;
    }
    shown.say('');
    this.accepted.push(shown);
  }

  #show(message) {
    if (isCommand(message.text)) {
      this.transcript.command(message.text);
      return { ...message, say() {}, remove() {}, hold() {}, refuse: text => this.onRefused(message.text, text) };
    }
    const drop = () => { shown.remove(); this.#unhold(message.id); keep.confirmed(this.chat, message.id); };
    const shown = this.transcript.pending(message, {
      onAgain: () => this.nudge(),
      onEdit: () => { drop(); this.onRefused(message.text, ''); },
      onDiscard: () => { drop(); this.onRefused(null, ''); },
    });
    return shown;
  }

  async #post(shown) {
    let response;
    try {
      response = await fetch(`/api/chats/web/${this.chat}/messages`, {
        method: 'POST',
        headers: { 'content-type': 'application/json' },
        body: JSON.stringify({ text: shown.text, id: shown.id }),
      });
    } catch {
      return 'later';
    }
    if (response.status === 202) return 'taken';
    if (response.status === 401) { this.onSignedOut(); return 'later'; }
    const problem = await response.json().catch(() => null);
    if (problem?.error?.code === 'gateway_draining') { shown.hold(HELD); this.onHeld(); return 'held'; }
    if (response.status >= 500 || response.status === 429) return 'later';
    shown.refuse(problem?.error?.message ?? `The gateway refused this message (${response.status}).`);
    return 'refused';
  }
}

const isCommand = text => /^\/[a-z]/i.test(text);

function isSame(row, shown) {
  const id = row.platform_message_id ?? '';
  return id === shown.id || id.endsWith(`:${shown.id}`) || row.content === shown.text;
}

/** The text field: grows, keeps its draft, suggests commands. */
export class Composer {
  constructor({ form, field, hints, stop, onSend, onStop }) {
    Object.assign(this, { form, field, stop, onSend, onStop });
    this.chat = null;
    this.busy = false;
    this.hints = new Hints(hints, field, {
      fill: text => this.fill(text),
      send: text => { this.fill(text); this.#send(); },
    });
    form.addEventListener('submit', event => { event.preventDefault(); this.#send(); });
    field.addEventListener('input', () => this.#changed());
    field.addEventListener('keydown', event => this.#key(event));
    field.addEventListener('blur', () => this.hints.close());
    stop.addEventListener('click', () => onStop());
  }

  open(chat) {
    this.chat = chat;
    this.fill(keep.draft(chat));
    this.hints.close();
  }

  fill(text) {
    this.field.value = text;
    this.#changed();
    if (matchMedia('(hover: hover)').matches) this.field.focus({ preventScroll: true });
  }

  setBusy(busy) {
    this.busy = busy;
    this.stop.hidden = !busy;
  }

  #changed() {
    keep.keepDraft(this.chat, this.field.value);
    this.field.style.height = 'auto';
    this.field.style.height = `${Math.min(this.field.scrollHeight, innerHeight * 0.4)}px`;
    this.form.classList.toggle('filled', this.field.value.trim() !== '');
    this.hints.update();
  }

  #key(event) {
    if (event.isComposing) return; // an input method is still choosing characters
    if (this.hints.key(event)) {
      event.preventDefault();
    } else if (event.key === 'Enter' && !event.shiftKey) {
      event.preventDefault();
      this.#send();
    } else if (event.key === 'Escape' && this.busy) {
      this.onStop();
    }
  }

  #send() {
    const text = this.field.value.trim();
    if (!text) return;
    this.fill('');
    this.onSend(text);
  }
}
