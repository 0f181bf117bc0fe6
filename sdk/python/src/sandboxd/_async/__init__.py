"""The asyncio flavour of the client."""
