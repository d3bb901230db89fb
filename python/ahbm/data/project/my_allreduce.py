# algorithms/my_allreduce.py
def kernel_args(world_size, n_elem, *, cube_w=4, cube_h=4, dtype="f16"):
    return (n_elem, world_size, dtype)


def kernel(t_ptr, n_elem, n_sips, dtype, sip_rank, sip_topo_kind, sip_topo_w, sip_topo_h, *, tl):
    right, left = (tl.peer(sip=(sip_rank + step) % n_sips) for step in (1, -1))
    acc = current = tl.load(t_ptr, shape=(n_elem,), dtype=dtype)
    for _ in range(n_sips - 1):
        tl.send(dir=right, src=current)
        current = tl.recv(dir=left, shape=(n_elem,), dtype=dtype)
        acc = acc + current
    tl.store(t_ptr, acc)
