// node render.mjs PROMETHEUS FROM TO SERVER FOLDER: writes each dashboard as a picture into the folder, with what that
// Prometheus has between the two instants (seconds since 1970), the dashboard of one server for that server. Run from
// the folder in which the page was built; the dashboards are in $DASHBOARDS.
import { createServer } from 'node:http';
import { readFile, readdir } from 'node:fs/promises';
import { join, extname } from 'node:path';
import { chromium } from 'playwright-core';

const [prometheus, from, to, server, folder] = process.argv.slice(2);
const dashboards = process.env.DASHBOARDS;
const types = { '.html': 'text/html', '.js': 'text/javascript', '.css': 'text/css', '.json': 'application/json' };
// At the pace of the run: a rate needs four scrapes.
const windows = JSON.stringify({ __rate_interval: '2s', __interval: '1s', __range: `${Math.ceil(to - from)}s` });

const web = createServer(async (request, answer) => {
  const { pathname } = new URL(request.url, 'http://localhost');
  const isBoard = pathname.endsWith('.json');
  const file = isBoard ? join(dashboards, pathname) : join('.', pathname === '/' ? 'index.html' : pathname);
  try {
    const body = await readFile(file);
    answer.writeHead(200, { 'content-type': types[extname(file)] ?? 'application/octet-stream' }).end(body);
  } catch {
    answer.writeHead(404).end();
  }
});
await new Promise((bound) => web.listen(0, '127.0.0.1', bound));

const browser = await chromium.launch({
  executablePath: '/usr/bin/chromium',
  args: ['--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking',
    '--disable-component-update', '--disable-sync'],
});
let failed = false;
for (const board of (await readdir(dashboards)).filter((name) => name.endsWith('.json'))) {
  const page = await browser.newPage({ viewport: { width: 1616, height: 1000 } });
  const errors = [];
  page.on('pageerror', (error) => errors.push(String(error.stack)));
  const one = board === 'tidegate-server.json' ? server : '.+';
  const asked = new URLSearchParams({ board, prometheus, from, to, server: one, windows });
  await page.goto(`http://127.0.0.1:${web.address().port}/?${asked}`);
  const ended = page.waitForFunction(() => window.drawn || window.failed, null, { timeout: 30_000 });
  await ended.catch((late) => errors.push(String(late)));
  errors.push(...[await page.evaluate(() => window.failed)].filter(Boolean));
  await page.screenshot({ path: join(folder, board.replace('.json', '.png')), fullPage: true });
  for (const error of errors) console.error(`${board}: ${error}`);
  failed ||= errors.length > 0;
  await page.close();
}
await browser.close();
web.close();
process.exit(failed ? 1 : 0);
