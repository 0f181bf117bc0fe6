"""The program of e2b_program.py, moved to the library of this service."""

import os

from sandboxd import Sandbox

IMAGE = os.environ.get("IMAGE", "python:3.12")
TABLE = "pear,3\napple,5\nplum,4\n"


def main() -> None:
    with Sandbox.create(IMAGE, timeout=120, metadata={"job": "17"}, env={"CURRENCY": "EUR"}) as sandbox:
        sandbox.files.write("prices.csv", TABLE)
        # A command that fails is a result here, and an error with `check`.
        result = sandbox.execute("sort -t, -k2 -n prices.csv | head -n 1", check=True)
        print("cheapest:", result.stdout.strip())
        print("currency:", sandbox.execute("echo $CURRENCY", check=True).stdout.strip())
        print("files:", [entry.name for entry in sandbox.files.list(".") if entry.name.endswith(".csv")])


if __name__ == "__main__":
    main()
