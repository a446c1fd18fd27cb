// Browser storage of drafts and unconfirmed messages. Without storage, or if it is full, the page works and does not
// save them.

const DRAFT = 'petasos.draft.';
const UNSENT = 'petasos.unsent.';
const LAST = 'petasos.last';

export const draft = chat => get(DRAFT + chat) ?? '';
export const saveDraft = (chat, text) => (text ? set(DRAFT + chat, text) : remove(DRAFT + chat));

export const lastChat = () => get(LAST);
export const saveLastChat = chat => set(LAST, chat);

/** Unconfirmed messages, oldest first: `{ id, text }`. */
export function unsent(chat) {
  try {
    const list = JSON.parse(get(UNSENT + chat) ?? '[]');
    return Array.isArray(list) ? list.filter(it => typeof it?.id === 'string' && typeof it?.text === 'string') : [];
  } catch {
    return [];
  }
}

export function addUnsent(chat, message) {
  set(UNSENT + chat, JSON.stringify([...unsent(chat), { id: message.id, text: message.text }]));
}

export function removeUnsent(chat, id) {
  const rest = unsent(chat).filter(it => it.id !== id);
  if (rest.length) set(UNSENT + chat, JSON.stringify(rest));
  else remove(UNSENT + chat);
}

/** A random id of letters and digits. */
export function freshId(length) {
  const alphabet = 'abcdefghijklmnopqrstuvwxyz234567';
  return Array.from(crypto.getRandomValues(new Uint8Array(length)), byte => alphabet[byte & 31]).join('');
}

function get(key) {
  try { return localStorage.getItem(key); } catch { return null; }
}

function set(key, value) {
  try { localStorage.setItem(key, value); } catch { /* full or forbidden */ }
}

function remove(key) {
  try { localStorage.removeItem(key); } catch { /* forbidden */ }
}
