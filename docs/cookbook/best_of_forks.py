"""Runs the tests of a project in one fork for each candidate change, and keeps the fork that passes most."""

import os
from concurrent.futures import ThreadPoolExecutor
from typing import Tuple

from sandboxd import Sandbox

IMAGE = os.environ.get("IMAGE", "python:3.12")

TESTS = """
import unittest
from median import median

class MedianTest(unittest.TestCase):
    def test_of_one(self):
        self.assertEqual(median([7]), 7)

    def test_of_an_odd_number(self):
        self.assertEqual(median([3, 1, 2]), 2)

    def test_of_an_even_number(self):
        self.assertEqual(median([4, 1, 3, 2]), 2.5)
"""

# A model proposes these. The last one does not end: a time limit is part of the test.
CANDIDATES = {
    "first": "def median(values):\n    return values[0]\n",
    "middle": "def median(values):\n    return sorted(values)[len(values) // 2]\n",
    "both": (
        "def median(values):\n"
        "    ordered = sorted(values)\n"
        "    half = len(ordered) // 2\n"
        "    return ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2\n"
    ),
    "endless": "def median(values):\n    while True:\n        pass\n",
}


def tests_passed(fork: Sandbox, source: str) -> int:
    fork.files.write("median.py", source)
    result = fork.execute("python3 -m unittest -v test_median 2>&1", timeout=10)
    return result.stdout.count("... ok")


def main() -> None:
    with Sandbox.create(IMAGE, memory="2g", disk="5g", timeout="10m") as sandbox:
        # What every attempt needs is done once: copies of the disk have it.
        sandbox.files.write("test_median.py", TESTS)
        forks = dict(zip(CANDIDATES, sandbox.fork(len(CANDIDATES))))

    def attempt(name: str) -> Tuple[int, str]:
        return tests_passed(forks[name], CANDIDATES[name]), name

    best = ""
    try:
        with ThreadPoolExecutor(max_workers=len(CANDIDATES)) as attempts:
            results = sorted(attempts.map(attempt, CANDIDATES), reverse=True)
        for passed, name in results:
            print(f"{name}: {passed} of 3")
        best = results[0][1]
    finally:
        for name, fork in forks.items():
            if name != best:
                fork.terminate()

    with forks[best] as kept:
        print(f"kept {best}:")
        print(kept.files.read_text("median.py"), end="")


if __name__ == "__main__":
    main()
