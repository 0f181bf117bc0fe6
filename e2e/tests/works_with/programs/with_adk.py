"""The environment of Google's ADK in a sandbox: commands, files, and an error of a command."""

import asyncio

from google.adk.integrations.e2b import E2BEnvironment


async def main():
    environment = E2BEnvironment(env_vars={"GREETING": "hello"})
    await environment.initialize()
    try:
        result = await environment.execute("echo $GREETING; pwd")
        assert (result.exit_code, result.stdout) == (0, f"hello\n{environment.working_dir}\n"), result
        failed = await environment.execute("echo wrong >&2; exit 4")
        assert (failed.exit_code, failed.stderr) == (4, "wrong\n"), failed
        late = await environment.execute("sleep 30", timeout=1)
        assert late.timed_out, late
        await environment.write_file("sub/data.bin", bytes(range(256)))
        assert await environment.read_file("sub/data.bin") == bytes(range(256))
        try:
            await environment.read_file("missing")
        except FileNotFoundError:
            pass
        else:
            raise AssertionError("a missing file was read")
    finally:
        await environment.close()


asyncio.run(main())
print("ok", flush=True)
