// The client of the TypeScript SDK of MCP: as client.py, with the modules that the settings name.
import fs from "node:fs";
import readline from "node:readline";

const settings = JSON.parse(process.argv[2]);
const sdk = (path) => import(`${settings.modules}/@modelcontextprotocol/sdk/dist/esm/client/${path}.js`);
const { Client } = await sdk("index");
const show = (value) => fs.writeSync(1, `MCP ${JSON.stringify(value)}\n`);

let transport;
if (settings.url) {
  const { StreamableHTTPClientTransport } = await sdk("streamableHttp");
  const headers = { Authorization: `Bearer ${settings.token}` };
  transport = new StreamableHTTPClientTransport(new URL(settings.url), { requestInit: { headers } });
} else {
  const { StdioClientTransport } = await sdk("stdio");
  const [command, ...args] = settings.command;
  transport = new StdioClientTransport({ command, args, env: settings.env });
}
const client = new Client({ name: "interop", version: "1" });
await client.connect(transport);
show({ version: transport.protocolVersion ?? "", tools: (await client.listTools()).tools });
for await (const line of readline.createInterface({ input: process.stdin })) {
  const [name, args] = JSON.parse(line);
  const result = await client.callTool({ name, arguments: args }, undefined, { timeout: 300_000 });
  show({ error: Boolean(result.isError), texts: result.content.map((each) => each.text) });
}
await transport.terminateSession?.();
await client.close();
