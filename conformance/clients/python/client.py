"""The package etcd3 against a server; `clients_test.go` says how it is called."""

import os
import sys

import etcd3

from areas import auth, follow, kv, lease, lock, txn, watch

AREAS = {"kv": kv, "txn": txn, "watch": watch, "lease": lease, "lock": lock, "auth": auth, "follow": follow}


def connect(**credentials):
    """A client of the server under test, over TLS if the environment names files."""
    host, port = os.environ["ENDPOINT"].rsplit(":", 1)
    if "CA" in os.environ:
        credentials.update(ca_cert=os.environ["CA"], cert_cert=os.environ["CERT"], cert_key=os.environ["KEY"])
    return etcd3.client(host=host, port=int(port), timeout=20, **credentials)


def main():
    failed = False
    for area in sys.argv[1:]:
        try:
            AREAS[area](connect)
            print("ok", area, flush=True)
        except Exception as error:  # whatever it is, the next area is tried
            failed = True
            print(f"failed {area}: {error!r}", flush=True)
    return failed


if __name__ == "__main__":
    sys.exit(main())
