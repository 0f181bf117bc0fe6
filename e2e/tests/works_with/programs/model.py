"""A model with a script: an OpenAI-compatible server on loopback that gives prepared answers, one after the other."""

import http.server
import json
import threading


def call(name, **arguments):
    """An answer that calls a tool."""
    return {"name": name, "arguments": arguments}


class Model:
    """Serves the answers while it is entered: texts, and results of `call`. `url` is the base URL, and `requests` are the bodies."""

    def __init__(self, *answers):
        self.answers = list(answers)
        self.requests = []

    def __enter__(self):
        model = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                model.requests.append(body)
                chunks = model.response(body)
                self.send_response(200)
                self.send_header("content-type", "text/event-stream" if body.get("stream") else "application/json")
                self.send_header("content-length", str(len(chunks)))
                self.end_headers()
                self.wfile.write(chunks)

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/v1"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()

    def response(self, body):
        """The next answer as a completion of a chat, whole or as a stream."""
        answer = self.answers.pop(0)
        if isinstance(answer, str):
            message, reason = {"role": "assistant", "content": answer}, "stop"
        else:
            function = {"name": answer["name"], "arguments": json.dumps(answer["arguments"])}
            calls = [{"index": 0, "id": f"call_{len(self.requests)}", "type": "function", "function": function}]
            message, reason = {"role": "assistant", "content": None, "tool_calls": calls}, "tool_calls"
        shared = {"id": "answer", "created": 0, "model": body["model"]}
        usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
        if not body.get("stream"):
            choices = [{"index": 0, "message": message, "finish_reason": reason}]
            return json.dumps({**shared, "object": "chat.completion", "choices": choices, "usage": usage}).encode()
        chunks = [
            {"choices": [{"index": 0, "delta": message, "finish_reason": None}]},
            {"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]},
            {"choices": [], "usage": usage},
        ]
        lines = [json.dumps({**shared, "object": "chat.completion.chunk", **chunk}) for chunk in chunks]
        return "".join(f"data: {line}\n\n" for line in [*lines, "[DONE]"]).encode()

    def seen(self):
        """All that the model has received, as text."""
        return json.dumps(self.requests)
