"""Unit tests of what reads outcomes and of whose turn it is: `cd conformance/ecosystem && python3 -m unittest test_ecosystem`."""

import contextlib
import io
import os
import tempfile
import unittest
from pathlib import Path
from unittest import mock

import ecosystem
import turns
from from_debian import DEBIAN
from outcomes import FAILED, PASSED, SKIPPED, Comparison, counts, of_behave, of_cargo, of_go, of_junit
from suite import Suite, SuiteFailed
from suites import SUITES


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
        late = Comparison({"a": FAILED, "b": PASSED}, {"a": PASSED, "b": PASSED})
        self.assertEqual([late.proves(passes_min) for passes_min in (2, 3)], [True, False])

    def test_counts(self):
        self.assertEqual(counts({"a": PASSED, "b": FAILED, "c": PASSED}), "2 passed, 1 failed")
        self.assertEqual(counts({}), "none")


class Turns(unittest.TestCase):
    def test_as_many_turns_as_suites_have_each_once(self):
        for first in (-3, 0, 20_785):
            self.assertEqual({turns.whose(number) for number in range(first, first + len(turns.SHORT))}, set(turns.SHORT))

    def test_short_suites_are_there_and_need_no_packages_of_debian(self):
        self.assertEqual(len(set(turns.SHORT)), len(turns.SHORT))
        self.assertLessEqual(set(turns.SHORT), {suite.name for suite in SUITES} - {suite.name for suite in DEBIAN})

    def test_each_suite_has_a_least_number_of_passes(self):
        self.assertEqual(set(ecosystem.PASSES_MIN), {suite.name for suite in SUITES})

    def test_the_day_changes_at_midnight_in_utc(self):
        midnight = 20_786 * 24 * 60 * 60
        self.assertEqual([turns.turn("", midnight - 0.1), turns.turn("", midnight), turns.turn("", midnight + 86_399)], [20_785, 20_786, 20_786])

    def test_a_number_that_is_asked_for_wins(self):
        self.assertEqual(turns.turn("3", 1e9), 3)
        for word in ("x", "1.5", "etcd3"):
            self.assertRaises(turns.TurnRefused, turns.turn, word, 1e9)

    def test_says_what_it_chose(self):
        with contextlib.redirect_stdout(io.StringIO()) as said:
            name = turns.today("7")
        self.assertEqual(name, turns.whose(7))
        self.assertIn(f"turn 7, as asked for: {name}, of ", said.getvalue())
        with contextlib.redirect_stdout(io.StringIO()) as said, mock.patch("time.time", return_value=20_785.5 * 86_400):
            name = turns.today("")
        self.assertIn(f"turn 20785, by the day: {name}, of ", said.getvalue())


class Runs(unittest.TestCase):
    """The command, on suites that are not there."""

    def main(self, *names, prepare=None, ran=None, environment=None):
        """What the command exits with, and what it printed."""
        suite = Suite("etcd3gw", "a suite", "1", "", prepare or (lambda folder: None), lambda place: {})
        with (
            tempfile.TemporaryDirectory() as folder,
            mock.patch.dict(os.environ, {"CAIRN_CACHE_DIR": folder, "UNPROVED": f"{folder}/unproved", "TURN": "", "CI": ""} | (environment or {})),
            mock.patch.object(ecosystem, "SUITES", [suite]),
            mock.patch.object(ecosystem, "programs", lambda: {server: Path(folder) for server in ecosystem.SERVERS}),
            mock.patch.object(turns, "SHORT", (suite.name,)),
            mock.patch.object(ecosystem, "run", ran) if ran else contextlib.nullcontext(),
            contextlib.redirect_stdout(io.StringIO()) as said,
            contextlib.redirect_stderr(said),
        ):
            code = ecosystem.main(list(names))
            done = list(Path(folder).glob("**/done"))
            unproved = Path(folder, "unproved")
            return code, said.getvalue() + (unproved.read_text() if unproved.exists() else ""), done

    @mock.patch("os.geteuid", lambda: 0)
    def test_a_suite_that_cannot_be_fetched_fails_and_is_fetched_anew(self):
        def prepare(folder):
            raise SuiteFailed("`pip download`: exit 1")

        code, said, done = self.main("--turn", prepare=prepare)
        self.assertEqual((code, done), (1, []))
        self.assertIn("etcd3gw: `pip download`: exit 1\nsuites: 0 passed, 1 failed: etcd3gw\n", said)

    @mock.patch("os.geteuid", lambda: 0)
    def test_the_turn_is_tried_twice_and_all_others_once(self):
        for names, tries in ((["--turn"], 2), (["etcd3gw"], 1)):
            ran = mock.Mock(side_effect=SuiteFailed("starved"))
            self.assertEqual(self.main(*names, ran=ran)[0], 1)
            self.assertEqual(ran.call_count, tries)

    @mock.patch("os.geteuid", lambda: 0)
    def test_the_second_try_of_the_turn_counts(self):
        whole = {str(number): PASSED for number in range(39)}
        code, said, _ = self.main("--turn", ran=mock.Mock(side_effect=[whole, whole | {"0": FAILED}, whole, whole]))
        self.assertEqual(code, 0)
        self.assertIn("passes on etcd, not on cairn: 0", said)

    @mock.patch("os.geteuid", lambda: 0)
    def test_what_a_failed_try_left_is_kept(self):
        whole = {str(number): PASSED for number in range(39)}
        outcomes = [whole, whole | {"0": FAILED}, whole, whole]
        kept = []

        def ran(suite, server, folders):
            kept.append(sorted(file.read_text() for file in ecosystem.cache().glob("runs/etcd3gw-failed-1/*/output")))
            folder = ecosystem.runs(suite) / server
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "output").write_text(f"{server} {len(kept)}")
            return outcomes[len(kept) - 1]

        code, said, _ = self.main("--turn", ran=ran)
        self.assertEqual(code, 0)
        self.assertEqual(kept, [[], [], ["cairn 2", "etcd 1"], ["cairn 2", "etcd 1"]])
        self.assertIn("runs/etcd3gw-failed-1\n", said)

    @mock.patch("os.geteuid", lambda: 0)
    def test_a_suite_of_which_too_little_passes_fails(self):
        code, said, _ = self.main("--turn", ran=lambda *_: {"a": PASSED})
        self.assertEqual(code, 1)
        self.assertIn("1 passed on etcd and 1 passed on cairn; on one of them 39 should pass", said)

    @mock.patch("os.geteuid", lambda: 0)
    def test_the_suite_whose_turn_it_is_passes(self):
        code, said, _ = self.main("--turn", ran=lambda *_: {str(number): PASSED for number in range(39)}, environment={"TURN": "5"})
        self.assertEqual(code, 0)
        self.assertIn("turn 5, as asked for: etcd3gw", said)
        self.assertIn("suites: 1 passed, 0 failed\n", said)

    @mock.patch("os.geteuid", lambda: 1000)
    def test_without_root_it_fails_in_ci_and_is_told_of_elsewhere(self):
        for ci, code in (("1", 1), ("", 0)):
            got, said, _ = self.main("--turn", environment={"CI": ci})
            self.assertEqual(got, code)
            self.assertIn("ecosystem: needs root\n", said)

    def test_what_is_not_there_is_refused(self):
        self.assertEqual(self.main("nosuch")[0], 2)
        self.assertEqual(self.main("--turn", environment={"TURN": "x"})[0], 2)


if __name__ == "__main__":
    unittest.main()
