// Perfetto's own trace processor (WebAssembly) behind a Unix socket: node trace_processor.js FOLDER SOCKET
const fs = require("fs"), path = require("path"), vm = require("vm"), net = require("net");
const { MessageChannel } = require("worker_threads");
const [, , folder, socket] = process.argv;
const exit = process.exit.bind(process);
globalThis.process = undefined; // its glue refuses to run where it sees Node
globalThis.WorkerGlobalScope = function () {};
globalThis.self = globalThis;
globalThis.location = { href: "http://localhost/engine_bundle.js", origin: "http://localhost", protocol: "http:", host: "localhost" };
const file = address => fs.readFileSync(path.join(folder, path.basename(String(address))));
globalThis.fetch = async address => new Response(file(address), { headers: { "content-type": "application/wasm" } });
globalThis.XMLHttpRequest = class {
  open(_method, address) { this.address = address; }
  send() {
    const bytes = file(this.address);
    this.status = 200;
    this.response = bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.length);
    if (this.onload) this.onload();
  }
};
vm.runInThisContext(fs.readFileSync(path.join(folder, "engine_bundle.js"), "utf8"));
const channel = new MessageChannel();
globalThis.onmessage({ data: channel.port2 });
net.createServer(client => {
  client.on("data", bytes => channel.port1.postMessage(new Uint8Array(bytes)));
  channel.port1.on("message", message => client.write(Buffer.from(message)));
  client.on("end", () => exit(0));
}).listen(socket, () => console.log("ready"));
