"""The Bash kernel: an interactive bash, because only that abandons a whole command when it is interrupted."""

import re
import shlex

from .pipe_kernel import PipeKernel, run

# Without its first messages, which complain about the missing terminal.
ENTER = "exec 9>&2 2>/dev/null; PS1= PS2= exec bash --noprofile --norc --noediting -i"
# No history expansion, and no process groups: an interrupt reaches bash and what it runs alike.
PREPARE = "PS1= PS2= PROMPT_COMMAND=; set +H +m; exec 2>&9 9>&-\n"
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class BashKernel(PipeKernel):
    language = "bash"
    language_info = {"name": "bash", "mimetype": "text/x-sh", "file_extension": ".sh"}

    def command(self, reports):
        self.reports_fd = reports
        return ["bash", "-c", ENTER]

    def start_child(self):
        super().start_child()
        self.write(PREPARE.encode())

    def message(self, code, added):
        names = [name for name in added if NAME.fullmatch(name)]
        add = "".join(
            f"[ ${{{name}+x}} ] && __had_{name}=${name} || unset __had_{name}; export {name}={shlex.quote(added[name])}; "
            for name in names
        )
        remove = "".join(f"[ ${{__had_{name}+x}} ] && {name}=$__had_{name} || unset {name}; " for name in names)
        # An interrupt abandons the line that runs, and not the next one. What the code starts must not keep the pipe of
        # the reports open.
        run_code = f"eval {shlex.quote(code)} </dev/null {self.reports_fd}>&-"
        report = f"{{ __status=$?; {remove}printf '%s\\n' \"$__status\" >&{self.reports_fd}; }} 2>/dev/null"
        return f"{add}\n{run_code}\n{report}\n".encode("utf-8", "replace")

    def report(self, line):
        status = int(line)
        return {"error": ["ExitStatus", str(status), [f"exit status {status}"]]} if status else {}


def main():
    run(BashKernel)
