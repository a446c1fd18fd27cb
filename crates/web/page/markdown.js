// Renders Markdown as DOM nodes. Model text is only put into text nodes, so no HTML needs escaping.

const FENCE = /^ {0,3}(`{3,}|~{3,})\s*([^\s`]*)[^`]*$/;
const HEADING = /^ {0,3}(#{1,6})\s+(.*?)\s*#*\s*$/;
const RULE = /^ {0,3}([-*_])(?:\s*\1){2,}\s*$/;
const QUOTE = /^ {0,3}>\s?(.*)$/;
const ITEM = /^(\s*)([-*+]|\d{1,9}[.)])(?:\s+(.*)|\s*)$/;
const DIVIDER = /^\s*\|?\s*:?-+:?\s*(?:\|\s*:?-+:?\s*)*\|?\s*$/;
const DEPTH = 12;

/** Renders `text` into `host`. Unchanged blocks are kept, so a selection in a growing answer survives. */
export function render(host, text) {
  const next = blocks(text.replace(/\r\n?/g, '\n').split('\n'), 0);
  let same = 0;
  while (same < next.length && host.childNodes[same]?.isEqualNode(next[same])) same += 1;
  while (host.childNodes.length > same) host.lastChild.remove();
  host.append(...next.slice(same));
}

function blocks(lines, depth) {
  const out = [];
  if (depth > DEPTH) return [document.createTextNode(lines.join('\n'))];
  let at = 0;
  while (at < lines.length) {
    const line = lines[at];
    let match;
    if (!line.trim()) {
      at += 1;
    } else if ((match = FENCE.exec(line))) {
      const end = fenceEnd(lines, at + 1, match[1]);
      out.push(codeBlock(lines.slice(at + 1, end).join('\n'), match[2]));
      at = end + 1;
    } else if ((match = HEADING.exec(line))) {
      // The page itself uses h1 and h2.
      out.push(el(`h${Math.min(match[1].length + 2, 6)}`, inline(match[2])));
      at += 1;
    } else if (RULE.test(line)) {
      out.push(el('hr'));
      at += 1;
    } else if (QUOTE.test(line)) {
      const inner = [];
      while (at < lines.length && (match = QUOTE.exec(lines[at]))) { inner.push(match[1]); at += 1; }
      out.push(el('blockquote', blocks(inner, depth + 1)));
    } else if (ITEM.test(line)) {
      at = list(lines, at, depth, out);
    } else if (line.includes('|') && at + 1 < lines.length && lines[at + 1].includes('-') && DIVIDER.test(lines[at + 1])) {
      at = table(lines, at, out);
    } else {
      const from = at;
      do at += 1; while (at < lines.length && lines[at].trim() && !interrupts(lines[at]));
      out.push(el('p', inline(lines.slice(from, at).join('\n').trim())));
    }
  }
  return out;
}

const interrupts = line => FENCE.test(line) || HEADING.test(line) || RULE.test(line) || QUOTE.test(line) || ITEM.test(line);

/** A growing answer may contain an unclosed fence. */
function fenceEnd(lines, from, fence) {
  for (let at = from; at < lines.length; at += 1) {
    const line = lines[at].trim();
    if (line.length >= fence.length && line === fence[0].repeat(line.length)) return at;
  }
  return lines.length;
}

function list(lines, from, depth, out) {
  const first = ITEM.exec(lines[from]);
  const indent = first[1].length;
  const ordered = /\d/.test(first[2]);
  const node = el(ordered ? 'ol' : 'ul');
  if (ordered && parseInt(first[2], 10) !== 1) node.start = parseInt(first[2], 10);
  let at = from;
  while (at < lines.length) {
    const match = ITEM.exec(lines[at]);
    if (!match || match[1].length > indent + 1 || match[1].length < indent || /\d/.test(match[2]) !== ordered) break;
    const inner = [match[3] ?? ''];
    const width = indent + match[2].length + 1;
    at += 1;
    while (at < lines.length && belongs(lines, at, indent)) {
      inner.push(lines[at].replace(new RegExp(`^\\s{0,${width}}`), ''));
      at += 1;
    }
    node.append(el('li', tight(blocks(inner, depth + 1))));
    while (at < lines.length && !lines[at].trim() && ITEM.test(lines[at + 1] ?? '')) at += 1;
  }
  out.push(node);
  return at;
}

/** Whether a line continues the item above it: indented deeper, or plain text directly after it. */
function belongs(lines, at, indent) {
  const line = lines[at];
  if (!line.trim()) return /^\s/.test(lines[at + 1] ?? '') && deeper(lines[at + 1], indent);
  if (ITEM.test(line)) return deeper(line, indent);
  return deeper(line, indent) || (lines[at - 1].trim() !== '' && !interrupts(line));
}

const deeper = (line, indent) => /^\s*/.exec(line)[0].length > indent + 1;

/** A list item of one paragraph needs no paragraph. */
function tight(nodes) {
  if (nodes[0]?.nodeName !== 'P') return nodes;
  return [...nodes[0].childNodes, ...nodes.slice(1)];
}

function table(lines, from, out) {
  const align = cells(lines[from + 1]).map(cell => (cell.endsWith(':') ? (cell.startsWith(':') ? 'center' : 'right') : ''));
  const row = (line, kind) => {
    const all = cells(line);
    return el('tr', align.map((side, index) => {
      const cell = el(kind, inline(all[index] ?? ''));
      if (side) cell.className = side;
      return cell;
    }));
  };
  const body = el('tbody');
  let at = from + 2;
  while (at < lines.length && lines[at].includes('|') && lines[at].trim()) { body.append(row(lines[at], 'td')); at += 1; }
  const wrap = el('div', [el('table', [el('thead', [row(lines[from], 'th')]), body])]);
  wrap.className = 'table';
  wrap.tabIndex = 0;
  out.push(wrap);
  return at;
}

function cells(line) {
  const inner = line.trim().replace(/^\|/, '').replace(/(?<!\\)\|$/, '');
  return inner.split(/(?<!\\)\|/).map(cell => cell.trim().replace(/\\\|/g, '|'));
}

function codeBlock(text, language) {
  const copy = el('button', [document.createTextNode('Copy')]);
  copy.type = 'button';
  copy.className = 'copy';
  copy.addEventListener('click', () => copied(copy, text));
  const name = el('span', [document.createTextNode(language)]);
  const bar = el('div', [name, copy]);
  bar.className = 'bar';
  const pre = el('pre', [el('code', [document.createTextNode(text)])]);
  pre.tabIndex = 0;
  const node = el('div', [bar, pre]);
  node.className = 'code';
  return node;
}

async function copied(button, text) {
  let done = 'Copied';
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    done = 'Not allowed';
  }
  button.textContent = done;
  setTimeout(() => { button.textContent = 'Copy'; }, 1500);
}

// Code first: its content is not parsed further.
const INLINE = [
  { at: /(`+)(?!`)([\s\S]*?[^`])\1(?!`)/, make: m => el('code', [document.createTextNode(m[2].replace(/^ (.+) $/s, '$1'))]) },
  { at: /\\([\\`*_{}[\]()#+\-.!|~<>])/, make: m => document.createTextNode(m[1]) },
  { at: /\[([^\]\n]+)\]\(\s*<?((?:\([^\s()]*\)|[^\s()<>])+)>?(?:\s+["'][^)]*["'])?\s*\)/, make: (m, deep) => link(m[2], inline(m[1], deep + 1)) },
  { at: /<((?:https?:\/\/|mailto:)[^\s<>]+)>/, make: m => link(m[1], [document.createTextNode(m[1])]) },
  { at: /https?:\/\/(?:\([^\s<>"'`()]*\)|[^\s<>"'`()])*(?:\([^\s<>"'`()]*\)|[^\s<>"'`().,;:!?\]*_])/, make: m => link(m[0], [document.createTextNode(m[0])]) },
  { at: /\*\*\*(?=\S)([^*\n]*[^\s*])\*\*\*/, make: (m, deep) => el('strong', [el('em', inline(m[1], deep + 1))]) },
  { at: /\*\*(?=\S)([\s\S]*?\S)\*\*/, make: (m, deep) => el('strong', inline(m[1], deep + 1)) },
  { at: /(?<![\w])__(?=\S)([\s\S]*?\S)__(?![\w])/, make: (m, deep) => el('strong', inline(m[1], deep + 1)) },
  { at: /~~(?=\S)([\s\S]*?\S)~~/, make: (m, deep) => el('del', inline(m[1], deep + 1)) },
  { at: /\*(?=[^\s*])([^*\n]*[^\s*])\*(?!\*)/, make: (m, deep) => el('em', inline(m[1], deep + 1)) },
  { at: /(?<![\w])_(?=[^\s_])([^_\n]*[^\s_])_(?![\w])/, make: (m, deep) => el('em', inline(m[1], deep + 1)) },
  { at: / {2,}\n|\n/, make: () => el('br') },
];

/** The earliest match wins; the text before it is plain. */
function inline(text, deep = 0) {
  const out = [];
  let rest = text;
  const found = INLINE.map(() => undefined);
  let gone = 0;
  while (rest && deep < DEPTH) {
    let best = -1;
    for (let index = 0; index < INLINE.length; index += 1) {
      if (found[index] === null) continue;
      if (found[index] === undefined || found[index].from < gone) {
        const match = INLINE[index].at.exec(rest);
        found[index] = match && { from: gone + match.index, match };
        if (!match) continue;
      }
      if (best < 0 || found[index].from < found[best].from) best = index;
    }
    if (best < 0) break;
    const { from, match } = found[best];
    const before = rest.slice(0, from - gone);
    if (before) out.push(document.createTextNode(before));
    out.push(INLINE[best].make(match, deep));
    const used = from - gone + match[0].length;
    rest = rest.slice(used);
    gone += used;
  }
  if (rest) out.push(document.createTextNode(rest));
  return out;
}

/** Only URLs that run no code. */
function link(target, children) {
  let url;
  try {
    url = new URL(target);
  } catch {
    return el('span', children);
  }
  if (!['http:', 'https:', 'mailto:'].includes(url.protocol)) return el('span', children);
  const node = el('a', children);
  node.href = url.href;
  node.target = '_blank';
  node.rel = 'noopener noreferrer';
  return node;
}

function el(name, children = []) {
  const node = document.createElement(name);
  node.append(...children);
  return node;
}
