"""Computes with a table in the code interpreter, and saves the figure that the code shows as plot.png."""

import base64
import sys
from pathlib import Path

from sandboxd import Sandbox

TABLE = "month,visitors\n1,120\n2,180\n3,150\n4,240\n"

READ = """
import pandas as pd
table = pd.read_csv("visitors.csv")
table.visitors.sum()
"""
# The variables of the first execution still exist: both run in one context.
PLOT = """
import matplotlib.pyplot as plt
plt.plot(table.month, table.visitors)
plt.title("Visitors")
plt.show()
"""


def main() -> None:
    target = Path(sys.argv[1] if len(sys.argv) > 1 else "plot.png")
    with Sandbox.create("code-interpreter", memory="2g", disk="5g") as sandbox:
        sandbox.files.write("visitors.csv", TABLE)
        total = sandbox.run_code(READ)
        print("visitors:", total.results[0].text)
        drawing = sandbox.run_code(PLOT)
        if drawing.exception is not None:
            sys.exit(drawing.exception.traceback)
        for result in drawing.results:
            if result.png is not None:
                target.write_bytes(base64.b64decode(result.png))
                print("saved", target)


if __name__ == "__main__":
    main()
