"""`code-interpreter [--port PORT] [--foreground]`."""

import sys

from .launch import main

sys.exit(main(sys.argv[1:]))
