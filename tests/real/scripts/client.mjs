// A client on a TypeScript SDK. It lists, calls, reads, and gets a progress and an error, and prints what it saw as JSON.
//
//   PLAN='{…}' node client.mjs sdk|legacy|auto|modern stdio COMMAND ARGUMENT…
//   PLAN='{…}' node client.mjs sdk|legacy|auto|modern http|sse URL
//
// `sdk` is the 1.x line; the others are 2.x, which negotiates a revision of one era or finds it out.
const [line, kind, ...target] = process.argv.slice(2);
const plan = JSON.parse(process.env.PLAN);

async function parts() {
  if (line === 'sdk') {
    const from = file => import(`@modelcontextprotocol/sdk/client/${file}.js`);
    return { ...(await from('index')), ...(await from('stdio')), ...(await from('streamableHttp')), ...(await from('sse')) };
  }
  return { ...(await import('@modelcontextprotocol/client')), ...(await import('@modelcontextprotocol/client/stdio')) };
}

const sdk = await parts();
const mode = line === 'modern' ? { pin: '2026-07-28' } : line;
const client = new sdk.Client(
  { name: `interop-${line}`, version: '1.0.0' },
  { capabilities: {}, ...(line !== 'sdk' && { versionNegotiation: { mode } }) },
);

function transport() {
  const [first, ...rest] = target;
  if (kind === 'stdio') return new sdk.StdioClientTransport({ command: first, args: rest, stderr: 'inherit' });
  if (kind === 'sse') return new sdk.SSEClientTransport(new URL(first));
  return new sdk.StreamableHTTPClientTransport(new URL(first));
}

/** All pages of a list. */
async function all(list, member) {
  const found = [];
  let cursor;
  do {
    const page = await client[list](cursor === undefined ? {} : { cursor });
    found.push(...page[member]);
    cursor = page.nextCursor;
  } while (cursor !== undefined);
  return found;
}

const call = ([name, args], options) =>
  line === 'sdk'
    ? client.callTool({ name, arguments: args }, undefined, options)
    : client.callTool({ name, arguments: args }, options);
const words = contents => contents.map(part => part.text ?? '').join('');

await client.connect(transport());
const tools = (await all('listTools', 'tools')).map(tool => tool.name);
const called = words((await call(plan.call)).content);
const resource = (await all('listResources', 'resources')).find(({ name }) => name === plan.resource || name.endsWith(plan.resource));
const read = words((await client.readResource({ uri: resource.uri })).contents);
let progress = 0;
await call(plan.progress, { onprogress: () => (progress += 1) });
const failed = await call(plan.error).then(
  ({ isError, content }) => ({ isError: isError === true, text: words(content) }),
  ({ code, message }) => ({ code, text: message }),
);
const revision = client.getNegotiatedProtocolVersion?.() ?? client.transport?.protocolVersion ?? null;
console.log(JSON.stringify({ tools, called, read, progress, failed, revision }));
await client.close();
