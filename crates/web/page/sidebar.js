// The conversations of all channels, newest first, and the state of the channels.

const DAY = 24 * 60 * 60 * 1000;
const NAMES = { web: 'Web', terminal: 'Terminal', telegram: 'Telegram', discord: 'Discord', slack: 'Slack', matrix: 'Matrix', email: 'Email' };

const STATES = { up: 'connected', connecting: 'connecting …', waiting: 'trying again …', fatal: 'needs attention', paused: 'paused' };

const CLASSES = { passing: 'temporary' };

export const platformName = platform => NAMES[platform] ?? platform;

/** The link of a summary: the chat that continues it, or its transcript. */
export function target(summary, newest) {
  return summary.platform === 'web' && summary.chat_id && newest ? `#/c/${summary.chat_id}` : `#/s/${summary.id}`;
}

export function drawSessions(nav, sessions, here) {
  if (!sessions.length) {
    const none = document.createElement('p');
    none.className = 'none';
    none.textContent = 'Your conversations will appear here.';
    nav.replaceChildren(none);
    return;
  }
  const keys = new Set();
  const out = [];
  let group = '';
  for (const summary of sessions) {
    const label = dayOf(summary.last_at);
    if (label !== group) {
      group = label;
      const head = document.createElement('h2');
      head.textContent = label;
      out.push(head);
    }
    const newest = !keys.has(summary.key);
    keys.add(summary.key);
    out.push(entry(summary, target(summary, newest), here));
  }
  nav.replaceChildren(...out);
}

function entry(summary, href, here) {
  const node = document.createElement('a');
  const title = document.createElement('span');
  const about = document.createElement('small');
  node.href = href;
  if (href === here) node.setAttribute('aria-current', 'page');
  title.textContent = summary.title || summary.display_name || 'New chat';
  about.textContent = `${platformName(summary.platform)} · ${when(summary.last_at)}`;
  node.append(title, about);
  return node;
}

function dayOf(ms) {
  const midnight = new Date().setHours(0, 0, 0, 0);
  if (ms >= midnight) return 'Today';
  if (ms >= midnight - DAY) return 'Yesterday';
  if (ms >= midnight - 6 * DAY) return 'This week';
  return 'Earlier';
}

function when(ms) {
  const then = new Date(ms);
  if (Date.now() - ms < DAY) return then.toLocaleTimeString([], { hour: '2-digit', minute: '2-digit' });
  return then.toLocaleDateString([], { day: 'numeric', month: 'short' });
}

/** Draws each channel with its state and details. */
export function drawLinks(footer, status) {
  const links = Array.isArray(status.links) ? status.links : [];
  footer.replaceChildren(...links.map(link => {
    const node = document.createElement('div');
    const about = document.createElement('small');
    node.className = `link ${link.trouble || link.lacks ? 'waiting' : link.state}`;
    node.textContent = `${platformName(link.name)}: ${linkState(link)}`;
    about.textContent = linkFacts(link, Date.now()).join(' · ');
    if (about.textContent) node.append(about);
    return node;
  }));
  const version = document.createElement('span');
  version.textContent = `Petasos ${status.version}`;
  footer.append(version);
}

function linkState(link) {
  if (link.state === 'waiting' && link.slow) return 'down (slow retries)';
  if (link.trouble) return 'having problems …';
  return STATES[link.state] ?? link.state;
}

/** The known details of a channel. */
function linkFacts(link, now) {
  const facts = [];
  if (link.last_inbound) facts.push(`last message ${age(now - link.last_inbound)} ago`);
  if (link.behind_ms) facts.push(`${age(link.behind_ms)} behind`);
  else if (link.catching_up) facts.push('fetching missed messages');
  for (const outage of link.lacks ?? []) facts.push(`${outage.what} unavailable: ${outage.reason}`);
  if (link.until) facts.push(`next try in ${age(link.until - now)}`);
  if (link.attempts) facts.push(link.attempts === 1 ? '1 failed attempt' : `${link.attempts} failed attempts`);
  if (link.class) facts.push(CLASSES[link.class] ?? link.class);
  const why = link.reason ?? link.trouble;
  if (why) facts.push(why);
  return facts;
}

function age(ms) {
  const seconds = Math.max(0, Math.round(ms / 1000));
  if (seconds < 90) return `${seconds} s`;
  const minutes = Math.round(seconds / 60);
  return minutes < 90 ? `${minutes} min` : `${Math.round(minutes / 60)} h`;
}
