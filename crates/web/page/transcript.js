// The conversation on the page: stored rows, the growing answer, and pending messages of the user.

import { render } from './markdown.js';

const FRAME = 40;

export class Transcript {
  constructor(nodes) {
    Object.assign(this, nodes); // scroll, rows, activity, waiting, toBottom
    this.live = null;
    this.drawing = 0;
    this.seen = new Set();
    this.atBottom = true;
    this.scroll.addEventListener('scroll', () => this.#scrolled(), { passive: true });
    this.toBottom.addEventListener('click', () => this.jump());
    new ResizeObserver(() => this.#stick()).observe(this.scroll);
  }

  clear() {
    clearTimeout(this.drawing);
    this.drawing = 0;
    this.live = null;
    this.seen.clear();
    this.rows.replaceChildren();
    this.tools([]);
    this.jump();
  }

  get isEmpty() {
    return !this.rows.firstChild && !this.waiting.firstChild;
  }

  row(row) {
    if (this.seen.has(row.id)) return;
    this.seen.add(row.id);
    const node = draw(row);
    if (!node) return;
    if (row.role === 'assistant') this.endLive();
    this.rows.insertBefore(node, this.live?.node ?? null);
    this.#stick();
  }

  /** Updates the growing answer: `text` continues it at `offset`; at 0 it replaces it. */
  grow({ turn, step, offset, text }) {
    const known = this.live?.turn === turn && this.live.step === step;
    if (offset !== 0 && !known) return; // the end of an answer that is already a row
    if (!known) {
      this.endLive();
      const node = bubble('assistant');
      node.classList.add('live');
      // Screen readers announce the finished answer, not each word.
      node.setAttribute('aria-busy', 'true');
      this.live = { turn, step, text: '', node };
      this.rows.append(node);
    }
    this.live.text = offset === 0 ? text : this.live.text + text;
    // Not an animation frame: background tabs get none.
    this.drawing ||= setTimeout(() => this.#draw(), FRAME);
  }

  endLive() {
    clearTimeout(this.drawing);
    this.drawing = 0;
    this.live?.node.remove();
    this.live = null;
  }

  tools(names) {
    this.activity.hidden = names.length === 0;
    this.activity.textContent = names.length ? `Using ${names.join(', ')} …` : '';
    this.#stick();
  }

  /** Shows a message of the user that is not a row yet. */
  pending(message, { onAgain, onEdit, onDiscard }) {
    const node = bubble('user');
    node.classList.add('pending');
    node.dataset.id = message.id;
    node.querySelector('.body').textContent = message.text;
    const state = document.createElement('div');
    state.className = 'state';
    node.append(state);
    this.waiting.append(node);
    this.jump();
    return {
      text: message.text,
      id: message.id,
      setStatus: text => { state.textContent = text; },
      hold: text => {
        state.replaceChildren(`${text} `, button('Try now', onAgain), ' ', button('Edit', onEdit), ' ', button('Discard', onDiscard));
        this.#stick();
      },
      reject: text => {
        node.classList.add('refused');
        state.replaceChildren(`${text} `, button('Edit', onEdit), ' ', button('Discard', onDiscard));
        // It keeps its position; later rows are shown below it.
        this.rows.insertBefore(node, this.live?.node ?? null);
        this.#stick();
      },
      remove: () => node.remove(),
    };
  }

  /** Shows a command, which has no row, until the page is reloaded. */
  command(text) {
    const node = bubble('user');
    node.classList.add('command');
    node.querySelector('.body').textContent = text;
    this.rows.insertBefore(node, this.live?.node ?? null);
    this.jump();
  }

  jump() {
    this.atBottom = true;
    this.#stick();
  }

  #draw() {
    this.drawing = 0;
    if (!this.live) return;
    const body = this.live.node.querySelector('.body');
    render(body, this.live.text);
    caret(body);
    this.#stick();
  }

  #scrolled() {
    const { scrollTop, scrollHeight, clientHeight } = this.scroll;
    this.atBottom = scrollHeight - scrollTop - clientHeight < 48;
    this.toBottom.hidden = this.atBottom;
  }

  #stick() {
    if (!this.atBottom) return;
    this.scroll.scrollTop = this.scroll.scrollHeight;
    this.toBottom.hidden = true;
  }
}

function draw(row) {
  if (row.role === 'tool') return toolResult(row);
  const calls = row.tool_calls ?? [];
  const kind = row.role === 'user' || row.role === 'assistant' ? row.role : 'notice';
  const node = bubble(kind);
  const body = node.querySelector('.body');
  if (kind === 'user') body.textContent = row.content;
  else render(body, row.content);
  if (!row.content) body.remove();
  for (const call of calls) node.append(toolCall(call));
  if (row.undone) node.classList.add('undone');
  if (row.at) node.title = new Date(row.at).toLocaleString();
  return row.content || calls.length ? node : null;
}

function button(label, act) {
  const node = document.createElement('button');
  node.type = 'button';
  node.textContent = label;
  node.addEventListener('click', act);
  return node;
}

function bubble(kind) {
  const node = document.createElement('article');
  node.className = `row ${kind}`;
  node.setAttribute('aria-label', { user: 'You', assistant: 'Petasos', notice: 'Note from the gateway' }[kind]);
  const body = document.createElement('div');
  body.className = 'body';
  node.append(body);
  return node;
}

function toolCall(call) {
  return folded(`Used ${call.name}`, pretty(call.arguments));
}

function toolResult(row) {
  const effect = { unknown: ' · outcome unknown', cancelled: ' · not run' }[row.effect] ?? '';
  const node = document.createElement('article');
  node.className = row.undone ? 'row tool undone' : 'row tool';
  node.append(folded(`Result of ${row.tool_name ?? 'a tool'}${effect}`, row.content));
  return node;
}

function folded(summary, text) {
  const node = document.createElement('details');
  const head = document.createElement('summary');
  const pre = document.createElement('pre');
  node.className = 'fold';
  head.textContent = summary;
  pre.textContent = text;
  node.append(head, pre);
  return node;
}

function pretty(json) {
  try { return JSON.stringify(JSON.parse(json), null, 2); } catch { return json; }
}

/** Appends the caret to the last nested text element. */
function caret(body) {
  const node = document.createElement('span');
  node.className = 'caret';
  let host = body;
  while (host.lastElementChild && /^(P|UL|OL|LI|BLOCKQUOTE|H[3-6]|DIV|PRE|CODE)$/.test(host.lastElementChild.nodeName)
    && (host === body || host.lastElementChild === host.lastChild)) host = host.lastElementChild;
  host.append(node);
}
