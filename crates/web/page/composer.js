// The message field, and the queue that sends messages to the gateway.

import * as storage from './storage.js';
import { Hints } from './commands.js';

const RETRY_FIRST = 500;
const RETRY_LAST = 10_000;
const HELD = 'The gateway accepts no new messages at the moment. Your message is kept here and sent automatically later.';

/**
 * Sends the messages of one chat in order and retries each until the gateway has stored it. During a drain, messages
 * are held; commands overtake them, because the gateway still accepts commands.
 */
export class Sender {
  constructor(chat, transcript, { onRejected, onHeld, onSignedOut }) {
    this.chat = chat;
    this.transcript = transcript;
    this.onRejected = onRejected;
    this.onHeld = onHeld;
    this.onSignedOut = onSignedOut;
    this.queue = storage.unsent(chat).map(message => this.#show(message));
    this.held = [];
    this.accepted = [];
    this.running = false;
    this.closed = false;
    this.wake = null;
    this.run();
  }

  /** Stops sending. Unsent messages stay in the browser and are sent when the chat is opened again. */
  close() {
    this.closed = true;
    this.wake?.();
    for (const shown of [...this.queue, ...this.held, ...this.accepted]) shown.remove();
  }

  send(text) {
    const message = { id: storage.freshId(20), text };
    storage.addUnsent(this.chat, message);
    if (!isCommand(text)) this.#release(); // earlier messages go first
    this.queue.push(this.#show(message));
    this.run();
  }

  /** Retries at once, after a reconnect or a drain. */
  retryNow() {
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
      const outcome = await this.#submit(shown);
      if (outcome === 'later') {
        shown.setStatus('Not sent yet. Trying again …');
        await new Promise(done => { this.wake = done; setTimeout(done, pause); });
        pause = Math.min(pause * 2, RETRY_LAST);
        continue;
      }
      pause = RETRY_FIRST;
      this.queue.shift();
      if (outcome === 'rejected') continue;
      if (outcome === 'held') { this.held.push(shown); continue; }
      storage.removeUnsent(this.chat, shown.id);
      this.#accept(shown);
    }
    this.running = false;
  }

  /** Removes the pending message that a stored row corresponds to. */
  rowArrived(row) {
    const shown = [...this.accepted, ...this.queue, ...this.held].find(it => isSame(row, it));
    if (!shown) return;
    shown.remove();
    shown.isStored = true;
    this.accepted = this.accepted.filter(it => it !== shown);
    if (this.#removeHeld(shown.id)) storage.removeUnsent(this.chat, shown.id);
  }

  /** Removes all accepted messages: with no running turn and no queue, they are in the rows, possibly merged. */
  clearAccepted() {
    for (const shown of this.accepted) shown.remove();
    this.accepted = [];
  }

  /** Moves held messages to the front of the queue, behind the one being sent. */
  #release() {
    for (const shown of this.held) shown.setStatus('Sending …');
    this.queue.splice(this.running ? 1 : 0, 0, ...this.held);
    this.held = [];
  }

  /** True if the message was held. */
  #removeHeld(id) {
    const count = this.held.length;
    this.held = this.held.filter(it => it.id !== id);
    return this.held.length < count;
  }

  #accept(shown) {
    if (shown.isStored) return;
    if (isCommand(shown.text)) {
      shown.remove();
      return;
    }
    shown.setStatus('');
    this.accepted.push(shown);
  }

  #show(message) {
    if (isCommand(message.text)) {
      this.transcript.command(message.text);
      return { ...message, setStatus() {}, remove() {}, hold() {}, reject: text => this.onRejected(message.text, text) };
    }
    const discard = () => { shown.remove(); this.#removeHeld(message.id); storage.removeUnsent(this.chat, message.id); };
    const shown = this.transcript.pending(message, {
      onAgain: () => this.retryNow(),
      onEdit: () => { discard(); this.onRejected(message.text, ''); },
      onDiscard: () => { discard(); this.onRejected(null, ''); },
    });
    return shown;
  }

  async #submit(shown) {
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
    if (response.status === 202) return 'accepted';
    if (response.status === 401) { this.onSignedOut(); return 'later'; }
    const problem = await response.json().catch(() => null);
    if (problem?.error?.code === 'gateway_draining') { shown.hold(HELD); this.onHeld(); return 'held'; }
    if (response.status >= 500 || response.status === 429) return 'later';
    shown.reject(problem?.error?.message ?? `The gateway rejected this message (status ${response.status}).`);
    return 'rejected';
  }
}

const isCommand = text => /^\/[a-z]/i.test(text);

function isSame(row, shown) {
  const id = row.platform_message_id ?? '';
  return id === shown.id || id.endsWith(`:${shown.id}`) || row.content === shown.text;
}

/** The text field: grows with its text, saves its draft, suggests commands. */
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
    this.fill(storage.draft(chat));
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
    storage.saveDraft(this.chat, this.field.value);
    this.field.style.height = 'auto';
    this.field.style.height = `${Math.min(this.field.scrollHeight, innerHeight * 0.4)}px`;
    this.form.classList.toggle('filled', this.field.value.trim() !== '');
    this.hints.update();
  }

  #key(event) {
    if (event.isComposing) return; // an input method is active
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
