"""The HTTP interface: `/execute`, `/contexts` and `/health`.

Errors are texts. A client that closes the connection of `/execute` interrupts the kernel.
"""

import asyncio
import contextlib
import json
import logging
import os

from tornado.httpserver import HTTPServer
from tornado.iostream import StreamClosedError
from tornado.web import Application, RequestHandler

from .context import Context, Refused
from .output import encode

BODY_BYTES = 8 << 20
CONTEXTS = 32
DEFAULT_LANGUAGE = "python"


class Contexts:
    """The contexts by id. Those that no request named are the defaults of their languages."""

    def __init__(self, cwd):
        self.cwd = cwd
        self.by_id = {}
        self.defaults = {}

    def add(self, language, cwd):
        if len(self.by_id) >= CONTEXTS:
            raise Refused(429, f"there are {CONTEXTS} contexts, the most that are allowed; remove one")
        context = Context(language, cwd)
        self.by_id[context.id] = context
        return context

    def default(self, language):
        context = self.by_id.get(self.defaults.get(language))
        if context is None:
            context = self.add(language, self.cwd)
            context = self.defaults_to(language, context)
        return context

    def defaults_to(self, language, context):
        """`js` and `javascript` share a context."""
        other = self.by_id.get(self.defaults.get(context.language))
        if other is not None:
            del self.by_id[context.id]
            context = other
        self.defaults[language] = self.defaults[context.language] = context.id
        return context

    def find(self, context_id):
        context = self.by_id.get(context_id)
        if context is None:
            raise Refused(404, f"context {context_id!r:.100} does not exist")
        return context

    async def remove(self, context_id):
        context = self.find(context_id)
        del self.by_id[context_id]
        await context.close()


class Handler(RequestHandler):
    def initialize(self, contexts):
        self.contexts = contexts

    def document(self):
        """The object in the body; an empty body is an empty object."""
        try:
            document = json.loads(self.request.body or b"{}")
        except (ValueError, RecursionError):
            raise Refused(400, "the body is not JSON") from None
        if not isinstance(document, dict):
            raise Refused(400, "the body is not a JSON object")
        return document

    @staticmethod
    def text(document, name, default=None):
        value = document.get(name)
        if value is None:
            return default
        if not isinstance(value, str) or "\0" in value:
            raise Refused(400, f"{name} is not a text")
        return value

    def answer(self, value):
        self.set_header("Content-Type", "application/json")
        self.finish(json.dumps(value))

    def write_error(self, status_code, **kwargs):
        cause = kwargs.get("exc_info", (None, None, None))[1]
        if isinstance(cause, Refused):
            self.set_status(cause.status)
            message = str(cause)
        else:
            message = self._reason
        self.set_header("Content-Type", "text/plain; charset=utf-8")
        self.finish(message)

    def log_exception(self, kind, value, traceback):
        if not isinstance(value, Refused):
            super().log_exception(kind, value, traceback)


class Health(Handler):
    def get(self):
        self.answer("OK")


class ContextList(Handler):
    def get(self):
        self.answer([context.view() for context in self.contexts.by_id.values()])

    async def post(self):
        document = self.document()
        language = self.text(document, "language", DEFAULT_LANGUAGE)
        context = self.contexts.add(language, self.text(document, "cwd", self.contexts.cwd))
        try:
            await context.start()
        except BaseException:
            with contextlib.suppress(Refused):
                await self.contexts.remove(context.id)
            raise
        self.answer(context.view())


class OneContext(Handler):
    async def delete(self, context_id):
        await self.contexts.remove(context_id)
        self.set_status(204)
        self.finish()


class Restart(Handler):
    async def post(self, context_id):
        context = self.contexts.find(context_id)
        await context.restart()
        self.answer(context.view())


class Execute(Handler):
    task = None

    async def post(self):
        document = self.document()
        code = self.text(document, "code")
        if code is None:
            raise Refused(400, "code is missing")
        env_vars = document.get("env_vars") or {}
        texts = isinstance(env_vars, dict) and all(isinstance(value, str) for value in env_vars.values())
        if not texts or any("\0" in text or "=" in text for text in env_vars) or any("\0" in v for v in env_vars.values()):
            raise Refused(400, "env_vars is not an object of texts")
        context_id = self.text(document, "context_id")
        language = self.text(document, "language")
        if context_id and language:
            raise Refused(400, "context_id and language are both given; a context has a language")
        if context_id:
            context = self.contexts.find(context_id)
        else:
            context = self.contexts.default(language or DEFAULT_LANGUAGE)
        await self.respond(context, code, env_vars)

    async def respond(self, context, code, env_vars):
        """Streams the events. What the client has not read yet waits here, within the limits of `output`."""
        events = asyncio.Queue()
        self.task = asyncio.ensure_future(context.execute(code, env_vars, events.put_nowait))
        self.task.add_done_callback(lambda _: events.put_nowait(None))
        if self.request.connection.stream.closed():
            self.task.cancel()
        self.set_header("Content-Type", "application/x-ndjson")
        self.set_header("X-Context-Id", context.id)
        self.set_header("Cache-Control", "no-store")
        while (event := await events.get()) is not None:
            self.write(encode(event))
            while not events.empty() and len(self._write_buffer) < 64:
                event = events.get_nowait()
                if event is None:
                    events.put_nowait(None)
                    break
                self.write(encode(event))
            try:
                await self.flush()
            except StreamClosedError:
                self.task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self.task

    def on_connection_close(self):
        if self.task is not None:
            self.task.cancel()


def application(contexts):
    own = {"contexts": contexts}
    return Application(
        [
            (r"/health", Health, own),
            (r"/contexts", ContextList, own),
            (r"/contexts/([^/]{1,100})", OneContext, own),
            (r"/contexts/([^/]{1,100})/restart", Restart, own),
            (r"/execute", Execute, own),
        ]
    )


async def run(listener):
    contexts = Contexts(os.getcwd())
    server = HTTPServer(application(contexts), max_buffer_size=BODY_BYTES, max_body_size=BODY_BYTES)
    server.add_sockets([listener])
    with contextlib.suppress(Exception):
        # Most first requests are for it.
        await contexts.default(DEFAULT_LANGUAGE).start()
    await asyncio.Event().wait()


def serve(listener):
    logging.getLogger("tornado.access").setLevel(logging.ERROR)
    logging.getLogger("asyncio").setLevel(logging.ERROR)
    asyncio.run(run(listener))
