// The chat page: which conversation is shown, and the stream that feeds it.
//
// The address decides: `#/c/<chat>` is a conversation held here, `#/s/<session>` a transcript to read. All
// state that matters is the gateway's; this page can be closed, reloaded or opened twice at any moment.

import * as keep from './keep.js';
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
  external: 'The gateway is draining for maintenance: what runs is finished, new messages wait.',
  restart: 'The gateway is restarting: what runs is finished first, new messages wait.',
  shutdown: 'The gateway is shutting down: what runs is finished first, new messages wait.',
};

const $ = id => document.getElementById(id);

const transcript = new Transcript({
  scroll: $('scroll'), rows: $('transcript'), activity: $('activity'), waiting: $('waiting'), toBottom: $('to-bottom'),
});
const composer = new Composer({
  form: $('composer'), field: $('text'), hints: $('hints'), stop: $('stop'), onSend: say, onStop: stopTurn,
});

let sessions = [];
let chat = null;
let sender = null;
let stream = null;

// ---- the conversation that is shown -------------------------------------------------------------------

function route() {
  const [, kind, id] = /^#\/([cs])\/([\w.-]+)$/.exec(location.hash) ?? [];
  closeSidebar();
  leave();
  if (kind === 's') return showTranscript(id);
  if (kind === 'c' && /^[\w-]{1,64}$/.test(id)) return showChat(id);
  history.replaceState(null, '', `#/c/${keep.lastChat() ?? keep.freshId(12)}`);
  return route();
}

function leave() {
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
  keep.keepLastChat(id);
  $('composer').hidden = false;
  $('readonly').hidden = true;
  sender = new Sender(id, transcript, { onRefused: refused, onHeld: refreshStatus, onSignedOut: signedOut });
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

/** The events of one chat. Comes back by itself, where it left off. */
class Stream {
  constructor(id) {
    this.id = id;
    this.session = null;
    this.after = 0;
    this.pause = RETRY_FIRST;
    this.timer = 0;
    this.queued = 0;
    this.rewound = false;
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
    source.onerror = () => this.lost();
    on('session', ({ id }) => this.entered(id));
    on('row', row => { this.after = row.id; this.row(row); });
    on('live', live => { setBusy(true); transcript.grow(live); redrawEmpty(); });
    on('tools', ({ tools }) => transcript.tools(tools));
    on('queued', ({ count }) => { this.queued = count; });
    on('questions', ({ questions }) => drawQuestions(questions));
    on('idle', () => this.idle());
    on('trouble', ({ message }) => connection(`The gateway has a problem: ${message}`));
  }

  /** Rows that we have were taken back: all of them are read again. */
  restart() {
    this.rewound = false;
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
    sender?.nudge();
    refreshStatus();
  }

  lost() {
    this.source?.close();
    this.source = null;
    connection('Connection lost. Reconnecting …');
    this.timer = setTimeout(() => this.open(), this.pause);
    this.pause = Math.min(this.pause * 2, RETRY_LAST);
    checkSignedIn();
  }

  entered(session) {
    if (this.session && this.session !== session) {
      transcript.clear();
      this.after = 0;
      refreshSessions();
    }
    this.session = session;
  }

  row(row) {
    if (this.rewound) return this.restart();
    if (row.role === 'user') { sender?.arrived(row); refreshSoon(); }
    transcript.row(row);
    redrawEmpty();
  }

  idle() {
    const worked = busy;
    setBusy(false);
    transcript.endLive();
    transcript.tools([]);
    drawQuestions([]);
    if (!this.queued) sender?.settle();
    if (worked) { refreshSoon(); if (document.hidden) unread = true; }
    redrawEmpty();
    redrawTitle();
  }
}

// Browsers allow six connections to a host: a hidden tab that shows nothing new lets go of its own.
document.addEventListener('visibilitychange', () => {
  if (!document.hidden) {
    clearTimeout(hiddenTimer);
    unread = false;
    redrawTitle();
    if (stream && !stream.source) stream.open();
    refresh();
    return;
  }
  const rest = () => {
    if (!document.hidden) return;
    if (busy) hiddenTimer = setTimeout(rest, HIDDEN_PAUSE);
    else stream?.close();
  };
  hiddenTimer = setTimeout(rest, HIDDEN_PAUSE);
});
let hiddenTimer = 0;
addEventListener('online', () => { if (stream && !stream.source) stream.open(); });

// ---- what the user does -----------------------------------------------------------------------------------

function say(text) {
  if (stream && /^\/(undo|retry)\b/i.test(text)) stream.rewound = true;
  sender?.say(text);
  redrawEmpty();
}

function refused(text, reason) {
  if (text !== null) composer.fill(text);
  if (reason) connection(reason);
  redrawEmpty();
}

/** The buttons of what the agent waits for; its text is a row above them. */
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

/** Said like any message, and never shown as one: the row that says how it ended is the answer. */
async function answerQuestion(data) {
  if (!chat) return;
  const asked = chat;
  for (const button of $('questions').children) button.disabled = true;
  const response = await fetch(`/api/chats/web/${asked}/messages`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ text: data, id: keep.freshId(16) }),
  }).catch(() => null);
  if (response?.ok) return;
  for (const button of $('questions').children) button.disabled = false;
  connection('Your answer did not get through. Please try again.');
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
  location.hash = `#/c/${keep.freshId(12)}`;
}

// ---- what is around the conversation -----------------------------------------------------------------------

let busy = false;
let unread = false;

function setBusy(now) {
  busy = now;
  composer.setBusy(now);
  redrawTitle();
}

const notes = { line: '', life: '', store: '' };

function connection(text) {
  note('line', text);
}

function note(about, text) {
  notes[about] = text;
  $('connection').textContent = notes.line || notes.life || notes.store;
  $('connection').hidden = !$('connection').textContent;
}

function signedOut() {
  connection('You are signed out. Run “petasos open” on the gateway’s machine and open its link; what you typed is kept here.');
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
    const where = summary ? platformName(summary.platform) : 'another channel';
    $('readonly').textContent = summary?.platform === 'web'
      ? 'An earlier conversation of a chat. To go on with it, use /resume in that chat.'
      : `This conversation is held on ${where}. You can read it here and answer it there.`;
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

let soon = 0;
function refreshSoon() {
  clearTimeout(soon);
  soon = setTimeout(refreshSessions, 300);
}

async function refreshSessions() {
  const answer = await get('/api/sessions');
  if (!answer) return;
  sessions = answer.sessions;
  redraw();
}

async function refreshStatus() {
  const status = await get('/api/status');
  if (!status) return;
  if (!status.model) return signedOut(); // only what anybody may read
  drawLife(status);
  drawLinks($('links'), status);
  const { name, demo } = status.model;
  note('store', status.store_trouble ? `The gateway takes no messages for now: ${status.store_trouble}` : '');
  const badge = $('model');
  badge.hidden = !name;
  badge.textContent = demo ? 'Demo model' : name;
  badge.title = demo ? 'Answers come from the embedded demo model. Set a model in config.yaml to use a real one.' : `Model: ${name}`;
  badge.classList.toggle('demo', demo);
  $('empty-note').textContent = demo
    ? 'You are talking to the embedded demo model: it works offline, needs no key, and is not clever. Try one of these.'
    : 'Ask anything, or type / for commands.';
  $('examples').hidden = !demo;
}

let life = 0;
/** Says that nothing new is begun, and looks again soon; when that is over, what was held goes out. */
function drawLife({ drain }) {
  note('life', drain ? DRAINS[drain.kind] ?? DRAINS.external : '');
  clearTimeout(life);
  if (drain) life = setTimeout(refreshStatus, REFRESH_DRAINING);
  else if (sender?.held.length) life = setTimeout(() => sender?.nudge(), RETRY_FIRST);
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
  button.addEventListener('click', () => say(example));
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
