"""The JavaScript kernel: Node with `javascript_child.js`."""

import json
import os

from .pipe_kernel import PipeKernel, run

CHILD = os.path.join(os.path.dirname(os.path.abspath(__file__)), "javascript_child.js")


class JavaScriptKernel(PipeKernel):
    language = "javascript"
    language_info = {"name": "javascript", "mimetype": "application/javascript", "file_extension": ".js"}

    def command(self, reports):
        return ["node", "--no-warnings", CHILD, str(reports)]

    def message(self, code, added):
        return json.dumps({"code": code, "env": added}).encode() + b"\n"


def main():
    run(JavaScriptKernel)
