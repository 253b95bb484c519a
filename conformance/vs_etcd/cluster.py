"""Three members of one binary on this machine, measured as one server: what they use is counted together."""

import time
from pathlib import Path

import accounting
import client
import proto
from server import Server, ServerFailed

_STATUS = "/etcdserverpb.Maintenance/Status"


class Cluster:
    """Members on ports of their own. Loads go to the members that `target` names: the leader, one follower, or all."""

    def __init__(self, name: str, binary: Path, work: Path, port: int, size: int = 3):
        self.name = name
        founders = {f"{name}-{number}": port + 2 * number + 1 for number in range(size)}
        self.members = [
            Server(member, binary, work, peer_port - 1, founders) for member, peer_port in founders.items()
        ]
        self.target = "leader"

    def start(self, fresh: bool = False) -> None:
        """Starts all members and waits until each answers linearizable reads."""
        started = [member.launch(fresh) for member in self.members]
        for member, at in zip(self.members, started):
            member.wait(at)

    def stop(self) -> None:
        """Ends the members, followers first, so that nobody is elected meanwhile."""
        failed = None
        for member in self.members:
            try:
                member.stop()
            except ServerFailed as failure:
                failed = failure
        if failed is not None:
            raise failed

    def leader(self) -> Server:
        """The member that leads."""
        until = time.monotonic() + 30
        while time.monotonic() < until:
            for member in self.members:
                try:
                    with client.Client(member.port, timeout_s=5) as control:
                        status = dict(proto.fields(control.call(_STATUS, b"")))
                except (OSError, client.CallFailed, ServerFailed):
                    continue
                own = dict(proto.fields(status[1])).get(2, 0)
                if own and status.get(4, 0) == own:
                    return member
            time.sleep(0.01)
        raise ServerFailed(f"{self.name} has no leader")

    @property
    def ports(self) -> list[int]:
        """Where loads are sent."""
        leader = self.leader()
        if self.target == "leader":
            return [leader.port]
        followers = [member.port for member in self.members if member is not leader]
        return followers[:1] if self.target == "follower" else [leader.port, *followers]

    @property
    def page_ports(self) -> list[int]:
        """Where the metrics of those members are read."""
        return self.ports

    @property
    def port(self) -> int:
        """Where questions are asked."""
        return self.ports[0]

    def usage(self) -> accounting.Usage:
        """Counters of all members and of the machine."""
        each = [member.usage() for member in self.members]
        return accounting.Usage(
            sum(usage.cpu_s for usage in each),
            sum(usage.switches_voluntary for usage in each),
            sum(usage.switches_forced for usage in each),
            each[-1].machine_idle_s,
            each[-1].machine_total_s,
        )
