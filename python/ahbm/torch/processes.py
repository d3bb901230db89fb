"""Ranks as processes, as torchrun and torch.multiprocessing start them: rank 0's holds the world."""

from __future__ import annotations

import atexit
import json
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from multiprocessing import util
from typing import TYPE_CHECKING, Any

import torch.distributed as dist

from ahbm.errors import DistributedError, Site
from ahbm.ranks.blame import call_origin
from ahbm.ranks.setup import Setup
from ahbm.torch.failures import BackendError, as_torchs
from ahbm.torch.place import Place

if TYPE_CHECKING:
    from ahbm.core.emulator import Emulator
    from ahbm.ranks.seat import Seat
    from ahbm.torch.host import Host
    from ahbm.torch.remote import Remote

KEY = "ahbm"
"""The key under which the store of the group has the address at which the ranks meet, and the job's secret."""


class ProcessPlace(Place):
    """A rank that is a process."""

    apart = True

    def __init__(
        self, end: Host | Remote, seat: Seat, rank: int, ranks: Sequence[int], emulator: Callable[[], Emulator]
    ) -> None:
        super().__init__(seat, rank, ranks, emulator)
        self._end: Host | Remote | None = end
        atexit.register(self.leave)
        util.Finalize(self, self.leave, exitpriority=100)  # where a child of multiprocessing ends

    def leave(self) -> None:
        """See `Place`; the host stays until all others have left."""
        end, self._end = self._end, None
        if end is not None:
            self.closed = True
            if self.keeper is not None:
                self.keeper.leaves()
            end.leave()
            if self.keeper is not None:
                self.keeper.left()

    def abort(self) -> None:
        """See `Place`."""
        super().abort()
        if self._end is not None:
            self._end.abort(DistributedError("AHBM-X124", f"rank {self.rank} aborted its process group"))

    def fail(self, error: DistributedError) -> None:
        """See `Place`."""
        if self._end is not None:
            self._end.abort(error)


def _sentence(error: BaseException) -> str:
    return str(error).splitlines()[0]


def _differing(first: Mapping[str, str], mine: Mapping[str, str], rank: int) -> DistributedError | None:
    """AHBM-X110 where rank 0's choices are not those of `rank`."""
    names = sorted(name for name in first.keys() | mine.keys() if first.get(name) != mine.get(name))
    if not names:
        return None
    who = {0: first, rank: mine}
    texts = [f"rank {at} has {', '.join(f'{name} {of.get(name)}' for name in names)}" for at, of in who.items()]
    return DistributedError(
        "AHBM-X110",
        f"init_process_group: the ranks disagree on {', '.join(names)}: {'; '.join(texts)}",
        sites=[Site(text, call_origin()) for text in texts],
        hint="pass the same pg_options, and set the same variables, on every rank",
    )


def open_place(setup: Setup, opts: Any, ranks: Sequence[int]) -> Place:
    """The calling process's place in a world of `ranks`; they find each other through torch's store.

    Raises DistributedError, which is torch's DistBackendError as well: AHBM-X120 and X126 when rank 0 has failed or is
    gone, AHBM-X110 when this rank asks for another setup than rank 0, AHBM-X122 when a rank does not come within the
    timeout, AHBM-X127 when rank 0 is another user's or this rank is there already.
    """
    timeout_s = opts.timeout.total_seconds()
    if opts.group_rank == 0:
        from ahbm.torch.host import Host

        try:
            host = Host(setup, len(ranks), timeout_s)
        except Exception as error:
            opts.store.set(KEY, json.dumps({"error": f"{error}"}))
            raise
        mine = {"address": host.address, "secret": host.secret.hex(), "setup": setup.described()}
        opts.store.set(KEY, json.dumps(mine))
        try:
            host.meet()
        except DistributedError as error:
            raise as_torchs(error) from None
        emulator = host.session.emulator
        return ProcessPlace(host, host.session, 0, ranks, lambda: emulator)
    from ahbm.torch.remote import Remote, lost

    try:
        found = json.loads(opts.store.get(KEY))
        if "error" in found:
            raise BackendError("AHBM-X120", f"rank 0 failed: {found['error']}")
        remote = Remote(opts.group_rank, found["address"], bytes.fromhex(found["secret"]), timeout_s)
    except dist.DistStoreError as error:  # whose text goes on with frames of C++, as the next one's does
        raise BackendError("AHBM-X122", f"rank 0 has not come: {_sentence(error)}") from None
    except DistributedError as error:
        raise as_torchs(error) from None
    except (dist.DistNetworkError, OSError) as error:
        raise as_torchs(lost(_sentence(error))) from None
    if (differing := _differing(found["setup"], setup.described(), opts.group_rank)) is not None:
        remote.abort(differing)
        raise as_torchs(differing)
    return ProcessPlace(remote, remote, opts.group_rank, ranks, cache(setup.emulator))
