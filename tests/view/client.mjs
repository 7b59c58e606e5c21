// A viewer made of Foxglove's own client (npm: @foxglove/ws-protocol). It says what it hears, a line of JSON each, and
// does what it is told: {"subscribe": topic}, {"unsubscribe": topic}, {"publish": topic, "data": {...}}, {"call": service,
// "data": {...}}, {"play": speed, "seek": ns or null} with speed 0 for a pause.
import { createRequire } from "node:module";
import { createInterface } from "node:readline";

const require = createRequire(process.argv[3] + "/");
const { FoxgloveClient } = require("@foxglove/ws-protocol");
const WebSocket = require("ws");

FoxgloveClient.SUPPORTED_SUBPROTOCOL = "foxglove.sdk.v1";
const socket = new WebSocket(process.argv[2], ["foxglove.sdk.v1"]);
const client = new FoxgloveClient({ ws: socket });
const say = (what) => process.stdout.write(JSON.stringify(what) + "\n");
const channels = new Map();
const subscriptions = new Map();

client.on("open", () => say({ open: true }));
client.on("error", (error) => say({ error: String(error?.message ?? error) }));
client.on("close", (event) => say({ closed: event.code, reason: event.reason }));
client.on("status", (status) => say({ status: status.message, level: status.level }));
client.on("advertise", (list) => {
  for (const { id, topic, encoding, schemaName, schema } of list) {
    channels.set(topic, id);
    say({ channel: topic, encoding, schemaName, schema });
  }
});
client.on("unadvertise", (ids) => say({ gone: ids.length }));
client.on("message", ({ subscriptionId, timestamp, data }) => {
  const bytes = Buffer.from(data.buffer, data.byteOffset, data.byteLength);
  say({ message: subscriptions.get(subscriptionId), time_ns: String(timestamp), base64: bytes.toString("base64") });
});
// What this version of the client does not know of the protocol: requests to play, and the state of it.
const OPCODE_STATE = 5;
const OPCODE_CONTROL = 3;
const STATES = ["playing", "paused", "buffering", "ended"];
client.on("serverInfo", (info) => say({ capabilities: info.capabilities }));
socket.addEventListener("message", ({ data }) => {
  const bytes = Buffer.from(data);
  if (typeof data !== "string" && bytes[0] === OPCODE_STATE)
    say({ state: STATES[bytes[1]], at_ns: String(bytes.readBigUInt64LE(2)), speed: bytes.readFloatLE(10) });
});
const control = ({ play, seek }) => {
  const request = Buffer.alloc(1 + 1 + 4 + 1 + 8 + 4);
  request.writeUInt8(OPCODE_CONTROL, 0);
  request.writeUInt8(play ? 0 : 1, 1);
  request.writeFloatLE(play || 1, 2);
  request.writeUInt8(seek ? 1 : 0, 6);
  request.writeBigUInt64LE(BigInt(seek ?? 0), 7);
  socket.send(request);
};

const services = new Map();
client.on("advertiseServices", (list) => {
  for (const { id, name, type, request } of list) {
    services.set(name, id);
    say({ service: name, type, request });
  }
});
client.on("unadvertiseServices", (ids) => say({ servicesGone: ids.length }));
client.on("serviceCallResponse", ({ callId, data }) => {
  const bytes = Buffer.from(data.buffer, data.byteOffset, data.byteLength);
  say({ reply: callId, data: JSON.parse(bytes.toString()) });
});
client.on("serviceCallFailure", ({ callId, message }) => say({ failed: callId, message }));
let calls = 0;
createInterface({ input: process.stdin }).on("line", (line) => {
  const told = JSON.parse(line);
  if (told.subscribe) {
    subscriptions.set(client.subscribe(channels.get(told.subscribe)), told.subscribe);
  } else if (told.unsubscribe) {
    for (const [id, topic] of subscriptions) if (topic === told.unsubscribe) client.unsubscribe(id);
  } else if (told.play !== undefined) {
    control(told);
  } else if (told.call) {
    const data = new TextEncoder().encode(JSON.stringify(told.data));
    const serviceId = services.get(told.call);
    client.sendServiceCallRequest({ serviceId, callId: ++calls, encoding: "json", data: new DataView(data.buffer) });
  } else if (told.publish) {
    const id = client.advertise({ topic: told.publish, encoding: "json", schemaName: "" });
    client.sendMessage(id, Buffer.from(JSON.stringify(told.data)));
  }
});
