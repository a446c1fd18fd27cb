// The chat page: routing by address, the event stream of a chat, and the surrounding layout.
//
// `#/c/<chat>` shows a chat of this page, `#/s/<session>` a read-only transcript. All persistent state belongs to the
// gateway, so the page can be closed, reloaded or opened twice at any time.

import * as storage from './storage.js';
import { load as loadCommands } from './commands.js';
import { Composer, Sender } from './composer.js';
import { Transcript } from './transcript.js';
import { drawLinks, drawSessions, platformName } from './sidebar.js';

const EXAMPLES = ['What can you do?', 'What time is it?', 'Show me some markdown', 'How do you keep messages safe?'];
const RETRY_FIRST = 500;
const RETRY_LAST = 8_000;
const HIDDEN_PAUSE = 20_000;
const REFRESH = 15_000;
const REFRESH_DRAINING = 3_000;
const DRAINS = {
  external: 'The gateway is paused for maintenance. Running answers will finish; new messages wait.',
  restart: 'The gateway is restarting. Running answers finish first; new messages wait.',
  shutdown: 'The gateway is shutting down. Running answers finish first; new messages wait.',
};

const $ = id => document.getElementById(id);

const transcript = new Transcript({
  scroll: $('scroll'), rows: $('transcript'), activity: $('activity'), waiting: $('waiting'), toBottom: $('to-bottom'),
});
const composer = new Composer({
  form: $('composer'), field: $('text'), hints: $('hints'), stop: $('stop'), onSend: sendMessage, onStop: stopTurn,
});

let sessions = [];
let chat = null;
let sender = null;
let stream = null;

// ---- routing ------------------------------------------------------------------------------------------

function route() {
  const [, kind, id] = /^#\/([cs])\/([\w.-]+)$/.exec(location.hash) ?? [];
  closeSidebar();
  closeCurrent();
  if (kind === 's') return showTranscript(id);
  if (kind === 'c' && /^[\w-]{1,64}$/.test(id)) return showChat(id);
  history.replaceState(null, '', `#/c/${storage.lastChat() ?? storage.freshId(12)}`);
  return route();
}

function closeCurrent() {
  stream?.close();
  stream = null;
  sender?.close();
  sender = null;
  chat = null;
  transcript.clear();
  drawQuestions([]);
  setBusy(false);
  connection('');
}

function showChat(id) {
  chat = id;
  storage.saveLastChat(id);
  $('composer').hidden = false;
  $('readonly').hidden = true;
  sender = new Sender(id, transcript, { onRejected: messageRejected, onHeld: refreshStatus, onSignedOut: signedOut });
  composer.open(id);
  stream = new Stream(id);
  redraw();
}

async function showTranscript(session) {
  $('composer').hidden = true;
  $('readonly').hidden = false;
  $('empty').hidden = true;
  redraw();
  let after = 0;
  while (location.hash === `#/s/${session}`) {
    const page = await get(`/api/sessions/${encodeURIComponent(session)}/messages?after=${after}&limit=200`);
    if (!page || location.hash !== `#/s/${session}`) return;
    for (const row of page.messages) { transcript.row(row); after = row.id; }
    if (page.messages.length < 200) break;
  }
  transcript.jump();
}

// ---- the stream -----------------------------------------------------------------------------------------

/** The event stream of one chat. Reconnects by itself and resumes where it stopped. */
class Stream {
  constructor(id) {
    this.id = id;
    this.session = null;
    this.after = 0;
    this.pause = RETRY_FIRST;
    this.timer = 0;
    this.queued = 0;
    this.needsReload = false;
    this.open();
  }

  open() {
    clearTimeout(this.timer);
    this.source?.close();
    const query = new URLSearchParams({ after: this.after });
    if (this.session) query.set('session', this.session);
    const source = new EventSource(`/api/chats/web/${this.id}/events?${query}`);
    const on = (name, act) => source.addEventListener(name, event => {
      act(JSON.parse(event.data));
    });
    this.source = source;
    source.onopen = () => this.opened();
    source.onerror = () => this.connectionLost();
    on('session', ({ id }) => this.sessionChanged(id));
    on('row', row => { this.after = row.id; this.row(row); });
    on('live', live => { setBusy(true); transcript.grow(live); redrawEmpty(); });
    on('tools', ({ tools }) => transcript.tools(tools));
    on('queued', ({ count }) => { this.queued = count; });
    on('questions', ({ questions }) => drawQuestions(questions));
    on('idle', () => this.idle());
    on('trouble', ({ message }) => connection(`The gateway has a problem: ${message}`));
  }

  /** Reads all rows again, because shown rows were undone. */
  restart() {
    this.needsReload = false;
    this.after = 0;
    transcript.clear();
    this.open();
  }

  close() {
    clearTimeout(this.timer);
    this.source?.close();
    this.source = null;
  }

  opened() {
    this.pause = RETRY_FIRST;
    connection('');
    sender?.retryNow();
    refreshStatus();
  }

  connectionLost() {
    this.source?.close();
    this.source = null;
    connection('The connection to the gateway is lost. Reconnecting …');
    this.timer = setTimeout(() => this.open(), this.pause);
    this.pause = Math.min(this.pause * 2, RETRY_LAST);
    checkSignedIn();
  }

  sessionChanged(session) {
    if (this.session && this.session !== session) {
      transcript.clear();
      this.after = 0;
      refreshSessions();
    }
    this.session = session;
  }

  row(row) {
    if (this.needsReload) return this.restart();
    if (row.role === 'user') { sender?.rowArrived(row); refreshSoon(); }
    transcript.row(row);
    redrawEmpty();
  }

  idle() {
    const wasBusy = busy;
    setBusy(false);
    transcript.endLive();
    transcript.tools([]);
    drawQuestions([]);
    if (!this.queued) sender?.clearAccepted();
    if (wasBusy) { refreshSoon(); if (document.hidden) unread = true; }
    redrawEmpty();
    redrawTitle();
  }
}

// Browsers allow six connections per host, so an idle hidden tab closes its stream.
document.addEventListener('visibilitychange', () => {
  if (!document.hidden) {
    clearTimeout(hiddenTimer);
    unread = false;
    redrawTitle();
    if (stream && !stream.source) stream.open();
    refresh();
    return;
  }
  const closeIfIdle = () => {
    if (!document.hidden) return;
    if (busy) hiddenTimer = setTimeout(closeIfIdle, HIDDEN_PAUSE);
    else stream?.close();
  };
  hiddenTimer = setTimeout(closeIfIdle, HIDDEN_PAUSE);
});
let hiddenTimer = 0;
addEventListener('online', () => { if (stream && !stream.source) stream.open(); });

// ---- user actions ---------------------------------------------------------------------------------------

function sendMessage(text) {
  if (stream && /^\/(undo|retry)\b/i.test(text)) stream.needsReload = true;
  sender?.send(text);
  redrawEmpty();
}

function messageRejected(text, reason) {
  if (text !== null) composer.fill(text);
  if (reason) connection(reason);
  redrawEmpty();
}

/** Draws the buttons of the open question; its text is a row above them. */
function drawQuestions(questions) {
  const first = questions.find(question => question.buttons.length);
  $('questions').hidden = !first;
  $('questions').replaceChildren(...(first?.buttons ?? []).map(({ label, data }) => {
    const button = document.createElement('button');
    button.type = 'button';
    button.textContent = label;
    button.addEventListener('click', () => answerQuestion(data));
    return button;
  }));
  if (first) transcript.jump();
}

/** Sends an answer as a message that is not shown; the outcome appears as a row. */
async function answerQuestion(data) {
  if (!chat) return;
  const questionChat = chat;
  for (const button of $('questions').children) button.disabled = true;
  const response = await fetch(`/api/chats/web/${questionChat}/messages`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ text: data, id: storage.freshId(16) }),
  }).catch(() => null);
  if (response?.ok) return;
  for (const button of $('questions').children) button.disabled = false;
  connection('Your answer was not sent. Please try again.');
}

async function stopTurn() {
  if (!chat) return;
  try {
    await fetch(`/api/chats/web/${chat}/stop`, { method: 'POST' });
  } catch {
    connection('The gateway cannot be reached. Reconnecting …');
  }
}

function newChat() {
  location.hash = `#/c/${storage.freshId(12)}`;
}

// ---- layout and status --------------------------------------------------------------------------------------

let busy = false;
let unread = false;

function setBusy(now) {
  busy = now;
  composer.setBusy(now);
  redrawTitle();
}

const notes = { connection: '', drain: '', store: '' };

function connection(text) {
  note('connection', text);
}

function note(topic, text) {
  notes[topic] = text;
  $('connection').textContent = notes.connection || notes.drain || notes.store;
  $('connection').hidden = !$('connection').textContent;
}

function signedOut() {
  connection('You are signed out. Run “petasos open” on the gateway’s machine and open the link. Your text is kept here.');
}

async function signOut() {
  const response = await fetch('/api/logout', { method: 'POST' }).catch(() => null);
  if (response?.ok) location.reload();
  else connection('The gateway cannot be reached, so this browser is still signed in.');
}

async function checkSignedIn() {
  const response = await fetch('/api/sessions?limit=1').catch(() => null);
  if (response?.status === 401) signedOut();
}

function current() {
  if (chat) return sessions.find(it => it.platform === 'web' && it.chat_id === chat);
  return sessions.find(it => `#/s/${it.id}` === location.hash);
}

function redraw() {
  const summary = current();
  $('title').textContent = summary?.title || (chat ? 'New chat' : 'Conversation');
  drawSessions($('sessions'), sessions.filter(it => it.message_count > 0), location.hash);
  if (!chat) {
    const channel = summary ? platformName(summary.platform) : 'another platform';
    $('readonly').textContent = summary?.platform === 'web'
      ? 'This is an earlier conversation. To continue it, send /resume in its chat.'
      : `This conversation takes place on ${channel}. You can read it here and reply there.`;
  }
  redrawEmpty();
  redrawTitle();
}

function redrawEmpty() {
  $('empty').hidden = !(chat && transcript.isEmpty && !busy);
}

function redrawTitle() {
  const name = $('title').textContent;
  document.title = busy ? `… ${name} – Petasos` : unread ? `● ${name} – Petasos` : `${name} – Petasos`;
}

let refreshTimer = 0;
function refreshSoon() {
  clearTimeout(refreshTimer);
  refreshTimer = setTimeout(refreshSessions, 300);
}

async function refreshSessions() {
  const response = await get('/api/sessions');
  if (!response) return;
  sessions = response.sessions;
  redraw();
}

async function refreshStatus() {
  const status = await get('/api/status');
  if (!status) return;
  if (!status.model) return signedOut(); // the public status only
  drawDrain(status);
  drawLinks($('links'), status);
  const { name, demo } = status.model;
  note('store', status.store_trouble ? `The gateway cannot accept messages at the moment: ${status.store_trouble}` : '');
  const badge = $('model');
  badge.hidden = !name;
  badge.textContent = demo ? 'Demo model' : name;
  badge.title = demo ? 'Answers come from the built-in demo model. Set a model in config.yaml to use a real one.' : `Model: ${name}`;
  badge.classList.toggle('demo', demo);
  $('empty-note').textContent = demo
    ? 'This is the built-in demo model. It works offline, needs no key and gives simple answers. Try one of these.'
    : 'Ask anything, or type / for commands.';
  $('examples').hidden = !demo;
}

let drainTimer = 0;
/** Shows a drain and polls the status until it is over; then sends the held messages. */
function drawDrain({ drain }) {
  note('drain', drain ? DRAINS[drain.kind] ?? DRAINS.external : '');
  clearTimeout(drainTimer);
  if (drain) drainTimer = setTimeout(refreshStatus, REFRESH_DRAINING);
  else if (sender?.held.length) drainTimer = setTimeout(() => sender?.retryNow(), RETRY_FIRST);
}

function refresh() {
  refreshSessions();
  refreshStatus();
}

async function get(path) {
  try {
    const response = await fetch(path);
    if (response.status === 401) signedOut();
    return response.ok ? await response.json() : null;
  } catch {
    return null;
  }
}

function openSidebar() {
  document.body.classList.add('sidebar');
  $('shade').hidden = false;
  $('close-sidebar').focus();
}

function closeSidebar() {
  document.body.classList.remove('sidebar');
  $('shade').hidden = true;
}

for (const example of EXAMPLES) {
  const button = document.createElement('button');
  button.type = 'button';
  button.textContent = example;
  button.addEventListener('click', () => sendMessage(example));
  $('examples').append(button);
}
$('new-chat').addEventListener('click', newChat);
$('sign-out').addEventListener('click', signOut);
$('open-sidebar').addEventListener('click', openSidebar);
$('close-sidebar').addEventListener('click', closeSidebar);
$('shade').addEventListener('click', closeSidebar);
addEventListener('keydown', event => { if (event.key === 'Escape') closeSidebar(); });
addEventListener('hashchange', route);
setInterval(() => { if (!document.hidden) refresh(); }, REFRESH);
loadCommands();
refresh();
route();
