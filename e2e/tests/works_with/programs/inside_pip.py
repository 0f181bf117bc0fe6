"""pip inside a sandbox: a virtual environment with a package that has compiled code."""

from inside import install, passes, sandbox_with_registries

with sandbox_with_registries() as created:
    passes(created, "python3 -m venv /tmp/env")
    install(created, "/tmp/env/bin/pip install -q --disable-pip-version-check numpy")
    program = "import numpy; print(int(numpy.arange(10).sum()))"
    assert passes(created, ["/tmp/env/bin/python", "-c", program]) == "45\n"
print("ok", flush=True)
