// Renders the page at /docs without a browser, on a minimal DOM, tries some requests, and prints the result as JSON.
// Called by tests/docs.rs: node page.js DIRECTORY, which has the scripts of the page and openapi.json.
"use strict";

const fs = require("node:fs");
const path = require("node:path");
const vm = require("node:vm");

class Node {
  constructor(name) {
    Object.assign(this, { name, children: [], attributes: {}, parentElement: null, hidden: false, value: "", listeners: {} });
  }
  append(...children) {
    for (const child of children) {
      if (child instanceof Node) child.parentElement = this;
      else if (typeof child !== "string") throw new Error(`<${this.name}> cannot contain ${typeof child}`);
      this.children.push(child);
    }
  }
  replaceChildren(...children) {
    this.children = [];
    this.append(...children);
  }
  setAttribute(name, value) {
    this.attributes[name] = String(value);
  }
  addEventListener(name, listener) {
    this.listeners[name] = listener;
  }
  get textContent() {
    return this.children.map((child) => (child instanceof Node ? child.textContent : child)).join("");
  }
  set textContent(text) {
    this.children = [String(text)];
  }
  * all() {
    yield this;
    for (const child of this.children) if (child instanceof Node) yield* child.all();
  }
}

const directory = process.argv[2];
const file = (name) => fs.readFileSync(path.join(directory, name), "utf8");
const openapi = file("openapi.json");
const page = new Node("html");
for (const id of ["title", "version", "contents", "content", "status", "filter"]) {
  const node = new Node("div");
  node.setAttribute("id", id);
  page.append(node);
}
const byId = (id) => [...page.all()].find((node) => node.attributes.id === id) || null;
const fetched = [];
const tried = [];
const listeners = {};
/// A response that arrives in two parts.
const ANSWER = new Response(new ReadableStream({
  start(controller) {
    for (const part of ['{"id": "sb_x', '", "state": "running"}']) controller.enqueue(new TextEncoder().encode(part));
    controller.close();
  },
}), { status: 201, headers: { "Content-Type": "application/json; charset=utf-8", "X-Request-Id": "req_1" } });
Object.assign(globalThis, {
  document: { title: "", createElement: (name) => new Node(name), getElementById: byId },
  location: { hash: "", hostname: "127.0.0.1", origin: "https://127.0.0.1:8443", pathname: "/docs" },
  addEventListener: (name, listener) => { listeners[name] = listener; },
  fetch: async (url, options) => {
    if (url !== "/docs/openapi.json") {
      const { signal, ...sent } = options;
      tried.push({ url, ...sent });
      return ANSWER.clone();
    }
    fetched.push(url);
    return { ok: true, status: 200, json: async () => JSON.parse(openapi) };
  },
});
Object.defineProperty(globalThis, "navigator", { value: {}, configurable: true });
for (const script of ["try.js", "docs.js"]) vm.runInThisContext(file(script), { filename: script });

const settled = () => new Promise((resolve) => setImmediate(() => setImmediate(resolve)));
/// The nodes of a form.
function formOf(operation) {
  const nodes = [...byId(`op-${operation}`).all()];
  const form = nodes.find((node) => node.attributes.class === "trial");
  const inside = form ? [...form.all()] : [];
  const find = (wanted) => inside.find(wanted);
  return {
    exists: form !== undefined,
    input: (name) => find((node) => node.attributes.id === `try-${operation}-${name}`),
    send: async () => {
      await find((node) => node.attributes.class === "send").listeners.click();
      await settled();
    },
    status: () => find((node) => node.attributes.role === "status").textContent,
    output: () => find((node) => node.name === "pre").textContent,
  };
}

/// What the forms send: with a key and without, with missing and with awkward values.
async function tryRequests() {
  const create = formOf("createSandbox");
  await create.send();
  const shown = { status: create.status(), output: create.output() };
  byId("key").value = " sbk_secret ";
  byId("key").listeners.input();
  await create.send();
  const get = formOf("getSandbox");
  await get.send();
  const missing = get.status();
  get.input("path-id").value = "a/b?c";
  await get.send();
  const run = formOf("execute");
  run.input("path-id").value = "sb_x";
  run.input("stream").checked = true;
  run.input("query-lineEnds").value = "true";
  await run.send();
  listeners.pagehide();
  await create.send();
  return { shown, missing, tried, keyAfterwards: byId("key").value, attach: formOf("attachTerminal").exists };
}

async function main() {
  await settled();
  const text = page.textContent;
  const status = byId("status").textContent;
  const nodes = [...page.all()];
  const headings = nodes.filter((node) => node.name === "h2").map((node) => node.textContent);
  const rendered = {
    fetched,
    text,
    status,
    headings,
    ids: nodes.map((node) => node.attributes.id).filter(Boolean),
    links: nodes.map((node) => node.attributes.href).filter(Boolean),
    attributes: [...new Set(nodes.flatMap((node) => Object.keys(node.attributes)))],
    trial: await tryRequests(),
  };
  const filter = byId("filter");
  filter.value = "no such word anywhere";
  filter.listeners.input();
  rendered.visible = nodes.filter((node) => node.name === "article" && !node.hidden).length;
  // A link to an operation that the filter hides shows it.
  let scrolled = 0;
  Node.prototype.scrollIntoView = () => { scrolled += 1; };
  location.hash = "#op-createSandbox";
  listeners.hashchange();
  rendered.found = { hidden: byId("op-createSandbox").hidden, filter: filter.value, scrolled };
  process.stdout.write(JSON.stringify(rendered));
}

main();
