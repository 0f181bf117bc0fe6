// Draws the OpenAPI document of this server. Text from the document goes into text nodes only, never into markup.
"use strict";

/// In the order in which the operations of a path are shown: what creates something stands first.
const VERBS = ["post", "get", "put", "patch", "delete"];
const DEPTH = 6;
/// What stands beside a field that has to be there, and beside one that need not.
const ASKED = ["required", ""];
const ANSWERED = ["", "not always"];

/// An element with attributes and children; a string child is text.
function make(name, attributes, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes || {})) {
    if (value !== undefined && value !== null && value !== false) element.setAttribute(key, value === true ? "" : value);
  }
  element.append(...children.flat().filter((child) => child !== undefined && child !== null && child !== ""));
  return element;
}

/// `code` between backticks, the rest as it is.
function inline(text) {
  return text.split("`").map((part, at) => (at % 2 ? make("code", {}, part) : part));
}

/// Paragraphs and bullet lists: as much of Markdown as descriptions use.
function prose(text) {
  if (!text) return [];
  return text.trim().split(/\n\s*\n/).map((block) => {
    const lines = block.split("\n").map((line) => line.trim());
    if (lines.every((line) => /^[-*] /.test(line))) {
      return make("ul", {}, lines.map((line) => make("li", {}, inline(line.slice(2)))));
    }
    return make("p", {}, inline(lines.join(" ")));
  });
}

/// What `$ref` names, as far as it is in the document.
function resolve(api, thing) {
  let seen = thing;
  for (let step = 0; seen && seen.$ref && step < DEPTH; step += 1) {
    seen = seen.$ref.replace(/^#\//, "").split("/").reduce(
      (at, key) => (at === undefined ? at : at[key.replace(/~1/g, "/").replace(/~0/g, "~")]), api);
  }
  return seen || {};
}

function refName(schema) {
  return schema && schema.$ref ? schema.$ref.split("/").pop() : "";
}

function typesOf(schema) {
  return [].concat(schema.type || []);
}

/// What a schema is, in a word or a link.
function typeName(schema) {
  if (!schema || schema === true) return ["any"];
  if (schema.$ref) return [make("a", { href: `#schema-${refName(schema)}` }, refName(schema))];
  const choices = schema.oneOf || schema.anyOf;
  if (choices) return choices.flatMap((choice, at) => (at ? [" or ", ...typeName(choice)] : typeName(choice)));
  if (schema.allOf) return schema.allOf.flatMap((one, at) => (at ? [" and ", ...typeName(one)] : typeName(one)));
  const names = typesOf(schema).flatMap((type, at) => {
    let name = [type];
    if (type === "array") name = ["array of ", ...typeName(schema.items)];
    const map = schema.additionalProperties;
    if (type === "object" && map && !schema.properties) name = ["object of ", ...typeName(map)];
    return at ? [" or ", ...name] : name;
  });
  if (names.length === 0) return [schema.enum ? "one of" : "any"];
  return schema.format && typesOf(schema).includes("string") ? [...names, ` (${schema.format})`] : names;
}

/// Default, range and set of a schema.
function limitsOf(schema) {
  const limits = [];
  const show = (value) => make("code", {}, JSON.stringify(value));
  if (schema.enum) limits.push(["one of ", ...schema.enum.flatMap((value, at) => (at ? [", ", show(value)] : [show(value)]))]);
  if (schema.const !== undefined) limits.push(["always ", show(schema.const)]);
  const range = (low, high, unit) => {
    if (low !== undefined && high !== undefined) limits.push([`${low} to ${high}${unit}`]);
    else if (low !== undefined) limits.push([`at least ${low}${unit}`]);
    else if (high !== undefined) limits.push([`at most ${high}${unit}`]);
  };
  range(schema.minimum, schema.maximum, "");
  range(schema.minLength, schema.maxLength, " characters");
  range(schema.minItems, schema.maxItems, " items");
  range(schema.minProperties, schema.maxProperties, " keys");
  if (schema.pattern) limits.push(["matches ", make("code", {}, schema.pattern)]);
  if (schema.default !== undefined) limits.push(["default ", show(schema.default)]);
  return limits.length ? make("p", { class: "limits" }, limits.flatMap((one, at) => (at ? ["; ", ...one] : one))) : "";
}

/// A value of the schema's shape, for where the document has no example.
function sample(api, given, depth = 0) {
  const schema = resolve(api, given);
  if (schema.example !== undefined) return schema.example;
  if (Array.isArray(schema.examples) && schema.examples.length) return schema.examples[0];
  if (schema.default !== undefined) return schema.default;
  if (schema.const !== undefined) return schema.const;
  if (schema.enum) return schema.enum[0];
  if (depth > DEPTH) return null;
  const choices = schema.oneOf || schema.anyOf;
  if (choices) return sample(api, choices.find((choice) => choice.type !== "null") || choices[0], depth + 1);
  if (schema.allOf) return Object.assign({}, ...schema.allOf.map((one) => sample(api, one, depth + 1)));
  const type = typesOf(schema)[0] || (schema.properties ? "object" : "");
  if (type === "object") {
    // Optional fields rarely occur together.
    const wanted = ([name]) => !schema.required || schema.required.includes(name);
    const pairs = Object.entries(schema.properties || {}).filter(wanted);
    return Object.fromEntries(pairs.map(([name, one]) => [name, sample(api, one, depth + 1)]));
  }
  if (type === "array") return [sample(api, schema.items || {}, depth + 1)];
  if (type === "integer" || type === "number") return schema.minimum || 0;
  if (type === "boolean") return false;
  return type === "string" ? "string" : null;
}

function exampleOf(api, content) {
  if (content.example !== undefined) return content.example;
  const first = Object.values(content.examples || {})[0];
  if (first) return resolve(api, first).value;
  return content.schema ? sample(api, content.schema) : undefined;
}

function block(text, label) {
  const pre = make("pre", { tabindex: "0", role: "region", "aria-label": label }, make("code", {}, text));
  if (navigator.clipboard) {
    const button = make("button", { type: "button", class: "copy" }, "Copy");
    button.addEventListener("click", () => {
      navigator.clipboard.writeText(text).then(() => { button.textContent = "Copied"; }, () => { button.textContent = "Not copied"; });
      setTimeout(() => { button.textContent = "Copy"; }, 1500);
    });
    pre.append(button);
  }
  return pre;
}

/// Copies the address of a place on this page, to share it.
function linkButton(id) {
  if (!navigator.clipboard) return "";
  const button = make("button", { type: "button", class: "copy-link", "aria-label": `Copy the link to ${id}` }, "Copy link");
  button.addEventListener("click", () => {
    const link = `${location.origin}${location.pathname}#${id}`;
    navigator.clipboard.writeText(link).then(() => { button.textContent = "Copied"; }, () => { button.textContent = "Not copied"; });
    setTimeout(() => { button.textContent = "Copy link"; }, 1500);
  });
  return button;
}

function table(caption, heads, rows) {
  if (rows.length === 0) return "";
  return make("div", { class: "scroll" }, make("table", { "aria-label": caption },
    make("thead", {}, make("tr", {}, heads.map((head) => make("th", { scope: "col" }, head)))),
    make("tbody", {}, rows.map(([first, ...rest]) =>
      make("tr", {}, make("th", { scope: "row" }, first), rest.map((cell) => make("td", {}, cell)))))));
}

/// One row a property; objects written in place are taken apart with dots.
function propertyRows(api, schema, marks, prefix = "", depth = 0) {
  if (schema.allOf) return schema.allOf.flatMap((one) => propertyRows(api, resolve(api, one), marks, prefix, depth));
  return Object.entries(schema.properties || {}).flatMap(([name, one]) => {
    const mark = marks[(schema.required || []).includes(name) ? 0 : 1];
    const label = [make("code", {}, prefix + name), mark ? make("span", { class: "required" }, mark) : ""];
    const row = [label, typeName(one), [...prose(one.description), limitsOf(one)]];
    return one.properties && depth < DEPTH ? [row, ...propertyRows(api, one, marks, `${prefix}${name}.`, depth + 1)] : [row];
  });
}

function schemaBody(api, schema, marks) {
  const rows = propertyRows(api, schema, marks);
  if (rows.length) return [table("Fields", ["Field", "Type", "Meaning"], rows)];
  return [make("p", {}, typeName(schema)), limitsOf(schema)];
}

/// A body that is a named schema is shown whole, so that nobody has to follow a link to read an endpoint.
function bodyOf(api, content, marks) {
  if (!content.schema) return [];
  const name = refName(content.schema);
  const named = name ? [make("p", { class: "note" }, "Schema ", ...typeName(content.schema))] : [];
  return [...named, ...schemaBody(api, resolve(api, content.schema), marks)];
}

function needsKey(api, operation) {
  const security = operation.security || api.security || [];
  return security.some((one) => Object.keys(one).length > 0);
}

/// The call as one would type it.
function curl(api, path, verb, operation) {
  const local = /^(localhost|127\.|\[::1\])/.test(location.hostname) || location.hostname === "::1";
  const words = [`curl ${local ? "-k " : ""}${verb === "get" ? "" : `-X ${verb.toUpperCase()} `}'${location.origin}${path.replace(/\{id\}/g, "sb_…")}'`];
  if (needsKey(api, operation)) words.push('-H "Authorization: Bearer $KEY"');
  const body = ((resolve(api, operation.requestBody).content) || {})["application/json"];
  if (body) {
    words.push("-H 'Content-Type: application/json'");
    words.push(`-d '${JSON.stringify(exampleOf(api, body)).replace(/'/g, "'\\''")}'`);
  }
  return words.join(" \\\n  ");
}

function parameterRows(api, parameters) {
  return parameters.map((given) => {
    const one = resolve(api, given);
    const label = [make("code", {}, one.name), one.required ? make("span", { class: "required" }, "required") : ""];
    const schema = resolve(api, one.schema);
    return [label, one.in, typeName(schema), [...prose(one.description), limitsOf(schema)]];
  });
}

function headerRows(api, headers, wanted) {
  return Object.entries(headers || {}).filter(([, one]) => wanted(one)).map(([name, given]) => {
    const one = resolve(api, given);
    return [make("code", {}, name), [...prose(one.description), limitsOf(resolve(api, one.schema))]];
  });
}

/// What comes back when all went well, whole; what may go wrong, as a table: its body is always the same.
function responseParts(api, operation) {
  const errors = [];
  const parts = [];
  for (const [status, given] of Object.entries(operation.responses || {})) {
    const response = resolve(api, given);
    if (!/^[23]/.test(status)) {
      errors.push([make("code", {}, status), prose(response.description)]);
      continue;
    }
    parts.push(make("h4", {}, make("code", {}, status), " ", ...inline(response.description || "")));
    for (const [kind, content] of Object.entries(response.content || {})) {
      const example = exampleOf(api, content);
      const text = typeof example === "string" ? example : JSON.stringify(example, null, 2);
      parts.push(make("p", { class: "note" }, kind), ...bodyOf(api, content, ANSWERED));
      if (text !== undefined) parts.push(block(text, `Example of a ${status} response`));
    }
    parts.push(table("Response headers", ["Header", "Meaning"], headerRows(api, response.headers, (one) => !one.$ref)));
  }
  return errors.length ? [...parts, make("h4", {}, "Errors"), table("Errors", ["Status", "When"], errors)] : parts;
}

/// Responses that many endpoints share are described once.
function headersArticle(api) {
  const rows = headerRows(api, (api.components || {}).headers, () => true);
  if (rows.length === 0) return [];
  const article = make("article", { id: "headers", "aria-labelledby": "headers-name" },
    make("h3", { id: "headers-name" }, make("a", { class: "anchor", href: "#headers" }, "Response headers")),
    table("Response headers", ["Header", "Meaning"], rows));
  return [{ article, link: make("a", { href: "#headers" }, "Response headers") }];
}

function operationArticle(api, path, verb, operation, shared) {
  const id = `op-${operation.operationId || `${verb}-${path.replace(/\W+/g, "-")}`}`;
  const article = make("article", { id, "aria-labelledby": `${id}-name` });
  article.append(make("h3", { id: `${id}-name` }, make("span", { class: `verb ${verb}` }, verb.toUpperCase()),
    make("a", { class: "anchor path", href: `#${id}` }, path), make("span", { class: "summary" }, operation.summary || ""), linkButton(id)));
  const scope = operation["x-scope"];
  const access = needsKey(api, operation) ? (scope ? `Needs a key with the scope ${scope}.` : "Needs a key.") : "Needs no key.";
  article.append(...prose(operation.description), make("p", { class: "note" }, access));
  article.append(block(curl(api, path, verb, operation), "Example request"));
  const parameters = [...(shared || []), ...(operation.parameters || [])];
  if (parameters.length) {
    article.append(make("h4", {}, "Parameters"),
      table("Parameters", ["Name", "In", "Type", "Meaning"], parameterRows(api, parameters)));
  }
  const body = resolve(api, operation.requestBody);
  for (const [kind, content] of Object.entries(body.content || {})) {
    article.append(make("h4", {}, "Request body"), make("p", { class: "note" }, kind), ...bodyOf(api, content, ASKED));
  }
  article.append(...responseParts(api, operation), trialForm(api, path, verb, operation, shared));
  const link = make("a", { href: `#${id}` }, make("span", { class: `verb ${verb}` }, verb.toUpperCase()), operation.summary || path);
  return { article, link };
}

function schemaArticle(api, name, schema) {
  const id = `schema-${name}`;
  const article = make("article", { id, "aria-labelledby": `${id}-name` },
    make("h3", { id: `${id}-name` }, make("a", { class: "anchor path", href: `#${id}` }, name)),
    prose(schema.description), schemaBody(api, schema, ASKED));
  return { article, link: make("a", { href: `#${id}` }, name) };
}

/// The id of a part, for links.
function partId(title) {
  return `part-${title.toLowerCase().replace(/\W+/g, "-")}`;
}

/// One part of the page with its entry in the contents.
function part(title, description, entries) {
  const id = partId(title);
  const heading = make("h2", { id }, make("a", { class: "anchor", href: `#${id}` }, title), linkButton(id));
  const section = make("section", { class: "part" }, heading, prose(description), entries.map((entry) => entry.article));
  const list = make("div", { class: "list" }, make("h2", {}, make("a", { href: `#${id}` }, title)), make("ul", {}, entries.map((entry) => make("li", {}, entry.link))));
  return { section, list, entries };
}

/// The operations by tag, in the order in which the document lists the tags.
function operationParts(api) {
  const groups = new Map((api.tags || []).map(({ name }) => [name, []]));
  for (const [path, item] of Object.entries(api.paths || {})) {
    for (const verb of VERBS.filter((verb) => item[verb])) {
      const tag = (item[verb].tags || ["Endpoints"])[0];
      if (!groups.has(tag)) groups.set(tag, []);
      groups.get(tag).push(operationArticle(api, path, verb, item[verb], item.parameters));
    }
  }
  const about = (tag) => ((api.tags || []).find(({ name }) => name === tag) || {}).description;
  return [...groups].filter(([, entries]) => entries.length).map(([tag, entries]) => part(tag, about(tag), entries));
}

function draw(api) {
  const info = api.info || {};
  document.title = `${info.title || "sandboxd"}: interface`;
  document.getElementById("title").textContent = info.title || "sandboxd";
  document.getElementById("version").textContent = info.version ? `version ${info.version}` : "";
  const schemas = Object.entries((api.components || {}).schemas || {}).map(([name, schema]) => schemaArticle(api, name, schema));
  const parts = [part("Authentication", "", [authenticationArticle(api)]), ...operationParts(api)];
  parts.push(part("All responses", "", headersArticle(api)), part("Schemas", "", schemas));
  const main = document.getElementById("content");
  main.replaceChildren(document.getElementById("status"), ...prose(info.description), ...parts.map((one) => one.section));
  document.getElementById("contents").replaceChildren(...parts.map((one) => one.list));
  return parts;
}

/// Shows what holds every word that was typed.
function filter(parts, text) {
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  let shown = 0;
  for (const { section, list, entries } of parts) {
    let any = false;
    for (const { article, link } of entries) {
      const fits = words.every((word) => article.textContent.toLowerCase().includes(word));
      article.hidden = !fits;
      link.parentElement.hidden = !fits;
      any = any || fits;
      shown += fits ? 1 : 0;
    }
    section.hidden = !any;
    list.hidden = !any;
  }
  document.getElementById("status").textContent = words.length ? `${shown} found` : "";
}

/// Goes to the place that the address names. If the filter hides it, the filter is cleared.
function goToPlace(parts, input) {
  const wanted = location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if (!wanted) return;
  if (input.value) {
    input.value = "";
    filter(parts, "");
  }
  wanted.scrollIntoView();
}

async function start() {
  const status = document.getElementById("status");
  try {
    const answer = await fetch("/docs/openapi.json", { headers: { Accept: "application/json" }, credentials: "omit" });
    if (!answer.ok) throw new Error(`the service responded with status ${answer.status}`);
    const parts = draw(await answer.json());
    status.textContent = "";
    const input = document.getElementById("filter");
    input.addEventListener("input", () => filter(parts, input.value));
    // A link into the page was followed before there was anything to go to.
    goToPlace(parts, input);
    addEventListener("hashchange", () => goToPlace(parts, input));
  } catch (error) {
    status.textContent = `The API document could not be loaded: ${error.message}. Reload the page.`;
  }
}

start();
