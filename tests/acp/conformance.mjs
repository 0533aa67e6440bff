// One session that uses every method, each line of the agent held against the JSON Schema that the
// official TypeScript package ships, and the order of all lines against the rules of the protocol.

import { existsSync, readFileSync, readdirSync } from "node:fs";
import { createRequire } from "node:module";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

import Ajv2020 from "ajv/dist/2020.js";

import { Checks, Client, Editor, file, world } from "./harness.mjs";

const require = createRequire(import.meta.url);
const schemas = join(dirname(require.resolve("@agentclientprotocol/sdk")), "../../../schema/v1");
const PNG = Buffer.from("\x89PNG\r\n\x1a\n\0\0\0\rIHDR", "latin1").toString("base64");

/** Validators of what the agent sends, by method. */
function validators() {
  const load = (name) => JSON.parse(readFileSync(join(schemas, name), "utf8"));
  const all = { stable: load("schema.json"), unstable: load("schema.unstable.json") };
  const compile = (schema, definition) => {
    const ajv = new Ajv2020({ strict: false, validateFormats: false, allErrors: true });
    return ajv.compile({ $ref: `#/$defs/${definition}`, $defs: schema.$defs });
  };
  const found = { response: new Map(), call: new Map() };
  for (const schema of [all.stable, all.unstable]) {
    for (const [name, definition] of Object.entries(schema.$defs)) {
      const method = definition["x-method"];
      if (!method) continue;
      const agent = definition["x-side"] === "agent";
      if (agent && name.endsWith("Response") && !found.response.has(method)) {
        found.response.set(method, compile(schema, name));
      }
      const sends = !agent && (name.endsWith("Request") || name.endsWith("Notification"));
      if (sends && !found.call.has(method)) found.call.set(method, compile(schema, name));
    }
  }
  found.error = compile(all.stable, "Error");
  return found;
}

const checks = new Checks();
const valid = validators();
let lines = 0;
let violations = 0;

function violated(what, entry, errors) {
  violations += 1;
  checks.check(what, false, { line: entry.line?.slice(0, 300), errors: errors?.slice(0, 3) });
}

/** Holds a whole conversation against the schema, and its order against the rules. */
function judge(log) {
  const asked = new Map();
  const opened = new Set();
  const running = new Map();
  const resuming = new Set();
  const known = new Set();
  // Questions that are put while no prompt runs, and sessions in which one was answered with yes: a
  // turn of its own is told there, until the next prompt.
  const offers = new Map();
  const offered = new Set();
  log.forEach((entry) => {
    const { message } = entry;
    if (entry.from === "client") {
      if (message.method && message.id !== undefined) {
        asked.set(message.id, message);
        const session = message.params?.sessionId;
        if (message.method === "session/prompt") {
          running.set(session, (running.get(session) ?? 0) + 1);
        }
        if (message.method === "session/resume") resuming.add(session);
        if (message.method === "session/load") known.add(session);
        if (message.method === "session/prompt") offered.delete(session);
      }
      const chosen = message.method === undefined && message.result?.outcome?.optionId;
      if (chosen && chosen !== "deny" && offers.has(message.id)) offered.add(offers.get(message.id));
      return;
    }
    lines += 1;
    if (message.jsonrpc !== "2.0") return violated("a line is no message", entry);
    if (message.method) {
      const check = valid.call.get(message.method);
      if (!check) return violated(`${message.method} is no method of a client`, entry);
      if (!check(message.params)) violated(message.method, entry, check.errors);
      const session = message.params.sessionId;
      if (message.method === "session/request_permission" && !running.get(session)) {
        if (!opened.has(session) || known.has(session)) violated("a question before the load's response", entry);
        offers.set(message.id, session);
      }
      if (message.method !== "session/update") return;
      if (!opened.has(session) && !known.has(session)) {
        violated("an update before the session's response", entry);
      }
      if (resuming.has(session)) violated("an update before the response of resume", entry);
      const kind = message.params.update.sessionUpdate;
      const ofTurn = /_chunk$|^tool_call|^plan$/.test(kind);
      const quiet = !running.get(session) && !known.has(session) && !offered.has(session);
      const note = message.params.update.messageId === undefined;
      if (ofTurn && quiet && !note) violated("an update of a turn after its answer", entry);
      return;
    }
    if (message.id === null) {
      if (!valid.error(message.error)) violated("error", entry, valid.error.errors);
      return;
    }
    const request = asked.get(message.id);
    if (!request) return violated("an answer that nobody waits for, or a second one", entry);
    asked.delete(message.id);
    const session = request.params?.sessionId ?? message.result?.sessionId;
    if (request.method === "session/prompt") running.set(session, running.get(session) - 1);
    resuming.delete(session);
    known.delete(session);
    if (message.error) {
      if (!valid.error(message.error)) violated("error", entry, valid.error.errors);
      return;
    }
    opened.add(message.result?.sessionId ?? session);
    const check = valid.response.get(request.method);
    if (check && !check(message.result)) violated(request.method, entry, check.errors);
  });
  checks.check("every request was answered", asked.size === 0, [...asked.values()]);
}

const call = (id, name, args) => ({ toolCall: { id, name, arguments: args } });

async function talk(setup) {
  const client = new Client(setup);
  const { work, script } = setup;
  const editor = new Editor();
  client.editor = editor;
  file(join(work, "a.txt"), "one\n");
  const code = (answer) => answer.error?.code;
  const reason = (answer) => answer.result?.stopReason;
  await client.must("initialize", {
    protocolVersion: 1,
    clientCapabilities: { fs: { readTextFile: true, writeTextFile: true }, terminal: true },
    clientInfo: { name: "conformance", version: "1" },
  });
  const server = { name: "files", command: "/bin/false", args: [], env: [{ name: "K", value: "s3cret" }] };
  const echo = {
    name: "echo",
    command: process.execPath,
    args: [fileURLToPath(new URL("mcp_server.mjs", import.meta.url))],
    env: [{ name: "K", value: "of ${HOME}" }],
  };
  const mcpServers = [server, echo];
  const { sessionId } = await client.must("session/new", { cwd: work, mcpServers });
  await client.must("session/set_title", { sessionId, title: "Conformance" });
  await client.must("session/set_mode", { sessionId, modeId: "on_request" });
  await client.must("session/set_model", { sessionId, modelId: "openai-chat/strict-1" });
  const config = { sessionId, configId: "sandbox", value: "danger_full_access" };
  await client.must("session/set_config_option", config);
  await client.must("session/set_mode", { sessionId, modeId: "strict" });

  await script([
    {
      steps: [
        { reasoning: "hm" },
        { text: "I look." },
        call("c1", "ls", {}),
        call("c2", "read", { path: "a.txt" }),
        call("c3", "todo", { todos: [{ step: "look", status: "done" }, { step: "act", status: "pending" }] }),
        call("c4", "edit", { path: "a.txt", old_string: "one", new_string: "two" }),
        call("c5", "write", { path: "b.txt", content: "x\n" }),
        call("c6", "shell", { command: "seq 1 20000" }),
      ],
    },
    { text: "All done here." },
  ]);
  let answer = await client.ask("session/prompt", {
    sessionId,
    prompt: [
      { type: "text", text: "look at " },
      { type: "resource_link", name: "a.txt", uri: `file://${work}/a.txt` },
      { type: "image", mimeType: "image/png", data: PNG },
      { type: "resource", resource: { uri: "file:///b.md", text: "# b" } },
    ],
  });
  checks.check("a turn with tools ends", reason(answer) === "end_turn", answer);
  const asked = ["fs/read_text_file", "fs/write_text_file", "terminal/create", "terminal/output",
    "terminal/wait_for_exit", "terminal/release"];
  checks.check("the editor is asked", asked.every((method) => editor.asked.includes(method)), editor.asked);
  const seen = JSON.stringify(client.updates(0));
  checks.check("the terminal is shown", seen.includes('"terminalId"'));
  checks.check("and its output at the end", seen.includes("20000\\n[exit code 0; in the editor's terminal]"));

  file(join(work, "c.txt"), "saved\n");
  editor.buffers.set(join(work, "c.txt"), "saved\ntyped\n");
  await script([
    { steps: [call("u1", "write", { path: "c.txt", content: "blind\n" })] },
    { steps: [call("u2", "edit", { path: "c.txt", old_string: "typed", new_string: "changed" })] },
    { text: "Both tried." },
  ]);
  answer = await client.prompt(sessionId, "change it");
  checks.check("a turn over an unsaved buffer", reason(answer) === "end_turn", answer);
  const held = readFileSync(join(work, "c.txt"), "utf8");
  checks.check("an unsaved buffer is changed, never replaced", held === "saved\nchanged\n", held);

  const lack = client.updates(0).filter((u) => /files/.test(u.content?.text ?? ""));
  checks.check("a missing server is told of once", lack.length === 1, lack);
  await script([{ steps: [call("m1", "mcp__echo__say", { text: "hello" })] }, { text: "It said so." }]);
  answer = await client.prompt(sessionId, "say it");
  checks.check("a turn with a client's server", reason(answer) === "end_turn", answer);
  const heard = JSON.stringify(client.updates(0)).includes("hello of ${HOME}");
  checks.check("the client's server has said it", heard);

  client.decide = () => "deny";
  await script([{ steps: [call("d1", "shell", { command: "touch denied" })] }, { text: "Then not." }]);
  answer = await client.prompt(sessionId, "try");
  checks.check("a refused call does not end the turn", reason(answer) === "end_turn", answer);

  client.decide = () => undefined;
  await script([{ steps: [call("e1", "shell", { command: "touch asked" })] }]);
  let prompt = client.prompt(sessionId, "ask");
  const question = await client.until((m) => m.method === "session/request_permission");
  client.notify("session/cancel", { sessionId });
  client.send({ jsonrpc: "2.0", id: question.id, result: { outcome: { outcome: "cancelled" } } });
  checks.check("cancelled while asked", reason(await prompt) === "cancelled");

  client.decide = () => "approve_for_session";
  await script([{ steps: [call("f1", "shell", { command: "echo begun; sleep 60" })] }]);
  const begun = client.update("tool_call_update", (u) => u.content?.[0]?.type === "terminal");
  prompt = client.prompt(sessionId, "wait");
  await begun;
  const second = client.prompt(sessionId, "behind");
  client.notify("session/cancel", { sessionId });
  checks.check("cancelled in a tool", reason(await prompt) === "cancelled");
  checks.check("its command was killed", editor.asked.includes("terminal/kill"), editor.asked);
  checks.check("no terminal is left", editor.terminals.size === 0, [...editor.terminals.keys()]);
  checks.check("what waits is cancelled too", reason(await second) === "cancelled");

  await script([{ steps: [{ text: "half" }, "stall"] }]);
  const spoken = client.update("agent_message_chunk");
  prompt = client.prompt(sessionId, "stall");
  await spoken;
  client.notify("session/cancel", { sessionId });
  checks.check("cancelled in a model call", reason(await prompt) === "cancelled");

  await script([{ status: 401, message: "no" }]);
  answer = await client.prompt(sessionId, "fail");
  checks.check("a model's refusal is an error", code(answer) === -32603, answer);

  await script([{ steps: [call("g1", "ls", {})] }, { text: "First." }, { text: "Second." }]);
  prompt = client.prompt(sessionId, "first");
  const behind = client.prompt(sessionId, "second");
  checks.check("the first of two", reason(await prompt) === "end_turn");
  checks.check("the second of two", reason(await behind) === "end_turn");
  answer = await client.prompt(sessionId, "/compact");
  checks.check("a command is a turn", reason(answer) === "end_turn", answer);

  checks.check("no words", code(await client.ask("session/prompt", { sessionId, prompt: [] })) === -32602);
  const listed = await client.must("session/list", { cwd: work });
  checks.check("listed", listed.sessions[0]?.title === "Conformance", listed);
  const wrong = await client.ask("session/list", { cursor: "§" });
  checks.check("a wrong cursor", code(wrong) === -32602, wrong);
  const fork = await client.must("session/fork", { sessionId, cwd: work });
  await client.must("session/delete", { sessionId: fork.sessionId });
  checks.check("deleted", code(await client.prompt(fork.sessionId, "x")) === -32002);
  await client.must("session/delete", { sessionId: "nobody" });
  const params = { sessionId: "nobody", cwd: work, mcpServers: [] };
  const unknown = await client.ask("session/load", params);
  checks.check("unknown", code(unknown) === -32002 && unknown.error.data.sessionId === "nobody", unknown);

  await client.must("session/close", { sessionId });
  checks.check("closed", code(await client.prompt(sessionId, "x")) === -32002);
  const again = { sessionId, cwd: work, mcpServers: [] };
  const replays = [];
  for (let turn = 0; turn < 2; turn += 1) {
    const from = client.log.length;
    const id = client.next;
    await client.must("session/load", again);
    const end = client.log.findIndex((e) => e.from === "agent" && e.message.id === id);
    const told = client.updates(from, end);
    replays.push(told.filter((u) => u.sessionUpdate !== "available_commands_update"));
  }
  const same = JSON.stringify(replays[0]) === JSON.stringify(replays[1]);
  checks.check("loading twice is loading once", same && replays[0].length > 10);
  const ids = JSON.stringify(replays[0]).includes("terminalId");
  checks.check("a replay knows no terminal", !ids);
  await client.must("session/close", { sessionId });
  const resumed = await client.must("session/resume", again);
  checks.check("restored", resumed.modes.currentModeId === "strict", resumed.modes);

  const unreadable = client.until((m) => m.id === null && m.error?.code === -32700);
  client.raw("{ no json\n");
  await unreadable;
  const invalid = client.until((m) => m.id === null && m.error?.code === -32700);
  client.raw(Buffer.from([0xff, 0xfe, 0x0a]));
  await invalid;
  checks.check("an unknown method", code(await client.ask("session/nothing", {})) === -32601);
  checks.check("no secret is told", !JSON.stringify(client.log.filter((e) => e.from === "agent")).includes("s3cret"));
  const exit = await client.end();
  checks.check("the end of the input is a good end", exit === 0, client.stderr);
  return client;
}

checks.check("the schema can refuse", !valid.call.get("session/update")({ sessionId: 1 }));
/** Ends the agent in the middle of a tool: the log says how, and nothing is left running. */
async function ended(setup, name, end) {
  const { work, script } = setup;
  let client = new Client(setup);
  await client.must("initialize", { protocolVersion: 1, clientCapabilities: {} });
  const { sessionId } = await client.must("session/new", { cwd: work, mcpServers: [] });
  const seconds = `60.${process.pid}`;
  await script([{ steps: [call("s1", "shell", { command: `echo begun; sleep ${seconds}` })] }]);
  const begun = client.update("tool_call_update", (u) => /begun/.test(JSON.stringify(u.content ?? "")));
  client.prompt(sessionId, "wait").catch(() => {});
  await begun;
  const code = await end(client);
  checks.check(`${name}: a good end`, code === 0, { code, stderr: client.stderr });
  const all = client.log.every((entry) => entry.message.unreadable === undefined);
  checks.check(`${name}: nothing but the protocol`, all);
  const left = readdirSync("/proc").filter((pid) => {
    try {
      return readFileSync(`/proc/${pid}/cmdline`, "utf8").includes(seconds);
    } catch {
      return false;
    }
  });
  checks.check(`${name}: no tool is left`, left.length === 0, left);
  judge(client.log);
  client = new Client(setup);
  const from = client.log.length;
  await client.must("session/load", { sessionId, cwd: work, mcpServers: [] });
  const shown = client.updates(from).find((update) => update.sessionUpdate === "tool_call");
  const outcome = shown?._meta?.threadline?.outcome;
  checks.check(`${name}: the log says so`, outcome === "cancelled", shown);
  await client.end();
}

/** Kills the agent while a command runs in the editor's terminal. */
async function killedInTerminal(setup) {
  const { work, script } = setup;
  let client = new Client(setup);
  client.editor = new Editor();
  const offers = { protocolVersion: 1, clientCapabilities: { terminal: true } };
  await client.must("initialize", offers);
  const { sessionId } = await client.must("session/new", { cwd: work, mcpServers: [] });
  await client.must("session/set_config_option", { sessionId, configId: "sandbox", value: "danger_full_access" });
  await script([{ steps: [call("k1", "shell", { command: "echo begun; sleep 60" })] }]);
  const shown = client.update("tool_call_update", (u) => u.content?.[0]?.type === "terminal");
  client.prompt(sessionId, "wait").catch(() => {});
  await shown;
  await client.kill();
  client.editor.close();
  const { log } = client;
  client = new Client(setup);
  client.editor = new Editor();
  await client.must("initialize", offers);
  const from = client.log.length;
  await client.must("session/load", { sessionId, cwd: work, mcpServers: [] });
  const told = client.updates(from);
  const left = told.find((update) => update.sessionUpdate === "tool_call");
  checks.check("killed in a terminal: unknown", left?._meta?.threadline?.outcome === "unknown", left);
  checks.check("killed in a terminal: it is forgotten", !JSON.stringify(told).includes("terminalId"), told);
  await script([{ text: "On." }]);
  const answer = await client.prompt(sessionId, "go on");
  checks.check("killed in a terminal: goes on", answer.result?.stopReason === "end_turn", answer);
  checks.check("killed in a terminal: nobody is asked for it", client.editor.asked.length === 0, client.editor.asked);
  await client.end();
  // Of the first agent only the lines: it could not answer its prompt any more.
  for (const entry of log.filter((entry) => entry.from === "agent")) {
    const { method, params } = entry.message;
    const check = method && valid.call.get(method);
    if (check && !check(params)) violated(method, entry, check.errors);
  }
  judge(client.log);
}

/** Kills the agent while it asks; the next one asks again, and runs the call once it is allowed. */
async function killedWhileAsking(setup) {
  const { work, script } = setup;
  let client = new Client(setup);
  client.decide = () => undefined;
  await client.must("initialize", { protocolVersion: 1, clientCapabilities: {} });
  const { sessionId } = await client.must("session/new", { cwd: work, mcpServers: [] });
  const touch = { command: "touch allowed.txt" };
  await script([{ steps: [call("q1", "shell", touch)] }]);
  const question = client.until((m) => m.method === "session/request_permission");
  client.prompt(sessionId, "do it").catch(() => {});
  await question;
  await client.kill();
  await script([{ steps: [call("q2", "shell", touch)] }, { text: "It is done." }]);
  client = new Client(setup);
  await client.must("initialize", { protocolVersion: 1, clientCapabilities: {} });
  const done = client.update("agent_message_chunk", (u) => /done\.$/.test(u.content.text));
  await client.must("session/load", { sessionId, cwd: work, mcpServers: [] });
  await done;
  checks.check("killed while asking: runs after a yes", existsSync(join(work, "allowed.txt")));
  const asked = client.log.filter((e) => e.message.method === "session/request_permission");
  checks.check("killed while asking: asked once", asked.length === 1, asked.length);
  await client.end();
  judge(client.log);
}

await world(async (setup) => {
  const client = await talk(setup);
  judge(client.log);
  await killedInTerminal(setup);
  await killedWhileAsking(setup);
  await ended(setup, "end of the input", (client) => client.end());
  for (const signal of ["SIGHUP", "SIGTERM"]) {
    await ended(setup, signal, async (client) => {
      client.process.kill(signal);
      const [code] = await client.exited;
      await client.closed;
      return code;
    });
  }
  checks.check("the model was sent nothing wrong", (await setup.violations()).length === 0, await setup.violations());
});
console.log(`acp: ${lines} lines of the agent, violations: ${violations}`);
checks.conclude();
