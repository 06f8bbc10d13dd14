// What the conformance suite runs as a client: a gateway of its own with the suite's server behind it, and a client of the
// gateway that has it do what the scenario is about. The suite sees the gateway alone.
//
//   TIDEGATE=…/tidegate node drive.mjs URL
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';

const url = process.argv.at(-1);
const scenario = process.env.MCP_CONFORMANCE_SCENARIO;
const context = JSON.parse(process.env.MCP_CONFORMANCE_CONTEXT ?? '{}');
const isModern = process.env.MCP_CONFORMANCE_PROTOCOL_VERSION === '2026-07-28';
const PATIENCE = 15_000;

async function freePort() {
  const server = createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address();
  server.close();
  await once(server, 'close');
  return port;
}

/** Until the gateway has the server open, or something else than on its way there. */
async function settled(admin) {
  for (const end = Date.now() + PATIENCE; Date.now() < end; await new Promise(resolve => setTimeout(resolve, 25))) {
    const answer = await fetch(`http://${admin}/api/v1/servers/suite`).catch(() => undefined);
    const { state } = answer?.ok ? await answer.json() : {};
    if (state === 'open') return;
  }
  throw new Error('the gateway does not get on with the server');
}

/** An argument that fits a schema, for tools that are called for their own sake. */
function sample(schema) {
  const { type, properties = {}, required = Object.keys(properties), enum: values, default: usual } = schema ?? {};
  if (usual !== undefined) return usual;
  if (values) return values[0];
  switch (type) {
    case 'integer': return 2;
    case 'number': return 2.5;
    case 'boolean': return true;
    case 'array': return [];
    case 'object': return Object.fromEntries(required.map(name => [name, sample(properties[name])]));
    default: return 'text';
  }
}

/** The defaults of a form, which a user accepts as they are. */
const accepted = ({ params }) => {
  const fields = Object.entries(params.requestedSchema?.properties ?? {});
  return { action: 'accept', content: Object.fromEntries(fields.map(([name, field]) => [name, sample(field)])) };
};

async function act(client) {
  const { tools } = await client.listTools();
  if (scenario === 'json-schema-ref-no-deref') return;
  if (scenario === 'json-schema-2020-12-preservation') {
    const { inputSchema } = tools.find(({ name }) => name === 'json_schema_2020_12_tool');
    await client.callTool({ name: 'json_schema_echo', arguments: { schema: inputSchema } });
    return;
  }
  for (const { name, arguments: args } of context.toolCalls ?? []) {
    await client.callTool({ name, arguments: args }).catch(error => console.error(`${name}: ${error.message}`));
  }
  for (const { name, inputSchema } of context.toolCalls ? [] : tools) {
    await client.callTool({ name, arguments: sample(inputSchema) }).catch(error => console.error(`${name}: ${error.message}`));
  }
  if (scenario === 'http-standard-headers') {
    const { resources = [] } = await client.listResources().catch(() => ({}));
    for (const { uri } of resources) await client.readResource({ uri });
    const { prompts = [] } = await client.listPrompts().catch(() => ({}));
    for (const { name } of prompts) await client.getPrompt({ name, arguments: {} });
  }
}

const folder = mkdtempSync(join(tmpdir(), 'drive-'));
const [listen, admin] = [`127.0.0.1:${await freePort()}`, `127.0.0.1:${await freePort()}`];
const protocol = isModern ? 'modern' : 'legacy';
const suite = { url, transport: 'http', protocol, reconnectIntervalMs: 200 };
const config = { listen, admin: { listen: admin }, state: { dir: 'none' }, mcpServers: { suite } };
const file = join(folder, 'tidegate.json');
writeFileSync(file, JSON.stringify(config));
const gateway = spawn(process.env.TIDEGATE, ['run', '--config', file], { stdio: ['ignore', 'inherit', 'inherit'] });
try {
  await settled(admin);
  const client = new Client(
    { name: 'drive', version: '1.0.0' },
    { capabilities: { elicitation: {}, sampling: {}, roots: {} } },
  );
  client.setRequestHandler('elicitation/create', async request => accepted(request));
  client.setRequestHandler('roots/list', async () => ({ roots: [] }));
  client.setRequestHandler('sampling/createMessage', async () => ({
    model: 'none', role: 'assistant', content: { type: 'text', text: 'nothing' },
  }));
  await client.connect(new StreamableHTTPClientTransport(new URL(`http://${listen}/mcp/suite`)));
  await act(client);
  await client.close();
} finally {
  gateway.kill('SIGTERM');
  await once(gateway, 'exit');
  rmSync(folder, { recursive: true });
}
