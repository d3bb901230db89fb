"""All-reduce in three rings: reduce-scatter inside a node, all-reduce on each rail between nodes, all-gather inside."""

from __future__ import annotations

COLLECTIVE = "all_reduce"


def kernel_args(world_size, n_elem, *, cube_w=4, cube_h=4, op="sum", dtype="f16", node_size=1):
    return (n_elem, world_size, op, dtype, node_size)


def kernel(t_ptr, n_elem, n, op, dtype, size, sip_rank, sip_topo_kind, sip_topo_w, sip_topo_h, *, tl):
    if tl.program_id(axis=0) != 0:
        return
    element, nodes = tl.itemsize(dtype), n // size
    node, local = sip_rank // size, sip_rank % size

    def part(first, length, c, count):
        """First element and length of a part of a region."""
        start = first + length * (c % count) // count
        return start, first + length * (c % count + 1) // count - start

    def load(first, length):
        return tl.load(t_ptr + first * element, shape=(length,), dtype=dtype) if length else None

    def shift(outgoing, length, right, left):
        if outgoing is not None:
            tl.send(dir=right, src=outgoing)
        return tl.recv(dir=left, shape=(length,), dtype=dtype) if length else None

    def scatter(me, count, right, left, first, length):
        current = load(*part(first, length, me, count))
        for step in range(1, count):
            at = part(first, length, me - step, count)
            arrived, mine = shift(current, at[1], right, left), load(*at)
            current = None if arrived is None or mine is None else tl.combine(arrived, mine, op)
        at = part(first, length, me + 1, count)
        if current is not None:
            tl.store(t_ptr + at[0] * element, current)
        return at

    def gather(me, count, right, left, first, length):
        current = load(*part(first, length, me + 1, count))
        for step in range(count - 1):
            at = part(first, length, me - step, count)
            current = shift(current, at[1], right, left)
            if current is not None:
                tl.store(t_ptr + at[0] * element, current)

    inside = [tl.peer(sip=node * size + (local + by) % size, cube=0) for by in (1, -1)]
    rail = [tl.peer(sip=(node + by) % nodes * size + local, cube=0) for by in (1, -1)]
    first, length = scatter(local, size, *inside, 0, n_elem)
    scatter(node, nodes, *rail, first, length)
    gather(node, nodes, *rail, first, length)
    gather(local, size, *inside, 0, n_elem)
