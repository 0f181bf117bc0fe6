"""Creates sandboxes, runs a command in each and kills them: cycles.py COUNT CONCURRENCY"""

import asyncio
import sys

import names
from e2b import AsyncSandbox


async def cycle(number):
    sandbox = await AsyncSandbox.create(timeout=60)
    result = await sandbox.commands.run(f"echo {number}")
    assert result.stdout == f"{number}\n", result
    assert await sandbox.kill()


async def worker(numbers):
    for number in numbers:
        await cycle(number)


async def main(count, concurrency):
    # They take turns at one iterator, so all are busy until the end.
    numbers = iter(range(count))
    await asyncio.gather(*(worker(numbers) for _ in range(concurrency)))
    assert await AsyncSandbox.list().next_items() == []


asyncio.run(main(int(sys.argv[1]), int(sys.argv[2])))
names.passed()
