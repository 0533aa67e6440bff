// A small MCP server: one tool that says what it is given, and what the server was started with.

import { createInterface } from "node:readline";

const say = (id, result) => console.log(JSON.stringify({ jsonrpc: "2.0", id, result }));

for await (const line of createInterface({ input: process.stdin })) {
  const { id, method, params } = JSON.parse(line);
  if (method === "initialize") {
    const { protocolVersion } = params;
    say(id, { protocolVersion, capabilities: { tools: {} }, serverInfo: { name: "echo", version: "1" } });
  } else if (method === "tools/list") {
    const inputSchema = { type: "object", properties: { text: { type: "string" } } };
    say(id, { tools: [{ name: "say", description: "Says it.", inputSchema }] });
  } else if (method === "tools/call") {
    const text = `${params.arguments.text} ${process.env.K}`;
    say(id, { content: [{ type: "text", text }] });
  } else if (id !== undefined) {
    say(id, {});
  }
}
