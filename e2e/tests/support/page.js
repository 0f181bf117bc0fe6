// Renders the page at /docs without a browser, on a minimal DOM, and prints the result as JSON.
// Called by tests/docs.rs: node page.js SCRIPT OPENAPI
"use strict";

const fs = require("node:fs");
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

const [script, openapi] = process.argv.slice(2).map((file) => fs.readFileSync(file, "utf8"));
const page = new Node("html");
for (const id of ["title", "version", "contents", "content", "status", "filter"]) {
  const node = new Node("div");
  node.setAttribute("id", id);
  page.append(node);
}
const byId = (id) => [...page.all()].find((node) => node.attributes.id === id) || null;
const fetched = [];
Object.assign(globalThis, {
  document: { title: "", createElement: (name) => new Node(name), getElementById: byId },
  location: { hash: "", hostname: "127.0.0.1", origin: "https://127.0.0.1:8443" },
  fetch: async (path) => {
    fetched.push(path);
    return { ok: true, status: 200, json: async () => JSON.parse(openapi) };
  },
});
Object.defineProperty(globalThis, "navigator", { value: {}, configurable: true });
vm.runInThisContext(script, { filename: "docs.js" });

setImmediate(() => {
  const text = page.textContent;
  const status = byId("status").textContent;
  const nodes = [...page.all()];
  const filter = byId("filter");
  filter.value = "no such word anywhere";
  filter.listeners.input();
  const rendered = {
    fetched,
    text,
    status,
    ids: nodes.map((node) => node.attributes.id).filter(Boolean),
    links: nodes.map((node) => node.attributes.href).filter(Boolean),
    attributes: [...new Set(nodes.flatMap((node) => Object.keys(node.attributes)))],
    visible: nodes.filter((node) => node.name === "article" && !node.hidden).length,
  };
  process.stdout.write(JSON.stringify(rendered));
});
