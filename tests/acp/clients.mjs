// The same session driven by three clients of others: a script on the TypeScript SDK, acpx, and the
// example client of the Python SDK. Each makes a session, prompts with a tool that it is asked for,
// loses the agent by SIGKILL in the middle of a tool, loads the session in a new process and goes
// on. The first also as an editor that lends its files and terminals.

import { execFile, spawn } from "node:child_process";
import { existsSync, mkdirSync, readFileSync, readdirSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { Readable, Writable } from "node:stream";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";

import * as acp from "@agentclientprotocol/sdk";

import { Checks, Editor, THREADLINE, target, world } from "./harness.mjs";

const here = dirname(fileURLToPath(import.meta.url));
const run = promisify(execFile);
const checks = new Checks();
const PYTHON_SDK = "agent-client-protocol==0.12.1";

const call = (id, command) => ({
  toolCall: { id, name: "shell", arguments: { command } },
});
const FIRST = [{ steps: [{ text: "I run it." }, call("c1", "touch ran.txt")] }, { text: "It ran." }];
const CUT = [{ steps: [call("c2", "touch begun.txt; sleep 60")] }];
const AGAIN = [{ text: "On we go." }];

/** Waits until something is so. What is waited for is another process. */
async function until(what, so) {
  for (let tries = 0; tries < 1200; tries += 1) {
    if (so()) return;
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
  throw new Error(`waited too long for ${what}`);
}

async function typescript(setup) {
  await setup.script([...FIRST, ...CUT, ...AGAIN]);
  let updates = [];
  const connected = async (use) => {
    const process = spawn(THREADLINE, setup.args, { env: setup.env, cwd: setup.work, stdio: ["pipe", "pipe", "ignore"] });
    const gone = new Promise((resolve) => process.once("exit", resolve));
    const stream = acp.ndJsonStream(Writable.toWeb(process.stdin), Readable.toWeb(process.stdout));
    const app = acp
      .client({ name: "typescript" })
      .onRequest(acp.methods.client.session.requestPermission, ({ params }) => {
        const option = params.options.find((option) => option.kind === "allow_once");
        return { outcome: { outcome: "selected", optionId: option.optionId } };
      })
      .onNotification(acp.methods.client.session.update, ({ params }) => {
        updates.push(params.update);
      });
    try {
      await app.connectWith(stream, async (agent) => {
        await agent.request(acp.methods.agent.initialize, {
          protocolVersion: acp.PROTOCOL_VERSION,
          clientCapabilities: {},
        });
        await use(agent, process);
      });
    } catch (error) {
      if (!process.killed) throw error;
    } finally {
      process.kill();
      await gone;
    }
  };
  const text = (text) => [{ type: "text", text }];
  let sessionId;
  await connected(async (agent, process) => {
    ({ sessionId } = await agent.request(acp.methods.agent.session.new, { cwd: setup.work, mcpServers: [] }));
    const prompt = acp.methods.agent.session.prompt;
    const first = await agent.request(prompt, { sessionId, prompt: text("run it") });
    checks.check("typescript: a turn", first.stopReason === "end_turn", first);
    checks.check("typescript: the tool ran", existsSync(join(setup.work, "ran.txt")));
    const lost = agent.request(prompt, { sessionId, prompt: text("wait") }).catch(() => "lost");
    await until("the tool", () => existsSync(join(setup.work, "begun.txt")));
    process.kill("SIGKILL");
    checks.check("typescript: the agent is lost", (await lost) === "lost");
  });
  updates = [];
  await connected(async (agent) => {
    await agent.request(acp.methods.agent.session.load, { sessionId, cwd: setup.work, mcpServers: [] });
    const calls = updates.filter((update) => update.sessionUpdate === "tool_call");
    const states = calls.map((update) => update._meta?.threadline?.outcome);
    checks.check("typescript: replayed", states.join() === "ok,unknown", states);
    const prompt = acp.methods.agent.session.prompt;
    const next = await agent.request(prompt, { sessionId, prompt: text("go on") });
    checks.check("typescript: goes on", next.stopReason === "end_turn", next);
    checks.check("typescript: and is told so", JSON.stringify(updates).includes("On we go."));
  });
}

/** An editor on the TypeScript SDK that lends its files and terminals. */
async function typescriptEditor(setup) {
  const path = join(setup.work, "a.txt");
  writeFileSync(path, "saved\n");
  const edit = { path: "a.txt", old_string: "typed", new_string: "changed" };
  const steps = [
    { toolCall: { id: "e1", name: "edit", arguments: edit } },
    call("e2", `ls ${join(setup.home, "store")}; echo token=$EDITOR_TOKEN.; echo from a terminal`),
  ];
  await setup.script([{ steps }, { text: "Both done." }]);
  const editor = new Editor();
  editor.buffers.set(path, "saved\ntyped\n");
  const updates = [];
  const process = spawn(THREADLINE, setup.args, { env: setup.env, cwd: setup.work, stdio: ["pipe", "pipe", "ignore"] });
  const gone = new Promise((resolve) => process.once("exit", resolve));
  const stream = acp.ndJsonStream(Writable.toWeb(process.stdin), Readable.toWeb(process.stdout));
  let app = acp.client({ name: "editor" }).onNotification(acp.methods.client.session.update, ({ params }) => {
    updates.push(params.update);
  });
  const { fs, terminal } = acp.methods.client;
  for (const method of [...Object.values(fs), ...Object.values(terminal)]) {
    app = app.onRequest(method, ({ params }) => editor.answer(method, params));
  }
  await app.connectWith(stream, async (agent) => {
    await agent.request(acp.methods.agent.initialize, {
      protocolVersion: acp.PROTOCOL_VERSION,
      clientCapabilities: { fs: { readTextFile: true, writeTextFile: true }, terminal: true },
    });
    const { sessionId } = await agent.request(acp.methods.agent.session.new, { cwd: setup.work, mcpServers: [] });
    const full = { sessionId, configId: "sandbox", value: "danger_full_access" };
    await agent.request(acp.methods.agent.session.setConfigOption, full);
    const prompt = [{ type: "text", text: "change it" }];
    const answer = await agent.request(acp.methods.agent.session.prompt, { sessionId, prompt });
    checks.check("editor: a turn", answer.stopReason === "end_turn", answer);
  });
  process.kill();
  await gone;
  const held = readFileSync(path, "utf8");
  checks.check("editor: its buffer was changed", held === "saved\nchanged\n", held);
  const told = JSON.stringify(updates);
  checks.check("editor: its terminal was shown", told.includes('"terminalId"'));
  checks.check("editor: and what it printed", told.includes("from a terminal\\n[exit code 0"), told);
  checks.check("editor: its environment is not told", told.includes("token=.") && !told.includes("s3cret"), told);
  checks.check("editor: the store is closed", !told.includes("sessions"), told);
  checks.check("editor: no terminal is left", editor.terminals.size === 0);
}

/** The agents of this world, by the store in their arguments. */
function agents(setup) {
  return readdirSync("/proc")
    .filter((name) => /^\d+$/.test(name))
    .filter((pid) => {
      try {
        const words = readFileSync(`/proc/${pid}/cmdline`, "utf8").split("\0");
        return words[0] === THREADLINE && words.includes(join(setup.home, "store"));
      } catch {
        return false;
      }
    })
    .map(Number);
}

async function acpx(setup) {
  const cli = join(here, "node_modules/acpx/dist/cli.js");
  const agent = [THREADLINE, ...setup.args].join(" ");
  const words = (more) => [cli, "--agent", agent, "--cwd", setup.work, "--approve-all", "--ttl", "1", ...more];
  const options = { env: setup.env, cwd: setup.work, timeout: 120_000 };
  const acpx = (...more) => run(process.execPath, words(more), options);
  await setup.script([...FIRST, ...CUT, ...AGAIN]);
  await acpx("sessions", "new");
  const first = await acpx("prompt", "run it");
  checks.check("acpx: a turn", first.stdout.includes("It ran."), first.stdout);
  checks.check("acpx: the tool ran", existsSync(join(setup.work, "ran.txt")));
  const lost = acpx("prompt", "wait").then(() => "ended", () => "lost");
  await until("the tool", () => existsSync(join(setup.work, "begun.txt")));
  for (const pid of agents(setup)) process.kill(pid, "SIGKILL");
  await lost;
  const next = await acpx("prompt", "go on");
  checks.check("acpx: goes on", next.stdout.includes("On we go."), next.stdout);
  const rows = JSON.parse((await run(THREADLINE, ["--store", join(setup.home, "store"), "ls", "--json"], options)).stdout);
  const sessions = Array.isArray(rows) ? rows : rows.sessions;
  checks.check("acpx: it is one session", sessions.length === 1 && sessions[0].turns === 3, sessions);
}

async function python(setup) {
  const place = join(target, "acp-python");
  const interpreter = join(place, "bin/python");
  if (!existsSync(join(place, "examples/client.py"))) {
    mkdirSync(place, { recursive: true });
    await run("python3", ["-m", "venv", place]);
    await run(interpreter, ["-m", "pip", "install", "--quiet", PYTHON_SDK]);
    const pip = ["-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", ":all:", "-d", place, PYTHON_SDK];
    await run(interpreter, pip);
    const archive = readdirSync(place).find((name) => name.endsWith(".tar.gz"));
    const tar = ["-xzf", join(place, archive), "-C", place, "--strip-components=1", "--wildcards", "*/examples/*"];
    await run("tar", tar);
  }
  await setup.script([...FIRST, ...CUT, ...AGAIN]);
  const script = [join(here, "python_client.py"), join(place, "examples"), setup.work, THREADLINE, ...setup.args];
  const { stdout } = await run(interpreter, script, { env: setup.env, timeout: 120_000 });
  for (const line of stdout.split("\n")) {
    const found = /^(good|bad) (.*)$/.exec(line);
    if (found) checks.check(`python: ${found[2]}`, found[1] === "good");
  }
  checks.check("python: it came to its end", stdout.includes("\nend"), stdout);
}

for (const client of [typescript, typescriptEditor, acpx, python]) {
  try {
    await world(async (setup) => {
      await client(setup);
      const violations = await setup.violations();
      checks.check(`${client.name}: the model was sent nothing wrong`, violations.length === 0, violations);
    });
  } catch (error) {
    checks.check(client.name, false, `${error.stack ?? error} ${error.stderr ?? ""}`.slice(0, 2000));
  }
}
checks.conclude();
