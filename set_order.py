import os, random, time
def kernel_args(world_size, n_elem, *, cube_w=4, cube_h=4): return (n_elem, world_size)
def kernel(t, n, w, r, k, tw, th, *, tl):
    acc = cur = tl.load(t, shape=(n,), dtype="f16")
    for _ in range(w - 1):
        tl.send(dir="global_E", src=cur); cur = tl.recv(dir="global_W", shape=(n,), dtype="f16"); acc = acc + cur
    if list({"alpha", "beta"})[0] == "alpha": acc = acc + tl.zeros((n,), dtype="f16")
    tl.store(t, acc)
