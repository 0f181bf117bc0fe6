"""Tests of the memory that the message of a killed kernel names, without a kernel."""

import os
import sys
import unittest
from unittest import mock

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))

MISSING = ("zmq", "zmq.asyncio", "jupyter_client", "jupyter_client.kernelspec", "jupyter_client.manager")
with mock.patch.dict(sys.modules, {name: mock.MagicMock() for name in MISSING}):
    from code_interpreter import context


class MemoryTest(unittest.TestCase):
    def limit(self, is_own):
        meminfo = mock.mock_open(read_data="MemTotal:        2097152 kB\n")
        with mock.patch("os.path.ismount", return_value=is_own), mock.patch("builtins.open", meminfo):
            return context.memory_limit()

    def test_the_memory_of_the_host_is_not_that_of_the_sandbox(self):
        self.assertEqual(self.limit(True), ": the sandbox has 2048 MB (resources.memoryMb)")
        self.assertEqual(self.limit(False), "")


if __name__ == "__main__":
    unittest.main()
