// The reference server of the conformance suite's scenarios, for both eras, written on the TypeScript SDK 2.x.
//
//   node reference.mjs stdio         sessions, or 2026-07-28 where the client begins so
//   node reference.mjs http PORT     the same at http://127.0.0.1:PORT/mcp
//
// With MODERN=1 it speaks 2026-07-28 alone.
import { randomUUID } from 'node:crypto';
import { createServer } from 'node:http';

import { NodeStreamableHTTPServerTransport, toNodeHandler } from '@modelcontextprotocol/node';
import {
  CLIENT_CAPABILITIES_META_KEY,
  McpServer,
  ProtocolError,
  ResourceTemplate,
  acceptedContent,
  classifyInboundRequest,
  createMcpHandler,
  createRequestStateCodec,
  fromJsonSchema,
  inputRequired,
  isInitializeRequest,
} from '@modelcontextprotocol/server';
import { serveStdio } from '@modelcontextprotocol/server/stdio';

const modernOnly = process.env.MODERN === '1';
const PIXEL =
  'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==';
const SILENCE = 'UklGRiQAAABXQVZFZm10IBAAAAABAAEARKwAAIhYAQACABAAZGF0YQAAAAA=';

const pause = ms => new Promise(resolve => setTimeout(resolve, ms));
const text = words => ({ type: 'text', text: words });
const said = words => ({ content: [text(words)] });
const object = (properties, required = Object.keys(properties)) => ({ type: 'object', properties, required });
const string = description => ({ type: 'string', description });
const page = (uri, content, mimeType = 'text/plain') => ({ contents: [{ uri, mimeType, ...content }] });
const spoken = (role, content) => ({ role, content });

/** What a 2026-07-28 client may change of the state that it carries for us: nothing. */
const codec = createRequestStateCodec({ key: crypto.getRandomValues(new Uint8Array(32)) });
const state = more => codec.mint({ nonce: randomUUID(), ...more });

/** The transports of the session revisions, by session. */
const sessions = new Map();
/** Where a server tells every subscriber of a 2026-07-28 listen stream of changes; set where one serves. */
let notify = { toolsChanged() {}, promptsChanged() {}, resourcesChanged() {} };

/** A question to a user of a session. */
const elicit = (ctx, message, properties, required) =>
  ctx.mcpReq.send({
    method: 'elicitation/create',
    params: { message, requestedSchema: { type: 'object', properties, required: required ?? [] } },
  });

async function elicited(ctx, message, properties, required) {
  const { action, content } = await elicit(ctx, message, properties, required);
  return said(`Elicitation completed: action=${action}, content=${JSON.stringify(content ?? {})}`);
}

// A question to a user as an input-required result.
const asked = (message, properties) => inputRequired.elicit({ message, requestedSchema: object(properties) });
const sampled = (words, maxTokens) =>
  inputRequired.createMessage({ messages: [spoken('user', text(words))], maxTokens });
const name = { name: { type: 'string' } };
const ok = { ok: { type: 'boolean' } };

const titled = values => values.map(([value, title]) => ({ const: value, title }));
const CHOICES = {
  untitledSingle: { type: 'string', enum: ['a', 'b', 'c'] },
  titledSingle: { type: 'string', oneOf: titled([['a', 'First'], ['b', 'Second']]) },
  legacyEnum: { type: 'string', enum: ['a', 'b', 'c'], enumNames: ['One', 'Two', 'Three'] },
  untitledMulti: { type: 'array', minItems: 1, maxItems: 3, items: { type: 'string', enum: ['a', 'b', 'c'] } },
  titledMulti: { type: 'array', minItems: 1, maxItems: 3, items: { anyOf: titled([['a', 'First'], ['b', 'Second']]) } },
};
const DEFAULTS = {
  name: { type: 'string', default: 'John Doe' },
  age: { type: 'integer', default: 30 },
  score: { type: 'number', default: 95.5 },
  status: { type: 'string', enum: ['active', 'inactive', 'pending'], default: 'active' },
  verified: { type: 'boolean', default: true },
};
const DIALECT = {
  $schema: 'https://json-schema.org/draft/2020-12/schema',
  type: 'object',
  $defs: {
    address: {
      $anchor: 'addressDef',
      type: 'object',
      properties: { street: { type: 'string' }, city: { type: 'string' } },
    },
  },
  properties: {
    name: { type: 'string' },
    address: { $ref: '#/$defs/address' },
    contactMethod: { type: 'string', enum: ['phone', 'email'] },
    phone: { type: 'string' },
    email: { type: 'string' },
  },
  allOf: [{ anyOf: [{ required: ['phone'] }, { required: ['email'] }] }],
  if: { properties: { contactMethod: { const: 'phone' } }, required: ['contactMethod'] },
  then: { required: ['phone'] },
  else: { required: ['email'] },
  additionalProperties: false,
};

/** Tools of all revisions: description, schema of the arguments, what is done. */
const TOOLS = {
  test_simple_text: ['says something', {}, () => said('This is a simple text response for testing.')],
  test_image_content: ['shows a pixel', {}, () => ({ content: [{ type: 'image', data: PIXEL, mimeType: 'image/png' }] })],
  test_audio_content: ['plays nothing', {}, () => ({ content: [{ type: 'audio', data: SILENCE, mimeType: 'audio/wav' }] })],
  test_embedded_resource: ['brings a resource along', {}, () => ({
    content: [{
      type: 'resource',
      resource: { uri: 'test://embedded-resource', mimeType: 'text/plain', text: 'This is an embedded resource content.' },
    }],
  })],
  test_multiple_content_types: ['text, picture and resource', {}, () => ({
    content: [
      text('Multiple content types test:'),
      { type: 'image', data: PIXEL, mimeType: 'image/png' },
      {
        type: 'resource',
        resource: { uri: 'test://mixed-content-resource', mimeType: 'application/json', text: '{"test":"data","value":123}' },
      },
    ],
  })],
  test_tool_with_logging: ['logs while it runs', {}, async (_, ctx) => {
    for (const data of ['Tool execution started', 'Tool processing data', 'Tool execution completed']) {
      await ctx.mcpReq.notify({ method: 'notifications/message', params: { level: 'info', data } });
      await pause(50);
    }
    return said('Tool with logging executed successfully');
  }],
  test_tool_with_progress: ['tells how far it is', {}, async (_, ctx) => {
    const progressToken = ctx.mcpReq._meta?.progressToken;
    for (const progress of progressToken === undefined ? [] : [0, 50, 100]) {
      const params = { progressToken, progress, total: 100, message: `Completed step ${progress} of 100` };
      await ctx.mcpReq.notify({ method: 'notifications/progress', params });
      await pause(50);
    }
    return said(String(progressToken ?? 'no-progress-token'));
  }],
  test_error_handling: ['fails', {}, () => {
    throw new Error('This tool intentionally returns an error for testing');
  }],
  test_reconnection: ['closes its stream while it runs', {}, async (_, ctx) => {
    sessions.get(ctx.sessionId)?.closeSSEStream(ctx.mcpReq.id);
    await pause(100);
    return said('Reconnection test completed successfully.');
  }],
  test_sampling: ['has the client complete a prompt', { prompt: string('the prompt') }, async ({ prompt }, ctx) => {
    const params = { messages: [spoken('user', text(prompt))], maxTokens: 100 };
    const { content } = await ctx.mcpReq.send({ method: 'sampling/createMessage', params });
    return said(`LLM response: ${content?.text ?? 'No response'}`);
  }],
  test_elicitation: ['asks the user', { message: string('what to ask') }, async ({ message }, ctx) => {
    const { action, content } = await elicit(ctx, message, { response: string("User's response") }, ['response']);
    return said(`User response: action=${action}, content=${JSON.stringify(content ?? {})}`);
  }],
  test_elicitation_sep1034_defaults: ['asks with defaults', {}, (_, ctx) => elicited(ctx, 'Please review', DEFAULTS)],
  test_elicitation_sep1330_enums: ['asks for choices', {}, (_, ctx) => elicited(ctx, 'Please select', CHOICES)],
  json_schema_2020_12_tool: ['has a schema with every keyword', DIALECT, args => said(JSON.stringify(args))],
  test_x_mcp_header: ['has an argument that is mirrored into a header', {
    type: 'object',
    properties: { region: { type: 'string', 'x-mcp-header': 'Region' }, level: { type: 'integer' } },
  }, ({ region }) => said(`region=${region ?? '<none>'}`)],
  test_missing_capability: ['needs sampling', {}, (_, ctx) =>
    ctx.mcpReq.inputResponses?.llm_answer === undefined
      ? inputRequired({ inputRequests: { llm_answer: sampled('Reply with the single word: pong', 16) } })
      : said('sampling round-trip complete')],
  test_streaming_elicitation: ['asks nothing', {}, () => said('result frames only')],
  test_logging_tool: ['logs where the client wants it', {}, async (_, ctx) => {
    await ctx.mcpReq.log('info', 'test_logging_tool ran');
    return said('logged');
  }],
  test_trigger_tool_change: ['has the tools change', {}, () => (notify.toolsChanged(), said('told'))],
  test_trigger_prompt_change: ['has the prompts change', {}, () => (notify.promptsChanged(), said('told'))],
};

/** Tools that need answers of the client in a second round. */
const ROUNDS = {
  elicitation: (_, { mcpReq }) => {
    const given = acceptedContent(mcpReq.inputResponses, 'user_name')?.name;
    return typeof given === 'string'
      ? said(`Hello, ${given}!`)
      : inputRequired({ inputRequests: { user_name: asked('What is your name?', name) } });
  },
  sampling: (_, { mcpReq }) => {
    const answer = mcpReq.inputResponses?.capital_question;
    return answer
      ? said(`Sampling response: ${answer.content?.text ?? JSON.stringify(answer)}`)
      : inputRequired({ inputRequests: { capital_question: sampled('What is the capital of France?', 100) } });
  },
  list_roots: (_, { mcpReq }) => {
    const roots = mcpReq.inputResponses?.client_roots?.roots;
    return Array.isArray(roots)
      ? said(`Client exposed ${roots.length} root(s): ${roots.map(root => root.uri).join(', ')}`)
      : inputRequired({ inputRequests: { client_roots: inputRequired.listRoots() } });
  },
  request_state: async (_, { mcpReq }) => {
    if (acceptedContent(mcpReq.inputResponses, 'confirm') === undefined) {
      const inputRequests = { confirm: asked('Please confirm', ok) };
      return inputRequired({ inputRequests, requestState: await state() });
    }
    if (mcpReq.requestState() === undefined) throw new ProtocolError(-32602, 'requestState is missing');
    return said('state-ok');
  },
  multiple_inputs: async (_, { mcpReq }) => {
    const given = acceptedContent(mcpReq.inputResponses, 'user_name')?.name;
    const greeting = mcpReq.inputResponses?.greeting?.content?.text;
    const roots = mcpReq.inputResponses?.client_roots?.roots;
    if (given && greeting && roots) return said(`${greeting} ${given}, ${roots.length} root(s)`);
    const inputRequests = {
      user_name: asked('What is your name?', name),
      greeting: sampled('Generate a greeting', 50),
      client_roots: inputRequired.listRoots(),
    };
    return inputRequired({ inputRequests, requestState: await state() });
  },
  multi_round: async (_, { mcpReq }) => {
    const { round = 0, first } = mcpReq.requestState() ?? {};
    if (round === 0) {
      const inputRequests = { step1: asked('Step 1: What is your name?', name) };
      return inputRequired({ inputRequests, requestState: await state({ round: 1 }) });
    }
    if (round === 1) {
      const given = acceptedContent(mcpReq.inputResponses, 'step1')?.name;
      const inputRequests = { step2: asked('Step 2: What is your favorite color?', { color: { type: 'string' } }) };
      return inputRequired({ inputRequests, requestState: await state({ round: 2, first: given }) });
    }
    return said(`${first} likes ${acceptedContent(mcpReq.inputResponses, 'step2')?.color}`);
  },
  tampered_state: async (_, { mcpReq }) =>
    mcpReq.requestState() !== undefined && acceptedContent(mcpReq.inputResponses, 'confirm') !== undefined
      ? said('integrity-ok')
      : inputRequired({ inputRequests: { confirm: asked('Please confirm', ok) }, requestState: await state() }),
  capabilities: (_, { mcpReq }) => {
    if (mcpReq.inputResponses !== undefined) return said('fulfilled');
    const can = mcpReq.envelope?.[CLIENT_CAPABILITIES_META_KEY] ?? {};
    const inputRequests = {
      ...(can.elicitation && { user_name: asked('What is your name?', name) }),
      ...(can.sampling && { greeting: sampled('Generate a short greeting', 50) }),
      ...(can.roots && { client_roots: inputRequired.listRoots() }),
    };
    return Object.keys(inputRequests).length ? inputRequired({ inputRequests }) : said('nothing can be asked');
  },
};

/** Prompts: description, names of the arguments, messages. */
const PROMPTS = {
  test_simple_prompt: ['simple', [], () => [text('This is a simple prompt for testing.')]],
  test_prompt_with_arguments: ['with arguments', ['arg1', 'arg2'], ({ arg1, arg2 }) => [
    text(`Prompt with arguments: arg1='${arg1}', arg2='${arg2}'`),
  ]],
  test_prompt_with_embedded_resource: ['with a resource', ['resourceUri'], ({ resourceUri: uri }) => [
    { type: 'resource', resource: { uri, mimeType: 'text/plain', text: 'Embedded resource content for testing.' } },
    text('Please process the embedded resource above.'),
  ]],
  test_prompt_with_image: ['with a picture', [], () => [
    { type: 'image', data: PIXEL, mimeType: 'image/png' },
    text('Please analyze the image above.'),
  ]],
};

/** Resources: name, URI, kind, contents. */
const RESOURCES = [
  ['static-text', 'test://static-text', 'text/plain', { text: 'This is the content of the static text resource.' }],
  ['static-binary', 'test://static-binary', 'image/png', { blob: PIXEL }],
  ['watched-resource', 'test://watched-resource', 'text/plain', { text: 'Watched resource content' }],
];

function server() {
  const changes = { listChanged: true };
  const capabilities = {
    tools: changes,
    prompts: changes,
    resources: { subscribe: true, ...changes },
    logging: {},
    completions: {},
  };
  const mcp = new McpServer(
    { name: 'reference', version: '1.0.0' },
    { capabilities, requestState: { verify: codec.verify } },
  );
  for (const [tool, [description, properties, run]] of Object.entries(TOOLS)) {
    const schema = properties.type === 'object' ? properties : object(properties);
    mcp.registerTool(tool, { description, inputSchema: fromJsonSchema(schema) }, async (args, ctx) => run(args, ctx));
  }
  for (const [kind, run] of Object.entries(ROUNDS)) {
    const tool = `test_input_required_result_${kind}`;
    const inputSchema = fromJsonSchema(object({}));
    mcp.registerTool(tool, { description: 'needs a second round', inputSchema }, async (args, ctx) => run(args, ctx));
  }
  for (const [prompt, [description, names, render]] of Object.entries(PROMPTS)) {
    const messages = args => ({ messages: render(args).map(content => spoken('user', content)) });
    if (names.length === 0) {
      mcp.registerPrompt(prompt, { description }, async () => messages({}));
    } else {
      const argsSchema = fromJsonSchema(object(Object.fromEntries(names.map(arg => [arg, string(arg)]))));
      mcp.registerPrompt(prompt, { description, argsSchema }, async args => messages(args));
    }
  }
  mcp.registerPrompt('test_input_required_result_prompt', { description: 'needs a second round' }, async ctx => {
    const context = acceptedContent(ctx.mcpReq.inputResponses, 'user_context')?.context;
    return typeof context === 'string'
      ? { messages: [spoken('user', text(`Use the following context: ${context}`))] }
      : inputRequired({ inputRequests: { user_context: asked('What context?', { context: { type: 'string' } }) } });
  });
  for (const [title, uri, mimeType, content] of RESOURCES) {
    mcp.registerResource(title, uri, { title, description: title, mimeType }, async () => page(uri, content, mimeType));
  }
  const template = new ResourceTemplate('test://template/{id}/data', { list: undefined });
  mcp.registerResource('template', template, { title: 'template', mimeType: 'application/json' }, async (uri, { id }) =>
    page(uri.toString(), { text: JSON.stringify({ id, templateTest: true, data: `Data for ID: ${id}` }) }, 'application/json'),
  );
  for (const method of ['resources/subscribe', 'resources/unsubscribe', 'logging/setLevel']) {
    mcp.server.setRequestHandler(method, async () => ({}));
  }
  mcp.server.setRequestHandler('completion/complete', async () => ({
    completion: { values: [], total: 0, hasMore: false },
  }));
  return mcp;
}

/** Events of the streams of one session, for those that come back for them. */
class Events {
  #events = [];
  async storeEvent(stream, message) {
    const id = `${stream}::${this.#events.length}`;
    this.#events.push({ id, stream, message });
    return id;
  }
  async replayEventsAfter(last, { send }) {
    const [stream, at] = last.split('::');
    for (const event of this.#events.slice(Number(at) + 1)) {
      if (event.stream === stream && Object.keys(event.message ?? {}).length) await send(event.id, event.message);
    }
    return stream;
  }
}

async function body(request) {
  const chunks = [];
  for await (const chunk of request) chunks.push(chunk);
  if (chunks.length === 0) return undefined;
  try {
    return JSON.parse(Buffer.concat(chunks).toString());
  } catch {
    return undefined;
  }
}

function refuse(response, status, code, message) {
  response.writeHead(status, { 'content-type': 'application/json' });
  response.end(JSON.stringify({ jsonrpc: '2.0', error: { code, message }, id: null }));
}

async function opened(parsed) {
  const transport = new NodeStreamableHTTPServerTransport({
    sessionIdGenerator: randomUUID,
    eventStore: new Events(),
    retryInterval: 500,
    onsessioninitialized: id => sessions.set(id, transport),
  });
  transport.onclose = () => sessions.delete(transport.sessionId);
  await server().connect(transport);
  return transport;
}

function serveHttp(port) {
  const handler = createMcpHandler(server, modernOnly ? { legacy: 'reject' } : {});
  notify = handler.notify;
  const modern = toNodeHandler(handler);
  createServer(async (request, response) => {
    const { headers, method } = request;
    const host = (headers.host ?? '').replace(/:\d+$/, '');
    if (!['localhost', '127.0.0.1', '[::1]'].includes(host)) return refuse(response, 403, -32000, 'not this Host');
    if (headers.origin && !/^https?:\/\/(localhost|127\.0\.0\.1|\[::1\])(:\d+)?$/.test(headers.origin)) {
      return refuse(response, 403, -32000, 'not this Origin');
    }
    const parsed = method === 'POST' ? await body(request) : undefined;
    const inbound = classifyInboundRequest({
      httpMethod: method,
      protocolVersionHeader: headers['mcp-protocol-version'],
      mcpMethodHeader: headers['mcp-method'],
      body: parsed,
    });
    if (modernOnly || inbound.kind !== 'legacy') return modern(request, response, parsed);
    const id = headers['mcp-session-id'];
    if (!id && isInitializeRequest(parsed)) return (await opened()).handleRequest(request, response, parsed);
    if (!id) return refuse(response, 400, -32000, 'a session is needed');
    const session = sessions.get(id);
    if (!session) return refuse(response, 404, -32001, 'no such session');
    return session.handleRequest(request, response, parsed);
  }).listen(port, '127.0.0.1', () => console.log(`listening on ${port}`));
}

if (process.argv[2] === 'http') serveHttp(Number(process.argv[3]));
else serveStdio(server, modernOnly ? { legacy: 'reject' } : {});
