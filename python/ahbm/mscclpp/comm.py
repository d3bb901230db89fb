"""`mscclpp.CommGroup`: ranks that find each other by an address, or that torch has brought together."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ahbm.base.arguments import shown, whole
from ahbm.base.arrays import Flat
from ahbm.errors import DistributedError
from ahbm.front.marshal import Member
from ahbm.mscclpp.environment import ranks_per_node
from ahbm.mscclpp.refused import refuse

if TYPE_CHECKING:
    from ahbm.ranks.groups import ProcessGroup
    from ahbm.ranks.seat import Call
    from ahbm.ranks.ticket import Ticket
    from ahbm.torch.place import Place


class Communicator:
    """A group of ranks, and this rank's place in it."""

    def __init__(self, place: Place, group: ProcessGroup) -> None:
        self.place = place
        self.group = group
        self.rank = group.rank_of(place.rank)


def _plain(tensor: object) -> NDArray[Any]:
    if not isinstance(tensor, np.ndarray) or tensor.dtype.hasobject:
        raise DistributedError("AHBM-X130", f"CommGroup: {shown(tensor)} is no NumPy array of plain elements")
    return tensor


class CommGroup:
    """The ranks of a job: by `interfaceIpPortTrio` ("eth0:10.0.0.1:50000"), or of a `torch_group` on this backend.

    Blocks until all ranks have come. Raises UnsupportedError (AHBM-U180) for `mpi_comm`, DistributedError (AHBM-X131)
    for wrong arguments, and as `init_process_group`.
    """

    def __init__(
        self,
        mpi_comm: object = None,
        torch_group: Any = None,
        interfaceIpPortTrio: str = "",
        rank: int | None = None,
        size: int | None = None,
    ) -> None:
        if mpi_comm is not None:
            refuse("CommGroup(mpi_comm=...)", "torch_group=, or interfaceIpPortTrio= with rank and size")
        if torch_group is not None:
            from ahbm.torch.addresses import place_of

            place, group = place_of(torch_group)
        elif interfaceIpPortTrio:
            if rank is None or size is None or not 0 <= rank < size:
                raise DistributedError("AHBM-X131", f"CommGroup: rank {rank} of {size}", hint="pass rank and size")
            # An address of IPv6 has colons of its own.
            host, _, port = interfaceIpPortTrio.partition(":")[2].rpartition(":")
            if not host or not port.isdecimal() or not 0 < int(port) < 65536:
                message = f"CommGroup: interfaceIpPortTrio {interfaceIpPortTrio!r} is not interface:address:port"
                raise DistributedError("AHBM-X131", message)
            from ahbm.torch.addresses import meet

            place, group = meet(host, int(port), rank, size)
        else:
            raise DistributedError(
                "AHBM-X131", "CommGroup: no ranks", hint="torch_group=, or interfaceIpPortTrio= with rank and size"
            )
        self.communicator = Communicator(place, group)
        # Messages of torch's own in the same group have tags of their own.
        self._mail = place.group(f"messages of {group.name}", group.ranks)
        self.my_rank = self.communicator.rank
        self.nranks = group.size()
        self.nranks_per_node = ranks_per_node(self.nranks)
        self.nranks_per_ipc_domain = self.nranks_per_node

    def barrier(self) -> None:
        """Returns when all ranks have called."""
        comm = self.communicator
        comm.place.wait(comm.place.submit(Member(comm.group, comm.rank).barrier()), None)

    def send(self, tensor: NDArray[Any], peer: int, tag: int) -> None:
        """Sends the bytes of a NumPy array to group rank `peer`, which receives as many with the same tag.

        Returns at once: the bytes are copied. Raises DistributedError: AHBM-X130 for what is no array of plain
        elements, AHBM-X131 for a rank that is no peer; ConfigError (AHBM-C129) for a peer or a tag that is no number.
        """
        payload = np.frombuffer(bytearray(_plain(tensor).tobytes()), np.uint8)
        self._post(Member.send, payload, peer, tag)

    def recv(self, tensor: NDArray[Any], peer: int, tag: int) -> None:
        """Fills a NumPy array with the bytes that group rank `peer` sends with the same tag.

        Raises as `send`; AHBM-X130 for an array that cannot be written, AHBM-X110 where the sizes differ.
        """
        array = _plain(tensor)
        if not array.flags.writeable:
            raise DistributedError("AHBM-X130", "CommGroup.recv: the array is read-only")
        room = np.empty(array.nbytes, np.uint8)
        self.communicator.place.wait(self._post(Member.recv, room, peer, tag), None)
        array[...] = room.view(array.dtype).reshape(array.shape)

    def _post(self, kind: Callable[..., Call], flat: NDArray[np.uint8], peer: int, tag: int) -> Ticket:
        comm = self.communicator
        peer, tag = (whole(name, value, -(2**31), 2**31 - 1) for name, value in (("peer", peer), ("tag", tag)))
        if not 0 <= peer < self.nranks or peer == self.my_rank:
            raise DistributedError("AHBM-X131", f"CommGroup: peer {peer} of rank {self.my_rank} of {self.nranks}")
        member = Member(self._mail, comm.rank)
        return comm.place.submit(kind(member, Flat(None, flat, "u8"), comm.group.ranks[peer], tag))

    def __getattr__(self, name: str) -> Any:
        if name.startswith(("make_", "register_", "bootstrap", "my_ib_device")):
            refuse(f"CommGroup.{name}")
        raise AttributeError(f"CommGroup has no attribute {name!r}")
