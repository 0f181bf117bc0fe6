"""Builds above a template, and builds in progress of one name and tag."""

import time

import names
from e2b import Sandbox, Template

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
