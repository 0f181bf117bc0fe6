"""The code interpreter of a sandbox: an HTTP server in front of Jupyter kernels.

`launch` binds the port and leaves the server in the background; `server` has the HTTP interface, `context` one kernel
and its executions, `output` their limits. The kernels are `python_kernel`, `bash_kernel` and `javascript_kernel`.
"""
