// Suggestions for slash commands. The list comes from the gateway.

let known = [];

export async function load() {
  const response = await fetch('/api/commands').catch(() => null);
  if (response?.ok) known = (await response.json()).commands;
}

/** Suggestions above the text field. `fill(text)` inserts a command, `send(text)` sends one without arguments. */
export class Hints {
  constructor(list, field, { fill, send }) {
    this.list = list;
    this.field = field;
    this.fill = fill;
    this.send = send;
    this.chosen = 0;
  }

  get open() {
    return !this.list.hidden;
  }

  update() {
    const typed = this.field.value;
    const found = /^\/\w*$/.test(typed) ? known.filter(it => `/${it.word}`.startsWith(typed.toLowerCase())) : [];
    if (found.length === 1 && `/${found[0].word}` === typed) found.length = 0;
    this.chosen = 0;
    this.list.replaceChildren(...found.map((it, index) => this.option(it, index)));
    this.list.hidden = found.length === 0;
    this.mark();
  }

  close() {
    this.list.hidden = true;
    this.field.removeAttribute('aria-activedescendant');
  }

  /** True if the list handled the key. */
  key(event) {
    if (!this.open) return false;
    const count = this.list.children.length;
    if (event.key === 'ArrowDown') this.chosen = (this.chosen + 1) % count;
    else if (event.key === 'ArrowUp') this.chosen = (this.chosen + count - 1) % count;
    else if (event.key === 'Tab' && !event.shiftKey) this.choose(this.chosen, 'fill');
    else if (event.key === 'Enter') this.choose(this.chosen, 'send');
    else if (event.key === 'Escape') this.close();
    else return false;
    this.mark();
    return true;
  }

  choose(index, how) {
    const { name, args } = this.list.children[index].dataset;
    this.close();
    if (how === 'send' && !args) this.send(name);
    else this.fill(`${name} `);
  }

  mark() {
    for (const [index, node] of [...this.list.children].entries()) {
      node.setAttribute('aria-selected', String(index === this.chosen));
      if (index === this.chosen && this.open) {
        this.field.setAttribute('aria-activedescendant', node.id);
        node.scrollIntoView({ block: 'nearest' });
      }
    }
  }

  option({ word, args, help }, index) {
    const node = document.createElement('li');
    const code = document.createElement('code');
    const text = document.createElement('span');
    node.id = `hint-${index}`;
    node.setAttribute('role', 'option');
    node.dataset.name = `/${word}`;
    node.dataset.args = args;
    const more = document.createElement('i');
    more.textContent = ` ${args}`;
    code.append(`/${word}`, more);
    text.textContent = help;
    node.append(code, text);
    // Not `click`, so that the field keeps the focus.
    node.addEventListener('pointerdown', event => { event.preventDefault(); this.choose(index, 'send'); });
    return node;
  }
}
