"""The output of one execution: messages of a kernel become events with bounds.

A kernel can print faster than a client reads, and its socket drops messages if nobody reads it. So every message is
read, and what exceeds the limits is omitted here: memory stays bounded whatever the code does.
"""

import json
import time

# Of standard output and standard error together.
TEXT_BYTES = 8 << 20
# Readers limit an event to 4 MiB.
PIECE_CHARS = 256 << 10
# Of one result, and of all results of an execution.
RESULT_BYTES = 3 << 20
RESULTS_BYTES = 32 << 20
RESULTS = 1000
TRACEBACK_BYTES = 64 << 10

DATA = "application/vnd.sandboxd.data+json"
CHART = "application/vnd.sandboxd.chart+json"
FIELDS = {
    "text/plain": "text",
    "text/html": "html",
    "text/markdown": "markdown",
    "image/svg+xml": "svg",
    "image/png": "png",
    "image/jpeg": "jpeg",
    "application/pdf": "pdf",
    "text/latex": "latex",
    "application/json": "json",
    "application/javascript": "javascript",
    DATA: "data",
    CHART: "chart",
}
# Kernels send these with line breaks that are not part of the value.
BASE64 = ("png", "jpeg", "pdf")


def encode(event):
    """One line of the response."""
    return json.dumps(event, ensure_ascii=False, default=str).encode("utf-8", "replace") + b"\n"


def cut(text, most):
    """At most `most` bytes of a text, without half a character."""
    return text.encode("utf-8", "replace")[:most].decode("utf-8", "ignore")


def error(name, value, traceback=""):
    return {
        "type": "error",
        "name": cut(str(name), TRACEBACK_BYTES),
        "value": cut(str(value), TRACEBACK_BYTES),
        "traceback": cut(str(traceback), TRACEBACK_BYTES),
    }


class Output:
    """Turns the messages of one execution into events. Counts what it let through."""

    def __init__(self):
        self.text_left = TEXT_BYTES
        self.results_left = RESULTS_BYTES
        self.results = 0
        self.omits_text = False
        self.omits_results = False

    def events(self, kind, content):
        """The events for one message on the kernel's output channel."""
        if kind == "stream":
            return self.stream(content.get("name"), str(content.get("text", "")))
        if kind in ("execute_result", "display_data"):
            return self.result(content.get("data") or {}, kind == "execute_result")
        if kind == "error":
            traceback = "\n".join(map(str, content.get("traceback") or ()))
            return [error(content.get("ename", ""), content.get("evalue", ""), traceback)]
        if kind == "execute_input":
            return [{"type": "number_of_executions", "execution_count": content.get("execution_count")}]
        return []

    def stream(self, name, text):
        kind = "stderr" if name == "stderr" else "stdout"
        if self.omits_text:
            return []
        size = len(text.encode("utf-8", "replace"))
        if size > self.text_left:
            self.omits_text = True
            text = cut(text, self.text_left) + f"\n[output omitted: it exceeds {TEXT_BYTES} bytes]\n"
        self.text_left -= size
        pieces = [text[begin : begin + PIECE_CHARS] for begin in range(0, len(text), PIECE_CHARS)]
        events = [{"type": kind, "text": piece, "timestamp": time.time_ns()} for piece in pieces]
        return events + [{"type": "output_omitted"}] if self.omits_text else events

    def result(self, data, is_main):
        result = {"type": "result", "is_main_result": is_main}
        extra = {}
        for kind, value in data.items():
            field = FIELDS.get(kind)
            if field in BASE64 and isinstance(value, str):
                value = value.replace("\n", "")
            elif isinstance(value, list) and field not in ("json", "data", "chart"):
                value = "".join(map(str, value))
            if field:
                result[field] = value
            else:
                extra[kind] = value
        if extra:
            result["extra"] = extra
        size = len(encode(result))
        self.results += 1
        if size <= RESULT_BYTES and size <= self.results_left and self.results <= RESULTS:
            self.results_left -= size
            return [result]
        if self.omits_results and self.results > RESULTS:
            return []
        self.omits_results = True
        text = f"[result omitted: {size} bytes; limits: {RESULT_BYTES} bytes a result, {RESULTS_BYTES} bytes and {RESULTS} results an execution]"
        return [{"type": "result", "is_main_result": is_main, "text": text}]
