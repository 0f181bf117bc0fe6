"""A program that was written for E2B. It runs here unchanged, with the variables that `sandboxd serve --e2b --show-key` prints."""

from e2b import Sandbox

TABLE = "pear,3\napple,5\nplum,4\n"


def main() -> None:
    with Sandbox.create(timeout=120, metadata={"job": "17"}, envs={"CURRENCY": "EUR"}) as sandbox:
        sandbox.files.write("prices.csv", TABLE)
        result = sandbox.commands.run("sort -t, -k2 -n prices.csv | head -n 1")
        print("cheapest:", result.stdout.strip())
        print("currency:", sandbox.commands.run("echo $CURRENCY").stdout.strip())
        print("files:", [entry.name for entry in sandbox.files.list(".") if entry.name.endswith(".csv")])


if __name__ == "__main__":
    main()
