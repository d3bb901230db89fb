"""The traffic of a ring all-reduce in SimGrid, written the straightforward way.

One actor per rank and one link per neighbour; a rank keeps at most as many messages in flight as a queue has slots.
SimGrid shares bandwidth between flows instead of reserving links, so its times are its own; the rate is that of the
same messages. Prints one line of JSON: `python benches/peers/simgrid_ring.py [ranks] [rounds]`. Written for SimGrid's
Python interface 3.32 (Debian's `python3-simgrid`) and later.
"""

from __future__ import annotations

import json
import sys
import time

from simgrid import Actor, Engine, LinkInRoute, Mailbox, NetZone

LATENCY = "500ns"
BANDWIDTH = "50GBps"
CHUNK_BYTES = 1024
SLOTS = 4


def rank(index: int, ranks: int, rounds: int) -> None:
    """Sends to the right, receives from the left, `rounds` times."""
    right, left = Mailbox.by_name(str((index + 1) % ranks)), Mailbox.by_name(str(index))
    flying = []
    for _ in range(rounds):
        if len(flying) == SLOTS:
            flying.pop(0).wait()
        flying.append(right.put_async(index, CHUNK_BYTES))
        left.get()
    for message in flying:
        message.wait()


def main() -> None:
    """Runs the model and prints its message rate."""
    given = [int(text) for text in sys.argv[1:] if text.isdigit()]
    ranks = given[0] if given else 128
    rounds = given[1] if len(given) > 1 else 2 * (ranks - 1)
    engine = Engine(["simgrid", "--log=root.thres:critical"])
    zone = NetZone.create_full_zone("ring")
    hosts = [zone.create_host(str(index), "1Gf") for index in range(ranks)]
    for index, host in enumerate(hosts):
        link = zone.create_link(f"from {index}", BANDWIDTH)
        link.set_latency(LATENCY)
        link.seal()
        ends = host.netpoint, hosts[(index + 1) % ranks].netpoint
        zone.add_route(*ends, None, None, [LinkInRoute(link)], False)
    zone.seal()
    for index, host in enumerate(hosts):
        Actor.create(f"rank {index}", host, rank, index, ranks, rounds)
    start = time.perf_counter()
    engine.run()
    seconds = time.perf_counter() - start
    messages = ranks * rounds
    found = {
        "case": "simgrid",
        "ranks": ranks,
        "messages": messages,
        "simulated_ps": round(Engine.clock * 1e12),
        "seconds": round(seconds, 4),
        "messages_per_s": round(messages / seconds),
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main()
