"""Builds above a template, and builds in progress of one name and tag."""

import time

import names
from e2b import Sandbox, Template, wait_for_port

# The last user is that of commands, and of the steps of a template above.
Template.build(Template().from_base_image().set_user("root").set_workdir("/srv"), "e2b-root")
Template.build(Template().from_template("e2b-root").run_cmd("whoami > who; pwd >> who"), "e2b-above")
sandbox = Sandbox.create("e2b-above", timeout=60)
try:
    run = sandbox.commands.run
    assert run("cat who; whoami; pwd").stdout == "root\n/srv\nroot\n/srv\n"
    assert run("whoami; pwd", user="user").stdout == "user\n/srv\n"
finally:
    sandbox.kill()

# Values of variables are expanded, commands find their programs nevertheless, and the ready command has `ss`.
served = Template().from_base_image()
served = served.set_envs({"PATH": "/opt/x/bin:$PATH", "SEEN": "$PATH", "TEXT": "$(id) 'a' \"b\" \\c"})
served = served.run_cmd("date > /tmp/built").set_start_cmd("python3 -m http.server 8000", wait_for_port(8000))
Template.build(served, "e2b-served")
sandbox = Sandbox.create("e2b-served", timeout=60)
try:
    run = sandbox.commands.run
    seen, text = run("echo $SEEN; echo \"$TEXT\"; cat /tmp/built > /dev/null").stdout.splitlines()
    assert seen.endswith("/bin") and "$" not in seen, seen
    assert text == "$(id) 'a' \"b\" \\c", text
finally:
    sandbox.kill()

# An identical build in progress is a conflict; another one of the name and tag replaces it.
slow = Template().from_base_image().run_cmd("sleep 60")
first = Template.build_in_background(slow, "e2b-slow")
try:
    Template.build_in_background(slow, "e2b-slow:default")
except Exception as error:
    assert str(error).startswith("409:"), error
else:
    raise AssertionError("an identical build was started")
Template.build(Template().from_base_image().run_cmd("true"), "e2b-slow")
deadline = time.monotonic() + 20
while (replaced := Template.get_build_status(first)).status.value == "building":
    assert time.monotonic() < deadline, replaced
    time.sleep(0.2)
assert replaced.status.value == "error" and "newer" in replaced.reason.message, replaced

names.passed()
