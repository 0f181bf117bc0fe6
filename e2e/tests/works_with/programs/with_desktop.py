"""The desktop of E2B: a screenshot, the mouse, and a window that is found by its name."""

import struct

from e2b_desktop import Sandbox

desktop = Sandbox.create(timeout=300, resolution=(800, 600))
try:
    assert desktop.get_screen_size() == (800, 600)
    desktop.move_mouse(120, 80)
    assert desktop.get_cursor_position() == (120, 80)
    shot = bytes(desktop.screenshot())
    assert shot.startswith(b"\x89PNG") and struct.unpack(">II", shot[16:24]) == (800, 600), shot[:32]
    desktop.right_click(400, 300)
    desktop.press("esc")
    windows = desktop.get_application_windows("xfdesktop")
    assert windows and desktop.get_window_title(windows[0]), windows
finally:
    desktop.kill()
print("ok", flush=True)
