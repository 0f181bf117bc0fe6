"""A kernel around a child process, which gets code on one pipe and reports the end of each execution on another.

Its standard output and standard error are pipes of their own. When the report arrives, everything that the code has
printed is in these pipes, so it is read before the execution ends.
"""

import json
import os
import selectors
import signal
import subprocess

from ipykernel.kernelapp import IPKernelApp
from ipykernel.kernelbase import Kernel

from .kernel import env_vars, prefer_as_oom_victim

READ_BYTES = 64 << 10


def take_interrupts():
    """A kernel ignores interrupts between executions, which its child must not inherit."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


class ChildEnded(Exception):
    pass


class PipeKernel(Kernel):
    implementation = "sandboxd"
    implementation_version = "1"
    banner = ""

    def __init__(self, **arguments):
        super().__init__(**arguments)
        self.child = None
        self.added = {}
        self.start_child()

    def command(self, reports):
        """The child's command line. `reports` is the descriptor that it inherits for its reports."""
        raise NotImplementedError

    def message(self, code, added):
        """What is written to the child's standard input for an execution."""
        raise NotImplementedError

    def start_child(self):
        reading, writing = os.pipe()
        pipe = subprocess.PIPE
        self.child = subprocess.Popen(
            self.command(writing), stdin=pipe, stdout=pipe, stderr=pipe, pass_fds=(writing,), bufsize=0, preexec_fn=take_interrupts
        )
        os.close(writing)
        self.reports, self.unread = reading, b""
        self.selector = selectors.DefaultSelector()
        for file, name in ((self.child.stdout.fileno(), "stdout"), (self.child.stderr.fileno(), "stderr"), (reading, "report")):
            os.set_blocking(file, False)
            self.selector.register(file, selectors.EVENT_READ, name)

    async def execute_request(self, stream, ident, parent):
        self.added = env_vars(parent)
        await super().execute_request(stream, ident, parent)

    def do_execute(self, code, silent, store_history=True, user_expressions=None, allow_stdin=False, **_):
        reply = {"status": "ok", "execution_count": self.execution_count, "payload": [], "user_expressions": {}}
        try:
            self.write(self.message(code, self.added))
            report = self.follow()
        except ChildEnded:
            code = self.child.wait()
            self.start_child()
            report = {"error": ["KernelDied", f"the {self.language} process ended with code {code}; a new one takes its place", []]}
        for data in report.get("display", ()):
            self.send_response(self.iopub_socket, "display_data", {"data": data, "metadata": {}})
        if report.get("data"):
            content = {"execution_count": self.execution_count, "data": report["data"], "metadata": {}}
            self.send_response(self.iopub_socket, "execute_result", content)
        if report.get("error"):
            name, value, traceback = report["error"]
            content = {"ename": name, "evalue": value, "traceback": traceback}
            self.send_response(self.iopub_socket, "error", content)
            reply = {"status": "error", "execution_count": self.execution_count, **content}
        return reply

    def write(self, data):
        try:
            while data:
                data = data[self.child.stdin.write(data) :]
        except BrokenPipeError:
            raise ChildEnded from None

    def follow(self):
        """Passes on output until the child reports the end of an execution."""
        while True:
            try:
                report = self.step()
            except KeyboardInterrupt:
                # The child got the signal too, and reports the end.
                continue
            if report is not None:
                return report

    def step(self):
        ended = False
        for key, _ in self.selector.select():
            if key.data != "report":
                self.pass_on(key.fd, key.data)
                continue
            chunk = os.read(key.fd, READ_BYTES)
            ended = not chunk
            self.unread += chunk
        line, newline, rest = self.unread.partition(b"\n")
        if not newline and not ended:
            return None
        for key in list(self.selector.get_map().values()):
            if key.data != "report":
                while self.pass_on(key.fd, key.data):
                    pass
        if ended:
            raise ChildEnded
        self.unread = rest
        return self.report(line)

    def report(self, line):
        return json.loads(line)

    def pass_on(self, file, name):
        """Sends what is available; False if nothing is."""
        try:
            chunk = os.read(file, READ_BYTES)
        except BlockingIOError:
            return False
        if not chunk:
            self.selector.unregister(file)
            return False
        text = chunk.decode("utf-8", "replace")
        self.send_response(self.iopub_socket, "stream", {"name": name, "text": text})
        return True

    def do_shutdown(self, restart):
        self.child.kill()
        return {"status": "ok", "restart": restart}


class App(IPKernelApp):
    def init_iopub(self, context):
        # A full queue drops messages, also the one that ends an execution.
        context.sndhwm = 0
        super().init_iopub(context)


def run(kernel):
    prefer_as_oom_victim()
    App.launch_instance(kernel_class=kernel)
