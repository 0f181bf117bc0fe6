"""A websocket echo, from Python's standard library alone. Takes the path of its Unix socket."""

import asyncio
import base64
import hashlib
import struct
import sys


async def frame(reader):
    first, second = await reader.readexactly(2)
    length = second & 0x7F
    if length == 126:
        (length,) = struct.unpack("!H", await reader.readexactly(2))
    elif length == 127:
        (length,) = struct.unpack("!Q", await reader.readexactly(8))
    mask = await reader.readexactly(4)
    data = await reader.readexactly(length)
    return first & 0xF, bytes(byte ^ mask[at % 4] for at, byte in enumerate(data))


async def serve(reader, writer):
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        headers = dict(line.lower().split(": ", 1)[:1] + [line.split(": ", 1)[1]] for line in head.split("\r\n")[1:-2])
        accept = hashlib.sha1((headers["sec-websocket-key"] + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11").encode()).digest()
        writer.write(
            b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: "
            + base64.b64encode(accept)
            + b"\r\n\r\n"
        )
        while True:
            kind, data = await frame(reader)
            head = struct.pack("!BB", 0x80 | kind, len(data)) if len(data) < 126 else struct.pack("!BBH", 0x80 | kind, 126, len(data))
            writer.write(head + data)
            await writer.drain()
            if kind == 8:
                break
    except (asyncio.IncompleteReadError, ConnectionError):
        pass
    writer.close()


async def main():
    server = await asyncio.start_unix_server(serve, sys.argv[1])
    await server.serve_forever()


asyncio.run(main())
