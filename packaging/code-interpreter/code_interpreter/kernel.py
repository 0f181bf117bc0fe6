"""What the kernels share: environment variables of one execution, and precedence when memory runs out."""


def prefer_as_oom_victim():
    """The kernel of the host kills a Jupyter kernel before it kills the server."""
    try:
        with open("/proc/self/oom_score_adj", "w") as file:
            file.write("500")
    except OSError:
        pass


def env_vars(parent):
    """The environment variables that come with an execution."""
    return (parent.get("metadata") or {}).get("env_vars") or {}
