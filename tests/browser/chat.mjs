// The web page in a real browser, with the real program and the demo model.
// PETASOS_BIN names the program; screenshots go to artifacts/.

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { chromium } from 'playwright-core';

const root = path.resolve(path.dirname(fileURLToPath(import.meta.url)), '../..');
const program = path.resolve(process.env.PETASOS_BIN ?? path.join(root, 'target/debug/petasos'));
const fakes = path.join(path.dirname(program), 'petasos-fakes');
const artifacts = path.join(root, 'artifacts');
mkdirSync(artifacts, { recursive: true });

const home = mkdtempSync(path.join(tmpdir(), 'petasos-page-'));
let port = 0;

/** Starts the gateway with additional configuration. Returns its process, login link and URL. */
async function start(config = '') {
  writeFileSync(path.join(home, 'config.yaml'), `web:\n  port: ${port}\n${config}`);
  const child = spawn(program, ['run', '--json'], {
    env: { PATH: process.env.PATH, PETASOS_HOME: home, NO_COLOR: '1' },
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  let output = '';
  for await (const chunk of child.stdout) {
    output += chunk;
    if (output.includes('\n')) break;
  }
  const greeting = JSON.parse(output.split('\n')[0]);
  port = Number(new URL(greeting.url).port);
  return { child, link: greeting.login_url, url: greeting.url };
}

/** A fake model that answers with the lines written to it. */
async function scriptedModel() {
  const child = spawn(fakes, ['model', '--port', '0'], { stdio: ['pipe', 'pipe', 'inherit'] });
  let output = '';
  for await (const chunk of child.stdout) {
    output += chunk;
    if (output.includes('\n')) break;
  }
  return { child, url: /http:\/\/[^/]+\/v1/.exec(output)[0], next: line => child.stdin.write(`${line}\n`) };
}

async function terminate(child, signal) {
  if (child.exitCode !== null || child.signalCode !== null) return;
  const exited = once(child, 'exit');
  child.kill(signal);
  await exited;
}

const browser = await chromium.launch({
  executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium',
  args: ['--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking',
    '--disable-component-update', '--disable-sync'],
});

let gateway = await start();
const context = await browser.newContext({ viewport: { width: 1200, height: 800 } });
const pageErrors = [];
context.on('weberror', error => pageErrors.push(String(error.error())));

let passed = 0;
let failed = 0;
async function test(name, body) {
  try {
    await body();
    passed += 1;
    console.log(`ok   ${name}`);
  } catch (error) {
    failed += 1;
    console.log(`FAIL ${name}\n     ${error.stack ?? error}`);
    for (const [at, page] of context.pages().entries()) {
      await page.screenshot({ path: path.join(artifacts, `failed-${failed}-${at}.png`) }).catch(() => {});
    }
  }
}

const send = async (page, text) => {
  await page.fill('#text', text);
  await page.press('#text', 'Enter');
};
const answer = (page, text) => page.locator('.row.assistant .body', { hasText: text }).last();
const waitIdle = view => view.waitForSelector('.row.live', { state: 'detached', timeout: 30000 });
const page = await context.newPage();

await test('explains the login without a session', async () => {
  const stranger = await browser.newContext();
  const closed = await stranger.newPage();
  const response = await closed.goto(gateway.url);
  assert.equal(response.status(), 401);
  assert.match(await closed.textContent('body'), /petasos open/);
  const api = await stranger.request.get(`${gateway.url}/api/sessions`);
  assert.equal(api.status(), 401);
  await stranger.close();
});

await test('opens the chat by the printed link and hides the token', async () => {
  await page.goto(gateway.link);
  await page.waitForSelector('#text');
  assert.ok(!page.url().includes('token'), page.url());
  await page.waitForSelector('#empty:not([hidden])');
  await page.screenshot({ path: path.join(artifacts, 'empty.png') });
});

await test('accepts the link only once', async () => {
  const other = await browser.newContext();
  const again = await other.newPage();
  await again.goto(gateway.link);
  assert.equal(await again.locator('#text').count(), 0);
  await other.close();
});

await test('answers a message', async () => {
  await send(page, 'hello');
  await page.locator('.row.user .body', { hasText: 'hello' }).waitFor();
  await answer(page, 'demo').waitFor({ timeout: 15000 });
  await waitIdle(page);
  await page.screenshot({ path: path.join(artifacts, 'chat.png') });
});

await test('streams an answer after a reload and in a second tab', async () => {
  await send(page, 'count to 200');
  await page.waitForSelector('.row.live');
  const live = page.locator('.row.live .body');
  const early = (await live.textContent()).length;
  await page.waitForFunction(length => (document.querySelector('.row.live .body')?.textContent.length ?? 0) > length, early);
  const tab = await context.newPage();
  await tab.goto(page.url());
  await tab.waitForSelector('.row.live');
  await page.reload();
  await page.waitForSelector('.row.live');
  await page.screenshot({ path: path.join(artifacts, 'streaming.png') });
  for (const view of [page, tab]) {
    await waitIdle(view);
    await answer(view, '200').waitFor();
  }
  assert.equal(await page.locator('.row.user .body', { hasText: 'count to 200' }).count(), 1);
  await tab.close();
});

await test('stops a running answer', async () => {
  await send(page, 'count to 500');
  await page.waitForSelector('.row.live');
  await page.click('#stop');
  await waitIdle(page);
  await answer(page, 'stopped').waitFor();
});

await test('runs a slash command', async () => {
  await send(page, '/status');
  await page.locator('.row', { hasText: 'Session: idle' }).last().waitFor();
});

await test('delivers a message that was typed while the gateway was down', async () => {
  await terminate(gateway.child, 'SIGKILL');
  await page.waitForSelector('#connection:not([hidden])');
  await send(page, 'my name is Ada');
  gateway = await start();
  await answer(page, 'Ada').waitFor({ timeout: 30000 });
  await waitIdle(page);
  assert.equal(await page.locator('.row.user .body', { hasText: 'my name is Ada' }).count(), 1);
});

await test('finishes an answer after the gateway was killed', async () => {
  await send(page, 'count to 70');
  await page.waitForSelector('.row.live');
  await terminate(gateway.child, 'SIGKILL');
  gateway = await start();
  await answer(page, '70').waitFor({ timeout: 30000 });
  assert.equal(await page.locator('.row.user .body', { hasText: 'count to 70' }).count(), 1);
});

await test('opens an empty new chat and returns to the old one', async () => {
  await page.click('#new-chat');
  await page.waitForSelector('#empty:not([hidden])');
  await page.locator('#sessions a, #sessions button').first().click();
  await answer(page, '70').waitFor();
});

await test('shows why a channel is down and when it is retried', async () => {
  assert.equal(await page.locator('#links .link').count(), 0);
  await terminate(gateway.child, 'SIGTERM');
  // The Telegram server does not exist; the second Slack token is missing.
  gateway = await start(`platforms:
  telegram:
    enabled: true
    token: "123:abc"
    extra:
      base_url: http://127.0.0.1:1/bot
  slack:
    enabled: true
    token: xoxb-none
`);
  const telegram = page.locator('#links .link.waiting', { hasText: 'Telegram' });
  await telegram.waitFor({ timeout: 30000 });
  assert.match(await telegram.textContent(), /next try in \d+ s · 1 failed attempt · temporary · cannot connect/);
  const slack = page.locator('#links .link.fatal', { hasText: 'Slack' });
  await slack.waitFor();
  const shown = await slack.textContent();
  assert.match(shown, /app.?token/i);
  assert.ok(!shown.includes('next try'), shown);
  await page.locator('#links').screenshot({ path: path.join(artifacts, 'links.png') });
});

await test('shows an approval request after a reload and answers it by button', async () => {
  await terminate(gateway.child, 'SIGTERM');
  const model = await scriptedModel();
  gateway = await start(`model:
  provider: custom
  default: fake
  base_url: ${model.url}
  api_key: none
terminal:
  enabled: true
  sandbox: 'off'
  login_shell: false
`);
  const folder = path.join(home, 'workspace', 'x');
  const questions = page.locator('#questions:not([hidden])');
  for (const { label, ended, left } of [
    { label: '🚫 Deny', ended: 'Denied', left: true },
    { label: '✅ Once', ended: 'Allowed once', left: false },
  ]) {
    mkdirSync(folder, { recursive: true });
    model.next(':tool terminal {"command": "rm -rf ./x"}');
    model.next(`that was ${label}`);
    await send(page, `tidy up, please (${label})`);
    await questions.waitFor({ timeout: 30000 });
    await page.locator('.row', { hasText: 'rm -rf ./x' }).last().waitFor();
    await page.reload();
    await questions.waitFor({ timeout: 30000 });
    assert.ok(existsSync(folder), 'run without approval');
    await page.screenshot({ path: path.join(artifacts, `question-${left ? 'deny' : 'allow'}.png`) });
    await questions.getByRole('button', { name: label, exact: true }).click();
    await answer(page, `that was ${label}`).waitFor({ timeout: 30000 });
    await questions.waitFor({ state: 'detached' });
    await page.locator('.row', { hasText: ended }).last().waitFor();
    assert.equal(existsSync(folder), left, label);
  }
  await waitIdle(page);
  model.child.kill();
});

await test('fits a phone screen', async () => {
  await page.setViewportSize({ width: 360, height: 740 });
  const wide = await page.evaluate(() => document.documentElement.scrollWidth);
  assert.ok(wide <= 360, `the page is ${wide} px wide`);
  await page.click('#open-sidebar');
  await page.waitForSelector('#new-chat', { state: 'visible' });
  await page.screenshot({ path: path.join(artifacts, 'phone-sidebar.png') });
  await page.click('#close-sidebar');
  await page.locator('#new-chat').waitFor({ state: 'hidden' });
  await page.screenshot({ path: path.join(artifacts, 'phone.png') });
});

await test('has no page errors', async () => {
  assert.deepEqual(pageErrors, []);
});

await terminate(gateway.child, 'SIGTERM');
await browser.close();
rmSync(home, { recursive: true, force: true });
console.log(`\n${passed} passed, ${failed} failed`);
process.exit(failed === 0 ? 0 : 1);
