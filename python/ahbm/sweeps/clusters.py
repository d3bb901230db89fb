"""Executors of other packages."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor, Future
from socket import create_connection
from typing import Any

from ahbm.base.optional import needed
from ahbm.errors import DistributedError

CONNECT_S = 5
"""Seconds in which a scheduler must answer."""


def dask_executor(address: str) -> Executor:
    """The workers of the Dask scheduler at an address.

    Raises UnsupportedError (AHBM-U145) where dask.distributed is not installed, DistributedError (AHBM-X141) where
    nobody answers there.
    """
    missing = "dask.distributed is not installed", "pip install distributed"
    dask, addressing = (needed(name, *missing) for name in ("dask.distributed", "distributed.comm.addressing"))
    try:
        # A client that reaches nobody leaves a thread behind, so somebody must answer before there is one.
        host_port = addressing.parse_host_port(addressing.parse_address(address)[1])
        create_connection(host_port, timeout=CONNECT_S).close()
        executor: Executor = dask.Client(address, timeout=CONNECT_S).get_executor(pure=False)
    except Exception as error:
        # What dask raises for an address that is none depends on the address.
        message = f"no Dask scheduler answers at {address}: {type(error).__name__}"
        raise DistributedError("AHBM-X141", message, hint="--dask tcp://HOST:8786") from error
    return executor


class RayExecutor(Executor):
    """The workers of a Ray cluster: calls become tasks, which Ray runs again where a worker is lost."""

    def __init__(self, address: str | None = None) -> None:
        """address: of a cluster, or `auto`; None starts Ray on this computer, unless it was started.

        Raises UnsupportedError (AHBM-U145) where ray is not installed, DistributedError (AHBM-X141) where no cluster
        answers.
        """
        self._ray = needed("ray", "ray is not installed", "pip install ray")
        self._own = not self._ray.is_initialized()
        if self._own:
            try:
                self._ray.init(address=address, log_to_driver=False, include_dashboard=False)
            except Exception as error:
                message = f"no Ray cluster answers at {address}: {type(error).__name__}"
                raise DistributedError("AHBM-X141", message, hint="--ray auto, or --ray HOST:6379") from error

        self._task = self._ray.remote(max_retries=3, num_cpus=1)(_call)

    def submit(self, fn: Callable[..., Any], /, *args: Any, **given: Any) -> Future[Any]:
        """A call as a task."""
        found: Future[Any] = self._task.remote(fn, *args, **given).future()
        return found

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Lets the cluster go, or ends it where this started it."""
        if self._own and self._ray.is_initialized():
            self._ray.shutdown()


def _call(fn: Callable[..., Any], /, *args: Any, **given: Any) -> Any:
    return fn(*args, **given)
