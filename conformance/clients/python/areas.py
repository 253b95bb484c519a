"""What an application does with the package etcd3, one function per area."""

import os
import threading
import time

import etcd3
import grpc
from etcd3 import etcdrpc


def equal(got, want):
    assert got == want, f"{got!r}, not {want!r}"


def refuses(call, *texts):
    """The call must fail with one of the texts."""
    try:
        call()
    except Exception as error:
        assert any(text in f"{error!r} {error.__cause__!r}" for text in texts), repr(error)
    else:
        raise AssertionError(f"no refusal with {texts}")


def kv(connect):
    with connect() as client:
        client.put("py/kv/a", "1")
        client.put("py/kv/b", b"\x00\xff")
        client.put("py/kv/a", "2")
        value, meta = client.get("py/kv/a")
        equal((value, meta.version), (b"2", 2))
        equal(client.get("py/kv/none"), (None, None))
        equal([m.key for _, m in client.get_prefix("py/kv/", sort_order="descend", sort_target="key")], [b"py/kv/b", b"py/kv/a"])
        equal([v for v, _ in client.get_range("py/kv/b", "py/kv/c")], [b"\x00\xff"])
        equal(client.put("py/kv/a", "3", prev_kv=True).prev_kv.value, b"2")
        equal(client.delete("py/kv/a"), True)
        equal(client.delete("py/kv/a"), False)
        client.put("py/kv/big", b"x" * 1_000_000)
        equal(len(client.get("py/kv/big")[0]), 1_000_000)
        equal(client.delete_prefix("py/kv/").deleted, 2)
        revision = client.put("py/kv/a", "4").header.revision
        client.compact(revision)
        refuses(lambda: client.compact(revision - 1), "required revision has been compacted")
        equal([m.name for m in client.members], ["default"])
        equal(client.status().raft_term > 0, True)


def txn(connect):
    with connect() as client:
        on = client.transactions
        taken, _ = client.transaction(
            compare=[on.version("py/txn/a") == 0], success=[on.put("py/txn/a", "1")], failure=[on.get("py/txn/a")])
        equal(taken, True)
        taken, answers = client.transaction(
            compare=[on.version("py/txn/a") == 0], success=[on.put("py/txn/a", "2")], failure=[on.get("py/txn/a")])
        equal((taken, answers[0][0][0]), (False, b"1"))
        taken, answers = client.transaction(
            compare=[on.value("py/txn/a") == "1", on.create("py/txn/a") > 0],
            success=[
                on.delete("py/txn/a"), on.put("py/txn/b", "3"), on.get("py/txn/b"),
                # All comparisons come before the first write.
                on.txn([on.version("py/txn/b") == 0], [on.put("py/txn/c", "4")], []),
            ],
            failure=[])
        equal((taken, answers[2][0][0], client.get("py/txn/c")[0]), (True, b"3", b"4"))
        equal(client.replace("py/txn/c", "4", "5"), True)
        equal(client.replace("py/txn/c", "4", "6"), False)
        refuses(lambda: client.transaction([], [on.put("py/txn/d", "1"), on.put("py/txn/d", "2")], []), "duplicate key given in txn request")


def watch(connect):
    with connect() as client:
        before = client.put("py/watch/a", "0").header.revision
        events, cancel = client.watch_prefix("py/watch/", start_revision=before, prev_kv=True)
        client.put("py/watch/b", "1")
        client.delete("py/watch/a")
        got = [next(events) for _ in range(3)]
        equal([type(event).__name__ for event in got], ["PutEvent", "PutEvent", "DeleteEvent"])
        equal([event.key for event in got], [b"py/watch/a", b"py/watch/b", b"py/watch/a"])
        equal(got[2].prev_value, b"0")
        cancel()

        seen = threading.Event()
        watch_id = client.add_watch_callback("py/watch/c", lambda response: seen.set())
        client.put("py/watch/c", "2")
        equal(seen.wait(10), True)
        client.cancel_watch(watch_id)

        client.compact(client.put("py/watch/d", "1").header.revision)
        events, _ = client.watch("py/watch/d", start_revision=1)
        refuses(lambda: next(events), "RevisionCompactedError")


def lease(connect):
    with connect() as client:
        kept = client.lease(60)
        client.put("py/lease/a", "1", lease=kept)
        equal(kept.granted_ttl, 60)
        equal(kept.keys, [b"py/lease/a"])
        equal(0 < kept.remaining_ttl <= 60, True)
        equal([answer.TTL for answer in kept.refresh()], [60])
        kept.revoke()
        equal(client.get("py/lease/a"), (None, None))
        refuses(lambda: client.put("py/lease/a", "1", lease=kept), "requested lease not found")

        short = client.lease(2)
        client.put("py/lease/b", "1", lease=short)
        deadline = time.monotonic() + 20
        while client.get("py/lease/b")[0] is not None and time.monotonic() < deadline:
            time.sleep(0.2)
        equal(client.get("py/lease/b"), (None, None))


def lock(connect):
    """The package's lock: a key that a transaction creates under a lease."""
    with connect() as client:
        inside = total = 0

        def work():
            nonlocal inside, total
            with connect() as own:
                for _ in range(5):
                    held = own.lock("py", ttl=30)
                    # The package watches the key only after a transaction that found it: it waits in vain for a release in between.
                    while not held.acquire(timeout=1):
                        pass
                    assert held.is_acquired()
                    inside += 1
                    equal(inside, 1)
                    time.sleep(0.01)
                    inside -= 1
                    total += 1
                    held.release()

        workers = [threading.Thread(target=work) for _ in range(3)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join(120)
        equal((inside, total), (0, 15))
        first, second = client.lock("py", ttl=2), client.lock("py", ttl=30)
        equal(first.acquire(), True)
        equal(second.acquire(timeout=0.5), False)
        # Nobody refreshes the first: the second gets it when the lease is over.
        equal(second.acquire(timeout=20), True)
        second.release()


def auth(connect):
    """Users and roles through the package's stubs, which it wraps no further."""
    with connect() as client:
        stub = etcdrpc.AuthStub(client.channel)
        user, role = etcdrpc.AuthUserAddRequest, etcdrpc.AuthRoleAddRequest
        stub.UserAdd(user(name="root", password="secret"))
        stub.RoleAdd(role(name="root"))
        stub.UserGrantRole(etcdrpc.AuthUserGrantRoleRequest(user="root", role="root"))
        stub.UserAdd(user(name="alice", password="wonder"))
        stub.RoleAdd(role(name="reader"))
        stub.UserGrantRole(etcdrpc.AuthUserGrantRoleRequest(user="alice", role="reader"))
        permission = {"permType": 2, "key": b"py/auth/", "range_end": b"py/auth0"}
        grant = etcdrpc.AuthRoleGrantPermissionRequest(name="reader")
        for field, value in permission.items():
            setattr(grant.perm, field, value)
        stub.RoleGrantPermission(grant)
        stub.AuthEnable(etcdrpc.AuthEnableRequest())
    try:
        # A certificate without a common name stands for a user without a name, whom nobody knows.
        with connect() as nobody:
            refuses(lambda: nobody.get("py/auth/a"), "permission denied")
        refuses(lambda: connect(user="alice", password="wrong"), "authentication failed, invalid user ID or password")
        with connect(user="alice", password="wonder") as alice:
            alice.put("py/auth/a", "1")
            equal(alice.get("py/auth/a")[0], b"1")
            refuses(lambda: alice.get("py/other"), "permission denied")
            refuses(lambda: list(alice.get_all()), "permission denied")
            refuses(lambda: alice.transaction([], [alice.transactions.put("py/other", "1")], []), "permission denied")
            events, cancel = alice.watch("py/auth/b")
            alice.put("py/auth/b", "2")
            equal(next(events).value, b"2")
            cancel()
    finally:
        with connect(user="root", password="secret") as root:
            etcdrpc.AuthStub(root.channel).AuthDisable(etcdrpc.AuthDisableRequest(), metadata=root.metadata)
    with connect() as nobody:
        equal(nobody.get("py/auth/a")[0], b"1")


def follow(connect):
    """Prints each event below follow/, until the one that ends it. The package does not resume a watch that its connection takes along."""
    revision = int(os.environ["FROM"])
    while True:
        try:
            with connect() as client:
                events, _ = client.watch_prefix("follow/", start_revision=revision)
                for event in events:
                    print("event", event.mod_revision, event.key.decode(), flush=True)
                    if event.key == b"follow/end":
                        return
                    revision = event.mod_revision + 1
        except (etcd3.exceptions.ConnectionFailedError, grpc.RpcError) as lost:
            print("again", repr(lost).replace("\n", " "), flush=True)
            time.sleep(0.1)
