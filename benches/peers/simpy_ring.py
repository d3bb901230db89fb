"""The traffic of a ring all-reduce in SimPy, written the straightforward way.

One process per rank, a bounded store per queue, a resource per link, a process per message in flight:
the same work the emulator's `ring` benchmark does (posted sends, credits, link occupancy, slot
accounting). Prints one line of JSON: `python benches/peers/simpy_ring.py [ranks] [rounds]`.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Generator
from typing import Any

import simpy

LATENCY_PS = 500_000
PS_PER_BYTE = 20
CHUNK_BYTES = 1024
SLOTS = 4

Process = Generator[Any, Any, None]


def deliver(env: simpy.Environment, link: simpy.Resource, slots: simpy.Store) -> Process:
    """Carries one message over its link into the receiver's slot."""
    with link.request() as turn:
        yield turn
        yield env.timeout(CHUNK_BYTES * PS_PER_BYTE)
    yield env.timeout(LATENCY_PS)
    yield slots.put(None)


def rank(
    env: simpy.Environment,
    rounds: int,
    link: simpy.Resource,
    outbox: simpy.Store,
    inbox: simpy.Store,
    credits_out: simpy.Container,
    credits_in: simpy.Container,
) -> Process:
    """Sends to the right, receives from the left, `rounds` times."""
    for _ in range(rounds):
        yield credits_out.get(1)
        env.process(deliver(env, link, outbox))
        yield inbox.get()
        yield credits_in.put(1)


def main() -> None:
    """Runs the model and prints its message rate."""
    ranks = int(sys.argv[1]) if len(sys.argv) > 1 else 128
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 2 * (ranks - 1)
    env = simpy.Environment()
    links = [simpy.Resource(env) for _ in range(ranks)]
    queues = [simpy.Store(env, SLOTS) for _ in range(ranks)]
    credits = [simpy.Container(env, SLOTS, SLOTS) for _ in range(ranks)]
    for r in range(ranks):
        left = (r - 1) % ranks
        env.process(rank(env, rounds, links[r], queues[r], queues[left], credits[r], credits[left]))
    start = time.perf_counter()
    env.run()
    seconds = time.perf_counter() - start
    messages = ranks * rounds
    print(
        json.dumps(
            {
                "case": "simpy",
                "ranks": ranks,
                "messages": messages,
                "simulated_ps": env.now,
                "seconds": round(seconds, 4),
                "messages_per_s": round(messages / seconds),
            }
        )
    )


if __name__ == "__main__":
    main()
