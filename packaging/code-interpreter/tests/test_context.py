"""Tests of contexts without a kernel: executions that a restart or a removal ends, and full disks."""

import asyncio
import errno
import os
import sys
import unittest
from unittest import mock

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))

MISSING = ("zmq", "zmq.asyncio", "jupyter_client", "jupyter_client.kernelspec", "jupyter_client.manager")
with mock.patch.dict(sys.modules, {name: mock.MagicMock() for name in MISSING}):
    from code_interpreter import context

context.zmq.ZMQError = type("ZMQError", (Exception,), {})


class Client:
    """A client whose sockets cancel what waits for them when they are closed, as those of pyzmq do."""

    def __init__(self):
        self.session, self.shell_channel = mock.MagicMock(), mock.MagicMock()
        self.waiting = None

    async def get_iopub_msg(self, timeout):
        self.waiting = asyncio.get_running_loop().create_future()
        return await self.waiting

    def stop_channels(self):
        self.waiting.cancel()


class Manager:
    async def is_alive(self):
        return True

    async def shutdown_kernel(self, now):
        pass


class RestartTest(unittest.IsolatedAsyncioTestCase):
    async def asyncSetUp(self):
        self.context = context.Context("python", "/")
        self.use(Manager(), Client())
        self.events = []

    def use(self, manager, client):
        self.context.manager, self.context.client = manager, client

    async def begin(self):
        execution = asyncio.ensure_future(self.context.execute("1", {}, self.events.append))
        while self.context.client.waiting is None:
            await asyncio.sleep(0)
        return execution

    async def ensure(self):
        if not self.context.is_closed:
            self.use(Manager(), Client())

    async def test_an_execution_ends_with_the_kernel_that_is_replaced_or_removed(self):
        for end in (self.context.restart, self.context.close):
            execution = await self.begin()
            with mock.patch.object(self.context, "ensure", self.ensure):
                await end()
                await execution
            died, ended = self.events
            self.assertEqual((died["name"], died["value"]), ("KernelDied", context.RESTARTED))
            self.assertEqual(ended, {"type": "end_of_execution"})
            self.events.clear()

    async def test_a_client_that_disconnects_interrupts_the_kernel(self):
        execution = await self.begin()
        with mock.patch.object(self.context, "interrupt", mock.AsyncMock()) as interrupt:
            execution.cancel()
            with self.assertRaises(asyncio.CancelledError):
                await execution
        interrupt.assert_awaited_once()
        self.assertEqual(self.events, [])


class StartTest(unittest.IsolatedAsyncioTestCase):
    async def test_an_execution_ends_with_the_kernel_that_is_removed_while_it_starts(self):
        starting, client, events = mock.MagicMock(), Client(), []
        starting.start_kernel, starting.shutdown_kernel = mock.AsyncMock(), mock.AsyncMock()
        starting.client.return_value = client
        client.start_channels, client.kernel_info = mock.Mock(), mock.Mock(return_value="1")
        with mock.patch.object(context, "AsyncKernelManager", return_value=starting):
            started = context.Context("python", "/")
            execution = asyncio.ensure_future(started.execute("1", {}, events.append))
            while client.waiting is None:
                await asyncio.sleep(0)
            await started.close()
            await execution
        self.assertEqual([event.get("name") for event in events], ["KernelDied", None])
        self.assertEqual(events[-1], {"type": "end_of_execution"})


class DiskTest(unittest.IsolatedAsyncioTestCase):
    async def test_a_full_disk_is_named_before_a_kernel_starts(self):
        full = mock.Mock(side_effect=OSError(errno.ENOSPC, "No space left on device"))
        with mock.patch.object(context.tempfile, "TemporaryFile", full):
            with self.assertRaises(context.Refused) as refused:
                await context.Context("python", "/").ensure()
        self.assertEqual(refused.exception.status, 507)
        context.check_disk()


if __name__ == "__main__":
    unittest.main()
