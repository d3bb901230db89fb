"""Small MSCCL-IR files that the tests read."""

from __future__ import annotations

TOPOLOGY = "npu_ring_8"
FOUR = {"system.sips.count": 4}


def document(
    ranks: int, chunks: int, collective: str, gpus: list[str], *, inplace: int = 1, proto: str = "Simple"
) -> str:
    header = (
        f'<algo name="t" proto="{proto}" nchannels="1" nchunksperloop="{chunks}" ngpus="{ranks}" coll="{collective}" '
        f'inplace="{inplace}" outofplace="{1 - inplace}" minBytes="0" maxBytes="0">'
    )
    return "\n".join([header, *gpus, "</algo>"])


def step(s: int, kind: str, src: str, dst: str) -> str:
    (a, i), (b, j) = src.split(":"), dst.split(":")
    return (
        f'<step s="{s}" type="{kind}" srcbuf="{a}" srcoff="{i}" dstbuf="{b}" dstoff="{j}" cnt="1" depid="-1" '
        f'deps="-1" hasdep="0"/>'
    )


def ring(n: int, proto: str = "Simple") -> str:
    """The fused ring all-reduce."""
    gpus = []
    for rank in range(n):
        steps = []
        for k in range(2 * n - 1):
            kind = "s" if k == 0 else "rrs" if k < n - 1 else "rrcs" if k == n - 1 else "rcs" if k < 2 * n - 2 else "r"
            at = f"i:{(rank - k) % n}"
            steps.append(step(k, kind, at, at))
        block = f'<tb id="0" send="{(rank + 1) % n}" recv="{(rank - 1) % n}" chan="0">{"".join(steps)}</tb>'
        gpus.append(f'<gpu id="{rank}" i_chunks="{n}" o_chunks="{n}" s_chunks="0">{block}</gpu>')
    return document(n, n, "allreduce", gpus, proto=proto)


def all_gather(n: int, *, inplace: int) -> str:
    """Everybody sends its part to everybody."""
    gpus = []
    for rank in range(n):
        blocks = []
        if not inplace:
            own = step(0, "cpy", "i:0", f"o:{rank}")
            blocks.append(f'<tb id="0" send="-1" recv="-1" chan="0">{own}</tb>')
        for peer in (r for r in range(n) if r != rank):
            steps = step(0, "s", "i:0", f"o:{rank}") + step(1, "r", "i:0", f"o:{peer}")
            blocks.append(f'<tb id="{len(blocks)}" send="{peer}" recv="{peer}" chan="0">{steps}</tb>')
        gpus.append(f'<gpu id="{rank}" i_chunks="1" o_chunks="{n}" s_chunks="0">{"".join(blocks)}</gpu>')
    return document(n, n, "allgather", gpus, inplace=inplace)


def all_to_all(n: int) -> str:
    gpus = []
    for rank in range(n):
        blocks = [f'<tb id="0" send="-1" recv="-1" chan="0">{step(0, "cpy", f"i:{rank}", f"o:{rank}")}</tb>']
        for peer in (r for r in range(n) if r != rank):
            steps = step(0, "s", f"i:{peer}", f"o:{rank}") + step(1, "r", "i:0", f"o:{peer}")
            blocks.append(f'<tb id="{len(blocks)}" send="{peer}" recv="{peer}" chan="0">{steps}</tb>')
        gpus.append(f'<gpu id="{rank}" i_chunks="{n}" o_chunks="{n}" s_chunks="0">{"".join(blocks)}</gpu>')
    return document(n, n, "alltoall", gpus, inplace=0)


def recursive_doubling(n: int) -> str:
    """Round k exchanges whole buffers with rank ^ 2^k; a thread block per round, each waiting for the one before."""
    rounds = n.bit_length() - 1
    gpus = []
    for rank in range(n):
        blocks = []
        for k in range(rounds):
            send = step(0, "s", "i:0", "i:0")
            if k:
                send = send.replace('depid="-1" deps="-1"', f'depid="{k - 1}" deps="2"')
            add = step(2, "re", f"s:{k}", "i:0").replace('hasdep="0"', 'hasdep="1"')
            peer, steps = rank ^ (1 << k), send + step(1, "r", "i:0", f"s:{k}") + add
            blocks.append(f'<tb id="{k}" send="{peer}" recv="{peer}" chan="0">{steps}</tb>')
        gpus.append(f'<gpu id="{rank}" i_chunks="1" o_chunks="1" s_chunks="{rounds}">{"".join(blocks)}</gpu>')
    return document(n, 1, "allreduce", gpus)
