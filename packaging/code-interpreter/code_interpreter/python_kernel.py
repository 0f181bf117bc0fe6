"""The Python kernel: IPython with the environment of one execution, and data frames as data."""

import json
import os

from ipykernel.ipkernel import IPythonKernel
from ipykernel.kernelapp import IPKernelApp
from IPython.core.formatters import BaseFormatter
from traitlets import ObjectName, Unicode

from .kernel import env_vars, prefer_as_oom_victim
from .output import DATA

ROWS = 1000


class DataFormatter(BaseFormatter):
    """A data frame as an object: a list of values by name of the column."""

    format_type = Unicode(DATA)
    print_method = ObjectName("_repr_data_")
    _return_type = (dict,)


def columns(frame):
    """The first rows. A frame with equal or nested names of columns has text names."""
    split = json.loads(frame.head(ROWS).to_json(orient="split", date_format="iso", default_handler=str))
    rows = split["data"]
    return {str(name): [row[index] for row in rows] for index, name in enumerate(split["columns"])}


class Kernel(IPythonKernel):
    def __init__(self, **arguments):
        super().__init__(**arguments)
        formatter = DataFormatter(parent=self.shell.display_formatter)
        formatter.for_type_by_name("pandas.core.frame", "DataFrame", columns)
        self.shell.display_formatter.formatters[DATA] = formatter

    async def execute_request(self, stream, ident, parent):
        added = env_vars(parent)
        before = {name: os.environ.get(name) for name in added}
        os.environ.update(added)
        try:
            await super().execute_request(stream, ident, parent)
        finally:
            for name, value in before.items():
                if value is None:
                    os.environ.pop(name, None)
                else:
                    os.environ[name] = value


class App(IPKernelApp):
    kernel_class = Kernel

    def init_iopub(self, context):
        # A full queue drops messages, also the one that ends an execution.
        context.sndhwm = 0
        super().init_iopub(context)


def main():
    prefer_as_oom_victim()
    App.launch_instance()
