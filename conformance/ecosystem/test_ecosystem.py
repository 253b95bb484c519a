"""Unit tests of what reads outcomes: `cd conformance/ecosystem && python3 -m unittest test_ecosystem`."""

import tempfile
import unittest
from pathlib import Path

from outcomes import FAILED, PASSED, SKIPPED, Comparison, counts, of_behave, of_cargo, of_go, of_junit


class Outputs(unittest.TestCase):
    def test_go(self):
        output = "=== RUN   TestA\n    --- FAIL: TestA/b (0.01s)\n--- FAIL: TestA (0.02s)\nlog--- PASS: TestC (1.00s)\n--- SKIP: TestD (0.00s)\n"
        self.assertEqual(of_go(output, "p"), {"p: TestA/b": FAILED, "p: TestA": FAILED, "p: TestC": PASSED, "p: TestD": SKIPPED})

    def test_cargo(self):
        output = "running 3 tests\ntest a ... said something ok\ntest b::c ... FAILED\ntest d ... ignored, needs an ok server\ntest e - should panic ... ok\ntest result: FAILED. 1 passed;\n"
        self.assertEqual(of_cargo(output, "t"), {"t: a": PASSED, "t: b::c": FAILED, "t: d": SKIPPED, "t: e": PASSED})

    def test_junit_counts_the_worse_of_two_reports(self):
        report = (
            '<testsuites><testsuite><testcase classname="c" name="a"/><testcase classname="c" name="b"><failure/></testcase>'
            '<testcase classname="c" name="b"/><testcase classname="c" name="d"><skipped/></testcase>'
            '<testcase classname="c" name="e"/><testcase classname="c" name="e"><error/></testcase></testsuite></testsuites>'
        )
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "report.xml"
            path.write_text(report)
            self.assertEqual(of_junit(path), {"c: a": PASSED, "c: b": FAILED, "c: d": SKIPPED, "c: e": FAILED})

    def test_behave(self):
        report = """[
            {"name": "f", "status": "failed", "elements": [
                {"type": "background", "name": ""}, {"type": "scenario", "name": "a", "status": "passed"}, {"type": "scenario", "name": "b", "status": "skipped"}]},
            {"name": "g", "status": "failed", "elements": [
                {"type": "scenario", "name": "a", "status": "failed"}, {"type": "scenario", "name": "c", "status": "untested"}]},
            {"name": "h", "status": "skipped"}, {"name": "i", "status": "passed", "elements": []}]"""
        # What runs after its scenarios failed in `f`.
        expected = {"f": FAILED, "f: a": PASSED, "f: b": SKIPPED, "g": FAILED, "g: a": FAILED, "g: c": FAILED, "h": SKIPPED, "i": PASSED}
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "report.json"
            path.write_text(report)
            self.assertEqual(of_behave(path), expected)
            path.write_text(report[:200])
            self.assertEqual(of_behave(path), {})


class Comparisons(unittest.TestCase):
    def test_only_what_passes_on_the_genuine_server_can_be_lost(self):
        comparison = Comparison({"a": PASSED, "b": PASSED, "c": FAILED, "d": PASSED, "e": SKIPPED}, {"a": PASSED, "b": FAILED, "c": PASSED, "e": FAILED})
        self.assertEqual(comparison.lost, ["b", "d"])
        self.assertEqual(comparison.gained, ["c"])

    def test_a_suite_of_which_little_passes_proves_nothing(self):
        comparison = Comparison({"a": FAILED, "b": PASSED}, {"a": FAILED, "b": PASSED})
        self.assertEqual([comparison.proves(passes_min) for passes_min in (1, 2)], [True, False])

    def test_counts(self):
        self.assertEqual(counts({"a": PASSED, "b": FAILED, "c": PASSED}), "2 passed, 1 failed")
        self.assertEqual(counts({}), "none")


if __name__ == "__main__":
    unittest.main()
