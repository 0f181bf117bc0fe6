"""Builds of templates, creates from them, tags, and failures."""

import os
import tempfile

import names
from e2b import Sandbox, Template, wait_for_file

folder = tempfile.mkdtemp(prefix="e2b-template-")
os.makedirs(os.path.join(folder, "src"))
for name, content in [("src/one.txt", "one"), ("src/two.txt", "two")]:
    with open(os.path.join(folder, name), "w") as file:
        file.write(content)
os.symlink("one.txt", os.path.join(folder, "src", "link.txt"))

template = (
    Template(file_context_path=folder)
    .from_base_image()
    .set_envs({"GREETING": 'hello "world" $HOME'})
    .copy("src/*", "app/")
    .run_cmd("cat app/link.txt app/two.txt > joined && whoami >> joined")
    .run_cmd("id -un > /who", user="root")
    .set_workdir("/srv/work")
    .set_start_cmd("while true; do date > /tmp/beat; sleep 0.2; done", wait_for_file("/tmp/beat"))
)
logs = []
built = Template.build(template, "e2b-built:first", cpu_count=1, memory_mb=1024, on_build_logs=logs.append)
assert built.template_id.startswith("tpl_"), built
assert any("app/link.txt" in entry.message for entry in logs), logs
assert Template.exists("e2b-built") and not Template.exists("e2b-missing")
sandboxes = []
try:
    for name in ["e2b-built", "e2b-built:first", f"e2b-built:{built.build_id}", built.template_id]:
        sandbox = Sandbox.create(name, timeout=120)
        sandboxes.append(sandbox)
        assert sandbox.files.read("joined") == "onetwouser\n", sandbox.files.read("joined")
        assert sandbox.commands.run("cat /who", user="root").stdout == "root\n"
        assert sandbox.commands.run("echo $GREETING").stdout == 'hello "world" /root\n'
        assert sandbox.commands.run("stat -c %U ~/app/one.txt").stdout == "user\n"
        beat = "a=$(stat -c %y /tmp/beat); sleep 0.7; b=$(stat -c %y /tmp/beat); [ \"$a\" != \"$b\" ] && echo alive"
        assert sandbox.commands.run(beat).stdout == "alive\n"
        assert sandbox.get_info().memory_mb == 1024
        # The last directory is that of commands; files are relative to the home.
        assert sandbox.commands.run("pwd; whoami").stdout == "/srv/work\nuser\n"
    tags = Template.assign_tags("e2b-built:first", ["stable", "latest"])
    assert set(tags.tags) == {"stable", "latest"}, tags
    assert {tag.tag for tag in Template.get_tags("e2b-built")} == {"first", "stable", "latest"}
    Template.remove_tags("e2b-built", "latest")
    assert {tag.tag for tag in Template.get_tags("e2b-built")} == {"first", "stable"}
    sandboxes.append(Sandbox.create("e2b-built:stable", timeout=60))
finally:
    for sandbox in sandboxes:
        sandbox.kill()


def refusal(call, *arguments):
    try:
        call(*arguments)
    except Exception as error:
        return str(error)
    raise AssertionError(f"{call} {arguments} succeeded")


assert "code 7" in refusal(Template.build, Template().from_template("e2b-built").run_cmd("echo why; exit 7"), "e2b-bad")
for tag in ["missing", "12345678-1234-1234-1234-123456789012"]:
    assert f"tag '{tag}' does not exist for template 'e2b-built'" in refusal(Sandbox.create, f"e2b-built:{tag}")

names.passed()
