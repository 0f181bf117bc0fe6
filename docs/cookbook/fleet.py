"""Fifty sandboxes at a time. With the limits of fleet.toml they start at once; with the default ones the library waits."""

import asyncio
import os
import time

from sandboxd import AsyncSandboxd

IMAGE = os.environ.get("IMAGE", "ubuntu:24.04")
SIZE = 50


async def work(client: AsyncSandboxd, number: int) -> int:
    options = {"fleet": "squares", "number": str(number)}
    async with client.sandboxes.create(IMAGE, memory="2g", disk="5g", timeout="10m", metadata=options) as sandbox:
        result = await sandbox.execute(f"echo $(({number} * {number}))", check=True)
        return int(result.stdout)


async def main() -> None:
    async with AsyncSandboxd() as client:
        rate = (await client.info()).limits.create_per_minute
        print(f"creates per minute: {'unlimited' if rate is None else rate}")
        begin = time.monotonic()
        # If one of them fails, the others are cancelled, and a cancelled block terminates its sandbox.
        tasks = [asyncio.ensure_future(work(client, number)) for number in range(SIZE)]
        try:
            squares = await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        print(f"{len(squares)} sandboxes, sum of the squares {sum(squares)}")
        print(f"{time.monotonic() - begin:.1f} s")


if __name__ == "__main__":
    asyncio.run(main())
