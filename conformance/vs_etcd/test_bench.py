"""Unit tests of the benchmark's own arithmetic: `python3 -m unittest discover conformance/vs_etcd`."""

import sys
import tempfile
import unittest
from pathlib import Path

import overload
import proto
import report
import tails
import threads
from load import Sample
from probe import Ended
from results import Results
from rows import Row
from server import Server


def put_response(revision: int) -> bytes:
    """A PutResponse as a server would send it."""
    header = b"".join(proto.number_field(tag, n) for tag, n in ((1, 1 << 60), (2, 1 << 55), (3, revision), (4, 2)))
    return proto.bytes_field(1, header)


class Protobuf(unittest.TestCase):
    def test_fields_of_what_was_written(self):
        message = proto.range_request(b"k", b"l", limit=300, serializable=True)
        self.assertEqual(list(proto.fields(message)), [(1, b"k"), (2, b"l"), (3, 300), (7, 1)])

    def test_revision(self):
        self.assertEqual(proto.header_revision(put_response(12_345)), 12_345)

    def test_bytes_of_all_answers_across_the_lengths_of_a_revision(self):
        for first, last in ((2, 2), (100, 130), (2, 20_000), (16_380, 16_390), (2_097_150, 2_097_160)):
            due = sum(len(proto.grpc_frame(put_response(revision))) for revision in range(first, last + 1))
            for example in (put_response(2), put_response(70_000)):
                self.assertEqual(proto.put_response_bytes([(example, last - first + 1)], first, last), due)


class Bases(unittest.TestCase):
    def test_three_members_are_held_against_two_round_trips_and_their_syncs(self):
        results, row = Results(), Row("put-3-one-client", "r", None)
        results.add(row, 0, "cairn", Sample(1, 2_000, 1, 1, 0))
        base = report.BASES[row.name]
        results.add_value(base.round_trip, 0, "machine", 10)
        results.add_value(base.fdatasync, 0, "machine", 180)
        (table,) = [table for table in report.tables(results) if table.title == base.title]
        texts = [[cell.text for cell in line] for line in table.lines]
        self.assertEqual([line[1:] for line in texts], [["20.0", ""], ["180.0", ""], ["200.0", "1.00x"], ["500.0", "2.50x"]])


class Stores(unittest.TestCase):
    def test_both_kinds_of_restart_and_memory_at_once_and_settled(self):
        results = Results(about={"keys": 1_000, "settle": 150.0})
        values = {"restart_s": (2, 1), "killed_restart_s": (4, 1), "memory_after_list_mb": (90, 30), "memory_settled_mb": (60, 30)}
        for name, both in values.items():
            for server, value in zip(("etcd", "cairn"), both):
                results.add_value(name, 0, server, value)
        (table,) = [table for table in report.tables(results) if table.title == "The full store"]
        texts = [[cell.text for cell in line][:4] for line in table.lines]
        self.assertEqual(
            texts,
            [
                ["restart with 1,000 keys, s", "2.00", "1.00", "0.50x"],
                ["the same after SIGKILL, 1,000 keys, s", "4.00", "1.00", "0.25x"],
                ["memory after one list of all, MB", "90", "30", "0.33x"],
                ["memory 150 s after that, MB", "60", "30", "0.50x"],
            ],
        )


class Ports(unittest.TestCase):
    def test_pages_have_a_port_of_their_own_where_a_server_is_split(self):
        with tempfile.TemporaryDirectory() as work:
            server = Server("etcd", Path(sys.executable), Path(work), 100, certificate=(Path("cert"), Path("key")))
            self.assertEqual(server.page_ports, [100])
            self.assertNotIn("listen-client-http-urls", server.flags())
            server.is_split = True
            flags = server.flags()
            self.assertEqual(flags["listen-client-http-urls"], f"http://127.0.0.1:{server.page_ports[0]}")
            self.assertEqual(flags["listen-client-urls"], "http://127.0.0.1:100,https://127.0.0.1:116")
            used = [url.rpartition(":")[2] for flag in flags for url in str(flags[flag]).split(",") if flag.startswith("listen")]
            self.assertEqual(len(used), len(set(used)))


class Ratios(unittest.TestCase):
    def test_the_ratio_is_the_median_over_pairs(self):
        results, row = Results(), Row("r", "r", None)
        for pair, (etcd, cairn) in enumerate(((10, 30), (10, 20), (1, 9))):
            results.add(row, pair, "etcd", Sample(1, etcd, 1, 1, 0))
            results.add(row, pair, "cairn", Sample(1, cairn, 1, 1, 0))
        results.add(row, 3, "cairn", Sample(1, 99, 1, 1, 0))  # its partner did not count
        ratio = results.ratio("r")
        self.assertEqual((ratio.median, ratio.low, ratio.high), (3, 2, 9))

    def test_nothing_measured_is_nothing(self):
        self.assertIsNone(Results().ratio("r"))


class Files(unittest.TestCase):
    def test_files_have_shrunk_when_they_are_small_beside_what_lives(self):
        seen = [{"s": s, "live": 100, "database": database, "log": 60} for s, database in ((0, 900), (2, 150), (4, 90))]
        said = tails._shrunk(seen)
        self.assertIn("the files of the database after 2 s (9.00 at first, 0.90 at last)", said)
        self.assertIn("with the Raft log after 4 s", said)
        self.assertIn("with the Raft log not within 2 s", tails._shrunk(seen[:2]))


class Shares(unittest.TestCase):
    def test_threads_of_one_name_count_together_and_only_what_they_used_meanwhile(self):
        before = {1: ("rpc-0", 5_000), 2: ("apply", 1_000)}
        after = {1: ("rpc-0", 9_000), 2: ("apply", 3_000), 3: ("rpc-1", 6_000)}
        self.assertEqual(threads._used(before, after, puts=2), {"rpc": 5.0, "apply": 1.0})

    def test_times_of_puts(self):
        ended = [Ended(seconds / 1000, False) for seconds in range(1, 102)]
        spread = overload._spread(ended)
        self.assertEqual([round(spread[name]) for name in ("count", "p50", "p99", "max")], [101, 51, 100, 101])
        self.assertEqual(overload._spread([]), {"count": 0})


if __name__ == "__main__":
    unittest.main()
