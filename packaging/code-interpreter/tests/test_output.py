"""Tests of the limits of output, without a kernel: `python3 -m unittest discover -s packaging/code-interpreter/tests`."""

import json
import os
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))

from code_interpreter import output  # noqa: E402


def texts(events, kind="stdout"):
    return "".join(event["text"] for event in events if event["type"] == kind)


class OutputTest(unittest.TestCase):
    def setUp(self):
        self.output = output.Output()

    def stream(self, text, name="stdout"):
        return self.output.events("stream", {"name": name, "text": text})

    def test_text_passes_in_pieces_that_readers_accept(self):
        text = "\x00" * (1 << 20)
        events = self.stream(text)
        self.assertEqual(texts(events), text)
        self.assertTrue(all(len(output.encode(event)) < 4 << 20 for event in events))

    def test_text_beyond_the_limit_is_omitted_once_with_a_mark(self):
        shown, omitted = "", []
        for _ in range(50):
            events = self.stream("é" * (1 << 19))
            shown += texts(events)
            omitted += [event for event in events if event["type"] == "output_omitted"]
        self.assertEqual(len(omitted), 1)
        self.assertEqual(shown.count("[output omitted"), 1)
        self.assertLess(len(shown.encode()), output.TEXT_BYTES + 200)
        self.assertEqual(self.stream("x", "stderr"), [])

    def test_results_have_the_fields_of_their_types(self):
        data = {"text/plain": "1", "image/png": "aGk=\n", "text/html": ["<b>", "</b>"], output.DATA: {"a": [1]}, "x/y": 2}
        [result] = self.output.events("execute_result", {"data": data})
        expected = {"type": "result", "is_main_result": True, "text": "1", "png": "aGk=", "html": "<b></b>"}
        self.assertEqual(result, {**expected, "data": {"a": [1]}, "extra": {"x/y": 2}})
        [result] = self.output.events("display_data", {"data": {}})
        self.assertFalse(result["is_main_result"])

    def test_large_and_many_results_are_omitted(self):
        [result] = self.output.events("display_data", {"data": {"text/html": "x" * (output.RESULT_BYTES + 1)}})
        self.assertIn("result omitted", result["text"])
        events = []
        for _ in range(2 * output.RESULTS):
            events += self.output.events("display_data", {"data": {"text/plain": "x"}})
        self.assertLessEqual(len(events), output.RESULTS + 1)
        total = sum(len(output.encode(event)) for event in events)
        self.assertLess(total, output.RESULTS_BYTES)

    def test_errors_are_bounded_and_lines_are_json(self):
        [error] = self.output.events("error", {"ename": "E", "evalue": "v" * (1 << 22), "traceback": ["a", "b"]})
        self.assertLessEqual(len(error["value"]), output.TRACEBACK_BYTES)
        line = output.encode({"text": "\ud800 a\nb", "value": object()})
        self.assertEqual(line.count(b"\n"), 1)
        json.loads(line)


if __name__ == "__main__":
    unittest.main()
