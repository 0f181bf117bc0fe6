// The parts of the reference page that send requests: the key, and a form below each operation.
// The key is in a variable of this script. It is not stored anywhere, and a reload forgets it.
"use strict";

/// The key that requests are sent with; empty for none.
let trialKey = "";
/// The longest part of a response that is shown, in characters.
const SHOWN_CHARACTERS = 65536;
const EVENT_STREAM = "text/event-stream";
/// Headers whose effect a trial cannot show, or that a choice sets.
const NO_INPUT = ["accept", "authorization", "content-type"];

/// The section before all operations: what a key is, and the field for it.
function authenticationArticle(api) {
  const scheme = Object.values((api.components || {}).securitySchemes || {})[0] || {};
  const field = make("input", { id: "key", type: "password", autocomplete: "off", spellcheck: "false", "aria-describedby": "key-note" });
  field.addEventListener("input", () => { trialKey = field.value.trim(); });
  const forget = make("button", { type: "button" }, "Forget");
  const clear = () => { field.value = ""; trialKey = ""; };
  forget.addEventListener("click", clear);
  // A page that the browser keeps for its back button must not keep the key.
  addEventListener("pagehide", clear);
  const article = make("article", { id: "authentication", "aria-labelledby": "authentication-name" },
    make("h3", { id: "authentication-name" }, make("a", { class: "anchor", href: "#authentication" }, "API keys")),
    prose(scheme.description),
    make("p", {}, "The operator of the service creates keys. On the host of a service at its default place, the first one is in ",
      make("code", {}, "/var/lib/sandboxd/local.key"), "."),
    make("p", { class: "trial-row" }, make("label", { for: "key" }, "Key for trying requests"), field, forget),
    make("p", { id: "key-note", class: "note" },
      "The key stays in the memory of this page and is sent to this service only. Closing or reloading the page forgets it. Each operation below has a form ",
      make("b", {}, "Try it"), ", which sends a real request: it can create, change and remove sandboxes of the key's account."));
  return { article, link: make("a", { href: "#authentication" }, "API keys") };
}

/// One input for a parameter, with its label.
function parameterInput(api, parameter, prefix) {
  const id = `${prefix}-${parameter.in}-${parameter.name.replace(/\W+/g, "-")}`;
  const input = make("input", { id, type: "text", autocomplete: "off", spellcheck: "false" });
  const label = make("label", { for: id }, make("code", {}, parameter.name), parameter.required ? " (required)" : "");
  return { parameter, input, row: make("p", { class: "trial-row" }, label, input) };
}

/// The input for a body: text for JSON, a file for anything else.
function bodyInput(api, operation, prefix) {
  const [kind, content] = Object.entries(resolve(api, operation.requestBody).content || {})[0] || [];
  if (kind === undefined) return null;
  const id = `${prefix}-body`;
  const label = make("label", { for: id }, `Body, ${kind}`);
  if (kind !== "application/json") {
    const input = make("input", { id, type: "file" });
    return { kind, value: () => (input.files || [])[0], row: make("p", { class: "trial-row" }, label, input) };
  }
  const input = make("textarea", { id, rows: "6", spellcheck: "false", autocomplete: "off" });
  input.value = JSON.stringify(exampleOf(api, content), null, 2);
  return { kind, value: () => (input.value.trim() ? input.value : undefined), row: make("p", { class: "trial-row" }, label, input) };
}

/// The choice of a stream, for operations that can also respond with JSON.
function streamInput(operation, prefix) {
  const successes = Object.entries(operation.responses || {}).filter(([status]) => status.startsWith("2"));
  const kinds = successes.flatMap(([, response]) => Object.keys(response.content || {}));
  if (!kinds.includes(EVENT_STREAM)) return { wanted: () => false, row: "" };
  if (!kinds.includes("application/json")) return { wanted: () => true, row: "" };
  const input = make("input", { id: `${prefix}-stream`, type: "checkbox" });
  const row = make("p", { class: "trial-row" }, make("label", { for: `${prefix}-stream` }, "As a stream of events"), input);
  return { wanted: () => input.checked === true, row };
}

/// What `fetch` is called with. Throws with a message for the reader if an input is missing.
function trialRequest(path, verb, inputs, body, wantsStream) {
  const query = new URLSearchParams();
  const headers = { Accept: wantsStream ? EVENT_STREAM : "application/json" };
  let url = path;
  for (const { parameter, input } of inputs) {
    const value = input.value.trim();
    if (!value) {
      if (parameter.required) throw new Error(`${parameter.name} is required`);
      continue;
    }
    if (parameter.in === "path") url = url.replace(`{${parameter.name}}`, encodeURIComponent(value));
    if (parameter.in === "query") query.append(parameter.name, value);
    if (parameter.in === "header") headers[parameter.name] = value;
  }
  if (trialKey) headers.Authorization = `Bearer ${trialKey}`;
  const options = { method: verb.toUpperCase(), headers, credentials: "omit", cache: "no-store", redirect: "error" };
  const content = body ? body.value() : undefined;
  if (content !== undefined) {
    headers["Content-Type"] = body.kind;
    options.body = content;
  }
  const text = query.toString();
  return [text ? `${url}?${text}` : url, options];
}

/// The text of a response as far as it is shown, and whether there was more. `show` gets it while it arrives.
async function readShown(response, show) {
  const reader = response.body ? response.body.getReader() : null;
  const decoder = new TextDecoder();
  let text = "";
  while (reader !== null && text.length < SHOWN_CHARACTERS) {
    const { done, value } = await reader.read();
    if (done) return { text, cut: false };
    text += decoder.decode(value, { stream: true });
    show(text.slice(0, SHOWN_CHARACTERS));
  }
  if (reader !== null) await reader.cancel();
  return { text: text.slice(0, SHOWN_CHARACTERS), cut: reader !== null };
}

/// JSON with line breaks; other text as it is.
function indented(text) {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}

/// Sends a request and shows its response, until it is complete or `signal` ends it.
async function runTrial([url, options], signal, status, output) {
  status.textContent = "Waiting for the response…";
  output.textContent = "";
  const begin = Date.now();
  const response = await fetch(url, { ...options, signal });
  const kind = response.headers.get("Content-Type") || "";
  const id = response.headers.get("X-Request-Id");
  const summary = () => [`${response.status} ${response.statusText}`.trim(), `${Date.now() - begin} ms`, kind, id].filter(Boolean).join(" · ");
  status.textContent = summary();
  const show = (text) => { output.textContent = text; };
  const { text, cut } = await readShown(response, show);
  show(kind.startsWith("application/json") && !cut ? indented(text) : text);
  status.textContent = cut ? `${summary()} · the rest is not shown` : summary();
}

/// The form below an operation. An upgrade to a websocket has none, because `fetch` cannot do it.
function trialForm(api, path, verb, operation, shared) {
  if ((operation.responses || {})["101"]) return "";
  const prefix = `try-${operation.operationId || `${verb}-${path.replace(/\W+/g, "-")}`}`;
  const parameters = [...(shared || []), ...(operation.parameters || [])].map((one) => resolve(api, one));
  const wanted = parameters.filter((one) => one.in !== "header" || !NO_INPUT.includes(one.name.toLowerCase()));
  const inputs = wanted.map((one) => parameterInput(api, one, prefix));
  const body = bodyInput(api, operation, prefix);
  const stream = streamInput(operation, prefix);
  const send = make("button", { type: "button", class: "send" }, `Send ${verb.toUpperCase()}`);
  const stop = make("button", { type: "button", class: "stop", disabled: true }, "Stop");
  const status = make("p", { class: "note", role: "status" });
  const output = make("code", {});
  let running = null;
  send.addEventListener("click", async () => {
    if (running) running.abort();
    const mine = new AbortController();
    running = mine;
    stop.disabled = false;
    try {
      await runTrial(trialRequest(path, verb, inputs, body, stream.wanted()), mine.signal, status, output);
    } catch (error) {
      if (running === mine) status.textContent = mine.signal.aborted ? "Stopped." : `Not sent, or without a response: ${error.message}`;
    }
    if (running === mine) {
      running = null;
      stop.disabled = true;
    }
  });
  stop.addEventListener("click", () => { if (running) running.abort(); });
  return make("details", { class: "trial" }, make("summary", {}, "Try it"),
    inputs.map((one) => one.row), body ? body.row : "", stream.row,
    make("p", { class: "trial-row" }, send, stop), status,
    make("pre", { tabindex: "0", role: "region", "aria-label": "Response" }, output));
}
