"""`mscclpp.CommGroup`: ranks that find each other by an address, or that torch has brought together."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ahbm.errors import DistributedError
from ahbm.front.marshal import Member
from ahbm.mscclpp.environment import ranks_per_node
from ahbm.mscclpp.refused import refuse

if TYPE_CHECKING:
    from ahbm.ranks.groups import ProcessGroup
    from ahbm.torch.place import Place


class Communicator:
    """A group of ranks, and this rank's place in it."""

    def __init__(self, place: Place, group: ProcessGroup) -> None:
        self.place = place
        self.group = group
        self.rank = group.rank_of(place.rank)


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
                told = f"CommGroup: interfaceIpPortTrio {interfaceIpPortTrio!r} is not interface:address:port"
                raise DistributedError("AHBM-X131", told)
            from ahbm.torch.addresses import meet

            place, group = meet(host, int(port), rank, size)
        else:
            raise DistributedError(
                "AHBM-X131", "CommGroup: no ranks", hint="torch_group=, or interfaceIpPortTrio= with rank and size"
            )
        self.communicator = Communicator(place, group)
        self.my_rank = self.communicator.rank
        self.nranks = group.size()
        self.nranks_per_node = ranks_per_node(self.nranks)
        self.nranks_per_ipc_domain = self.nranks_per_node

    def barrier(self) -> None:
        """Returns when all ranks have called."""
        comm = self.communicator
        comm.place.wait(comm.place.submit(Member(comm.group, comm.rank).barrier()), None)

    def __getattr__(self, name: str) -> Any:
        if name.startswith(("make_", "register_", "send", "recv")):
            refuse(f"CommGroup.{name}")
        raise AttributeError(f"CommGroup has no attribute {name!r}")
