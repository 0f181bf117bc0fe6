"""The blocking flavour of the client. `tools/generate_sync.py` generates it from the asyncio flavour."""
