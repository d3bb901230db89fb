"""Algorithm modules (`module:` in ccl.yaml): loading them, checking what they promise, capturing kernels.

Modules are code and run with the user's rights, like a conftest.py.
"""

from __future__ import annotations

import ast
import hashlib
import inspect
import sys
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache, partial
from pathlib import Path
from types import CodeType, ModuleType
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ahbm._core import Machine, Plan, ProgramBuilder
from ahbm.base import layout as layouts
from ahbm.base.arguments import shown
from ahbm.base.collectives import COLLECTIVES
from ahbm.base.layout import Layout
from ahbm.base.load import load_bytes, parsed
from ahbm.base.request import Request, Shares
from ahbm.base.yaml_source import did_you_mean
from ahbm.config.ccl import COMMON
from ahbm.config.checks import parameter, text
from ahbm.config.kinds import Kind
from ahbm.config.settings import Settings
from ahbm.config.topology import NETWORKS
from ahbm.errors import AhbmError, ConfigError, KernelError, KernelValueError, Site, UnsupportedError
from ahbm.source.algorithm import Lowered
from ahbm.source.located import failing_line, file_of, importing_from, in_words, locate, relative
from ahbm.source.reach import Reach
from ahbm.source.switches import JOINED, apart, nodes_of

if TYPE_CHECKING:
    from ahbm.source.outside import Watch

BASE = 1 << 32
"""Virtual address of the tensor on every SIP."""
BY_CLASS = True
"""Whether one call of a kernel may stand for all ranks that take the same path; else every rank is called."""
GIVEN = ("world_size", "n_elem", "cube_w", "cube_h")
"""The arguments that every `kernel_args` gets."""
OFFERED = ("op", "dtype", "root", "collective", "src", "dst", "node_size", "slice_bytes", "shares")
"""The keywords that `kernel_args` gets if it takes them."""
SIP_ARGUMENTS = ("sip_rank", "sip_topo_kind", "sip_topo_w", "sip_topo_h")
"""The arguments that every kernel takes last."""


@dataclass(frozen=True, eq=False)
class ModuleAlgorithm:
    """A loaded module that keeps the contract."""

    _signature = cached_property(lambda self: inspect.signature(self.kernel))
    name: str
    path: Path
    digest: str
    """Hash of the file's content: the module's identity."""
    collectives: tuple[str, ...]
    declared: bool
    """Whether the module has a COLLECTIVE; without one it implements all_reduce."""
    kernel: Callable[..., None]
    kernel_args: Callable[..., tuple[object, ...]]
    reach: Reach = field(repr=False, compare=False)
    """What the kernel and its `kernel_args` could meet when they were loaded."""
    keywords: frozenset[str]
    """Keywords that `kernel_args` accepts besides cube_w and cube_h."""
    kinds: dict[str, int] | None
    """TOPO_NAME_TO_KIND, None where the module has none."""
    joined: str | None = None
    """REDUCING_SWITCH, one of `JOINED`; None where the module has none."""
    parameters: tuple[tuple[str, Hashable], ...] = ()
    """Keywords of `kernel_args` that the entry in ccl.yaml gives, with their values."""
    call_lines: bool = False
    """Whether operations of a helper also name the kernel's line that calls it."""
    unmatched: ClassVar[bool] = False
    """Whether messages without a partner are left to the run, which ends in a deadlock."""

    @property
    def source(self) -> str:
        """The origin of the algorithm, for people."""
        return str(self.path)

    @property
    def identity(self) -> tuple[str, str]:
        """Kind, and hash of the content and the parameters."""
        if not self.parameters:
            return ("module", self.digest)
        return ("module", hashlib.sha256(repr((self.digest, self.parameters)).encode()).hexdigest())

    def check(self, request: Request) -> None:
        """Raises ConfigError (AHBM-C115) for another collective than the module's, UnsupportedError (AHBM-U110) for an
        operator, a dtype or a root that `kernel_args` has no keyword for."""
        collective = COLLECTIVES[request.collective]
        if request.collective not in self.collectives:
            raise ConfigError(
                "AHBM-C115",
                f"{self.name} implements {', '.join(self.collectives)}, not {request.collective}",
                sites=(self._site(),),
                hint="choose another algorithm, or change COLLECTIVE in the module"
                if self.declared
                else f'the module has no COLLECTIVE, which means all_reduce: write COLLECTIVE = "{request.collective}"',
            )
        needs = [
            ("dtype", request.dtype, "f16", True),
            ("op", request.op, "sum", collective.reduces),
            ("root", request.root, 0, collective.rooted),
            ("src", request.src, 0, collective.paired),
            ("dst", request.dst, 1, collective.paired),
        ]
        for keyword, value, default, applies in needs:
            if applies and value != default and keyword not in self.keywords:
                raise UnsupportedError(
                    "AHBM-U110",
                    f"{self.name} supports {keyword} {default} only, not {value}",
                    sites=(self._site(),),
                    hint=f"add the keyword {keyword}={default!r} to its kernel_args and heed it",
                )

    def check_machine(self, machine: Machine, request: Request) -> None:
        """Raises UnsupportedError (AHBM-U116) where the module reduces in a switch, and none joins the ranks."""
        ranks = list(request.ranks)
        if self.joined is None or len(ranks) < 2 or max(ranks) >= machine.sips:
            return
        if whom := apart(machine, ranks, self.joined):
            raise UnsupportedError(
                "AHBM-U116",
                f"{self.name} reduces in a switch between {whom}; {machine.topology} has none that does",
                sites=(self._site(),),
                hint="system.sips.switch.reduces of topology switch; system.sips.nodes.reduces and "
                "system.sips.nodes.spine_reduces of topology nodes",
            )

    def arguments(
        self,
        request: Request,
        n_elem: int,
        cube_w: int,
        cube_h: int,
        node_size: int = 1,
        slice_bytes: int = 0,
        shares: Shares | None = None,
    ) -> tuple[object, ...]:
        """The kernel's arguments between `t_ptr` and `sip_rank`; `node_size` is what `nodes_of` gives, `slice_bytes`
        what the machine says, `shares` what the lane has of the request's.

        Raises KernelError: AHBM-K110 when `kernel_args` raises or returns no tuple, K111 when the kernel does not take
        that many positional arguments.
        """
        offered = {
            "op": request.op,
            "dtype": request.dtype,
            "root": request.root,
            "collective": request.collective,
            "src": request.src,
            "dst": request.dst,
            "node_size": node_size,
            "slice_bytes": slice_bytes,
            "shares": shares,
        }
        keywords = {key: value for key, value in offered.items() if key in self.keywords} | dict(self.parameters)
        try:
            args = self.kernel_args(request.world_size, n_elem, cube_w=cube_w, cube_h=cube_h, **keywords)
        except (AhbmError, KeyboardInterrupt):
            raise
        except BaseException as error:
            kind = KernelValueError if isinstance(error, ValueError) else KernelError
            raise kind(
                "AHBM-K110",
                f"kernel_args of {self.name} raised {in_words(error)}",
                sites=(self._site(self.kernel_args),),
                hint=self._unfit(request.world_size, n_elem, cube_w, cube_h),
            ) from error
        if not isinstance(args, tuple):
            if inspect.iscoroutine(args):
                args.close()  # nobody awaits it, which Python would warn of
            raise KernelError(
                "AHBM-K110",
                f"kernel_args of {self.name} must return a tuple, not {type(args).__name__}",
                sites=(self._site(self.kernel_args),),
            )
        self._check_arity(args)
        return args

    def naming_calls(self) -> ModuleAlgorithm:
        """The module, in whose programs the operations of a helper name the kernel's line that calls it, too."""
        return replace(self, call_lines=True, digest=f"{self.digest} by calls")

    def supports(self, network: str) -> bool:
        """Whether it knows a network between SIPs."""
        return self.kinds is None or network in self.kinds

    def topology_kind(self, network: str) -> int:
        """The module's number for a network between SIPs; 0 when it does not distinguish them.

        Raises ConfigError (AHBM-C116) for a network that is not in its TOPO_NAME_TO_KIND.
        """
        if self.kinds is None:
            return 0
        if not self.supports(network):
            raise ConfigError(
                "AHBM-C116",
                f"{self.name} does not support the topology {network!r}",
                sites=(self._site(),),
                hint=f"its TOPO_NAME_TO_KIND has {', '.join(self.kinds)}",
            )
        return self.kinds[network]

    def _unfit(self, world_size: int, n_elem: int, cube_w: int, cube_h: int) -> str | None:
        """The hint where `kernel_args` does not take what every call passes."""
        try:
            inspect.signature(self.kernel_args).bind(world_size, n_elem, cube_w=cube_w, cube_h=cube_h)
        except TypeError:
            return (
                f"def kernel_args(world_size, n_elem, *, cube_w=4, cube_h=4): cube_w and cube_h are always passed, "
                f"{', '.join(OFFERED)} where it has a keyword of that name"
            )
        return None

    def _check_arity(self, args: tuple[object, ...]) -> None:
        given = 1 + len(args) + len(SIP_ARGUMENTS)
        try:
            self._signature.bind(*range(given), tl=None)
        except TypeError as error:
            positional = [
                p
                for p in self._signature.parameters.values()
                if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) and p.name != "tl"
            ]
            taken = ", ".join(p.name for p in positional)
            raise KernelError(
                "AHBM-K111",
                f"the kernel of {self.name} takes {len(positional)} positional arguments, but gets {given}: "
                f"t_ptr, {len(args)} from kernel_args, {', '.join(SIP_ARGUMENTS)} ({error})",
                sites=(
                    Site(f"kernel({taken}, tl)", self._origin(self.kernel)),
                    Site(f"kernel_args returns {len(args)} values", self._origin(self.kernel_args)),
                ),
                hint="the tuple of kernel_args must match the kernel's parameters between t_ptr and sip_rank; "
                "tl comes as a keyword",
            ) from error

    def _site(self, what: Callable[..., object] | None = None) -> Site:
        return Site(self.name, self._origin(what) if what else relative(self.path))

    def _origin(self, what: Callable[..., object]) -> str:
        code = getattr(inspect.unwrap(what), "__code__", None)
        return f"{relative(self.path)}:{code.co_firstlineno}" if code else relative(self.path)

    def lower(self, machine: Machine, request: Request, layout: Layout, settings: Settings) -> Lowered:
        """Calls the kernel for every class of places, or at every place, recording, and some calls twice.

        Raises ConfigError (AHBM-C116), KernelError (AHBM-K216: it did something else the second time; K217 to K219: it
        reads, changes or asks for what is not its own; KernelValueError where it raised a ValueError), LintError,
        BudgetError.
        """
        try:
            if self.reach.quiet and not self.reach.kept:
                return self._lower(machine, request, layout, settings, None)
            from ahbm.source.outside import Watch  # few kernels need it

            with Watch(self.reach) as watch:
                return self._lower(machine, request, layout, settings, watch)
        except KernelError as error:
            raised = KernelValueError.of_cause(error)
            raise raised from raised.__cause__

    def _lower(
        self, machine: Machine, request: Request, layout: Layout, settings: Settings, watch: Watch | None
    ) -> Lowered:
        queues, net = settings.queues, layout.network
        builder = ProgramBuilder(
            machine,
            f"{request.collective} by {self.name}",
            n_slots=queues.n_slots,
            slot_bytes=queues.slot_size,
            tier=queues.buffer_kind,
            credit_bytes=queues.ipcq_credit_size_bytes,
            op_budget=settings.op_budget,
            all_ops=settings.all_ops,
            call_lines=self.call_lines,
        )
        facts = nodes_of(machine, layout.places), machine.slice_bytes
        sip_args = (self.topology_kind(net.topology), net.w, net.h)
        bodies: dict[tuple[int, Shares | None], list[int]] = {}
        pieces: list[NDArray[np.int64]] = []
        operands: list[list[NDArray[np.int64]]] = [[] for _ in layout.places]  # those of unequal shares
        results: list[list[NDArray[np.int64]]] = [[] for _ in layout.places]
        itemsize = request.element.storage.itemsize
        for number, lane in enumerate(layout.lanes):
            group = builder.group(
                topology=net.topology,
                sips=net.sips,
                w=net.w,
                h=net.h,
                d=net.d,
                cube_w=lane.cube_w,
                cube_h=lane.cube_h,
                pes=1,
            )
            nbytes, cubes = layout.chunks * lane.n_elem * itemsize, len(lane.cubes)
            shares = _in_lane(request.shares, len(layout.lanes), number)
            key = lane.n_elem, shares
            if key not in bodies:
                sizes = lane.n_elem, lane.cube_w, lane.cube_h, *facts, shares
                views = [(BASE + cube * nbytes, nbytes) for cube in range(cubes)]

                def captured(expected: list[int] | None = None, sizes: Any = sizes, views: Any = views) -> list[int]:
                    before, again = ((BASE, *self.arguments(request, *sizes)) for _ in range(2))
                    return builder.capture_all(
                        self.kernel,
                        before,
                        again,
                        sip_args,
                        len(layout.places),
                        len(views),
                        views,
                        request.dtype,
                        by_class=BY_CLASS and not (watch and watch.blind),
                        expected=expected,
                    )

                bodies[key] = watch.first(captured) if watch else captured()
                if watch is not None:
                    watch.repeat(partial(captured, bodies[key]))
            first = builder.agents(group, bodies[key], layout.places, lane.cubes, nbytes)
            if request.shares is None:
                rows = np.repeat(layout.pieces(lane, itemsize)[None], len(layout.places), axis=0)
                rows[..., 0] += first + cubes * np.arange(len(layout.places))[:, None]
                pieces.append(rows)
                continue
            for rank in range(len(layout.places)):
                for found, received in ((operands, False), (results, True)):
                    lengths = request.lengths(rank, received=received)
                    own = layouts.uneven_pieces(layout, number, lengths, itemsize)
                    own[:, 0] += first + cubes * rank
                    found[rank].append(own)
        program = builder.finish(unmatched=self.unmatched)
        if request.shares is not None:
            return Lowered(program, _joined(operands), _joined(results))
        whole = list(np.concatenate(pieces, axis=1))
        return Lowered(program, whole, whole, covered=True)

    @property
    def anywhere(self) -> bool:
        """True: a kernel sees a rank's position in its group."""
        return True

    @property
    def by_shape(self) -> bool:
        """True: a kernel sees no times."""
        return True

    def with_knobs(self, knobs: Mapping[str, str | int]) -> tuple[ModuleAlgorithm, Collection[str]]:
        """The module with those of a library's knobs as parameters that its `kernel_args` names, and their names."""
        taken, _ = _parameters_of(self.kernel_args)
        own = {name: value for name, value in knobs.items() if name in taken}
        return replace(self, parameters=tuple((dict(self.parameters) | own).items())), own.keys()

    @property
    def takes_shares(self) -> bool:
        """Whether `kernel_args` has the keyword `shares`."""
        return "shares" in self.keywords

    @property
    def is_plan(self) -> bool:
        """False: a kernel is code."""
        return False

    def plan(
        self, machine: Machine, request: Request, settings: Settings, limits: Sequence[tuple[str, int]] = ()
    ) -> Plan:
        """The kernel's work for `request`, captured for one PE per rank and for a sum: a plan leaves both to the run.

        Raises UnsupportedError (AHBM-U294) for device tensors and for what a plan cannot express, BudgetError
        (AHBM-B211) for too many chunks, and as `lower`.
        """
        if request.placement is not None:
            raise UnsupportedError("AHBM-U294", f"{self.name}: a plan knows no cubes that hold tiles of a tensor")
        request = replace(request, op="sum")
        arrange = layouts.flat if request.world_size > machine.sips else layouts.whole
        layout = arrange(machine, request.ranks, request.chunks, request.count)
        # A capture runs nothing: the largest memory holds its slots.
        settings = settings.in_tier(settings.queues.tiers(machine.tiers)[-1])
        return self.lower(machine, request, layout, settings).program.plan(
            name=self.name,
            collective=request.collective,
            root=request.root if request.kind.rooted else 0,
            nranks=request.world_size,
            nbytes=request.nbytes,
            dtype=request.dtype,
            slots=settings.queues.n_slots,
            limits=limits,
        )


def load(settings: Settings) -> ModuleAlgorithm:
    """The module of `settings`.

    Raises ConfigError: AHBM-C110 when there is no such file, C111 when it fails to load, C112 when its `kernel` or
    `kernel_args` is missing, C113 when one of its symbols has a wrong type.
    """
    path, package = locate(settings)
    try:
        content = load_bytes(path)
    except OSError as error:
        raise ConfigError("AHBM-C110", f"cannot read algorithm {settings.algorithm}: {error}") from error
    module = _execute(settings.algorithm, path, package, content)
    try:
        found = described(settings.algorithm, path, hashlib.sha256(content).hexdigest(), module)
        return _with_parameters(found, settings)
    except (AhbmError, KeyboardInterrupt):
        raise
    except BaseException as error:
        raise ConfigError(
            "AHBM-C113",
            f"algorithm {settings.algorithm}: its symbols cannot be read: {in_words(error)}",
            sites=(Site(settings.algorithm, failing_line(error, path)),),
            hint="kernel and kernel_args are plain functions",
        ) from error


def _execute(name: str, path: Path, package: str, content: bytes) -> ModuleType:
    # Every loading of a file is a module of its own, so it never changes code that another emulator still refers to.
    title = f"ahbm_algorithm_{path.stem}"
    module = ModuleType(title)
    module.__file__, module.__package__ = str(path), package
    previous = sys.modules.get(title)
    sys.modules[title] = module  # dataclasses and typing look their module up while it is executed
    try:
        with importing_from(path.parent, Path()):
            exec(_code(content, str(path)), module.__dict__)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        raise ConfigError(
            "AHBM-C111",
            f"algorithm {name} cannot be loaded: {in_words(error)}",
            sites=(Site(name, failing_line(error, path)),),
        ) from error
    finally:
        if previous is None:
            del sys.modules[title]
        else:
            sys.modules[title] = previous
    return module


@lru_cache(256)
def _code(content: bytes, path: str) -> CodeType:
    return compile(content, path, "exec", dont_inherit=True)


def described(name: str, path: Path, digest: str, module: ModuleType) -> ModuleAlgorithm:
    """The algorithm of a module that was executed. Raises ConfigError (AHBM-C112, C113)."""

    def bad(code: str, message: str, hint: str | None = None) -> ConfigError:
        return ConfigError(code, f"algorithm {name}: {message}", sites=(Site(name, relative(path)),), hint=hint)

    for symbol, hint in (
        ("kernel", "publish the kernel function as kernel = my_function"),
        ("kernel_args", "def kernel_args(world_size, n_elem, *, cube_w=4, cube_h=4) -> tuple"),
    ):
        if not hasattr(module, symbol):
            raise bad("AHBM-C112", f"the module has no symbol {symbol}", hint)
        if not callable(getattr(module, symbol)):
            raise bad("AHBM-C113", f"{symbol} is not callable")
    has_collective = hasattr(module, "COLLECTIVE")
    declared = getattr(module, "COLLECTIVE", "all_reduce")
    if not isinstance(declared, str | tuple | list):
        raise bad("AHBM-C113", f"COLLECTIVE {declared!r} is no name", 'COLLECTIVE = "all_gather", or several names')
    collectives = (declared,) if isinstance(declared, str) else tuple(declared)
    for collective in collectives:
        if not isinstance(collective, str) or collective not in COLLECTIVES:
            raise bad("AHBM-C113", f"COLLECTIVE {collective!r} is unknown", did_you_mean(str(collective), COLLECTIVES))
    kinds: Any = getattr(module, "TOPO_NAME_TO_KIND", None)
    if kinds is not None and not isinstance(kinds, dict):
        raise bad(
            "AHBM-C113", "TOPO_NAME_TO_KIND must be a dict of topology names", 'TOPO_NAME_TO_KIND = {"ring_1d": 0}'
        )
    for network, number in (kinds or {}).items():
        if network not in NETWORKS:
            hint = did_you_mean(str(network), NETWORKS)
            raise bad("AHBM-C113", f"TOPO_NAME_TO_KIND: there is no network {shown(network)}", hint)
        if not isinstance(number, int) or isinstance(number, bool):
            hint = f'TOPO_NAME_TO_KIND = {{"{network}": 0}}; the kernel gets the integer as sip_topo_kind'
            raise bad("AHBM-C113", f"TOPO_NAME_TO_KIND: {network} must be an integer, not {shown(number)}", hint)
    joined: Any = getattr(module, "REDUCING_SWITCH", None)
    if joined not in (None, *JOINED):
        raise bad("AHBM-C113", f"REDUCING_SWITCH is one of {', '.join(JOINED)}, not {shown(joined)}")
    inspect.signature(module.kernel)
    parameters = inspect.signature(module.kernel_args).parameters.values()
    if any(p.kind is p.VAR_KEYWORD for p in parameters):
        keywords = frozenset(OFFERED)
    else:
        keywords = frozenset(OFFERED) & {
            p.name for p in parameters if p.kind in (p.KEYWORD_ONLY, p.POSITIONAL_OR_KEYWORD)
        }
    calls = module.kernel, module.kernel_args
    return ModuleAlgorithm(
        name, path, digest, collectives, has_collective, *calls, Reach(*calls), keywords, kinds, joined
    )


def _parameters_of(kernel_args: Callable[..., object]) -> tuple[list[str], bool]:
    """The keywords of `kernel_args` that an entry may give, and whether it takes any other."""
    parameters = inspect.signature(kernel_args).parameters.values()
    by_name = [p.name for p in parameters if p.kind is p.KEYWORD_ONLY]
    # The first two are the size of the world and the number of elements, whatever their names.
    by_name += [p.name for p in list(parameters)[2:] if p.kind is p.POSITIONAL_OR_KEYWORD]
    taken = [name for name in by_name if name not in (*OFFERED, *GIVEN)]
    return taken, any(p.kind is p.VAR_KEYWORD for p in parameters)


def _with_parameters(described: ModuleAlgorithm, settings: Settings) -> ModuleAlgorithm:
    """The module with the parameters of its entry. Raises ConfigError (AHBM-C108) for one that nobody takes."""
    if not settings.parameters:
        return described
    of_run = (*OFFERED, *GIVEN)
    taken, any_name = _parameters_of(described.kernel_args)
    for name, _ in settings.parameters:
        if name in of_run or (name not in taken and not any_name):
            raise ConfigError(
                "AHBM-C108",
                f"unknown key algorithms.{described.name}.{name}",
                sites=(described._site(described.kernel_args),),
                hint="the run gives it" if name in of_run else did_you_mean(name, (*taken, *COMMON)),
            )
    return replace(described, parameters=settings.parameters)


def listed(settings: Settings) -> tuple[tuple[str, ...], str]:
    """The collectives that the module of `settings` declares, and its path; reads its text and does not execute it.

    Raises ConfigError: AHBM-C110 when there is no such file, C111 for text that is no Python, C113 for a COLLECTIVE
    that is neither a text nor several.
    """
    path, _ = locate(settings)
    try:
        declared, _ = _stated(load_bytes(path))
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise ConfigError("AHBM-C111", f"algorithm {settings.algorithm} cannot be read: {error}") from error
    names = (declared,) if isinstance(declared, str) else declared
    if not (isinstance(names, tuple | list) and all(isinstance(name, str) for name in names)):
        raise ConfigError("AHBM-C113", f"algorithm {settings.algorithm}: COLLECTIVE {declared!r} is no name")
    return tuple(map(str, names)), str(path)


def needs_switch(settings: Settings) -> bool:
    """Whether the entry is a module that declares a `REDUCING_SWITCH`; reads its text. Raises as `listed`."""
    if settings.kind != "module":
        return False
    path, _ = locate(settings)
    return _stated(load_bytes(path))[1]


@lru_cache(256)
def _stated(content: bytes) -> tuple[object, bool]:
    """COLLECTIVE as the text of a module states it, and whether it assigns REDUCING_SWITCH. Raises as the parser."""
    declared: object = "all_reduce"
    switch = False
    for statement in parsed(content).body:
        targets = statement.targets if isinstance(statement, ast.Assign) else ()
        names = [target.id for target in targets if isinstance(target, ast.Name)]
        switch |= "REDUCING_SWITCH" in names
        if "COLLECTIVE" in names:
            assert isinstance(statement, ast.Assign)
            try:
                declared = ast.literal_eval(statement.value)
            except (ValueError, TypeError):
                declared = "(computed)"
    return declared, switch


KIND = Kind(
    check=text,
    example="module: ./algorithms/NAME.py",
    options=lambda entry: str(entry["module"]),
    load=load,
    listed=listed,
    parameters=parameter,
    file=file_of,
)


def _joined(pieces: list[list[NDArray[np.int64]]]) -> list[NDArray[np.int64]]:
    return [np.concatenate(rows) for rows in pieces]


def _in_lane(shares: Shares | None, lanes: int, lane: int) -> Shares | None:
    """What one of `lanes` lanes has of the shares."""
    if shares is None or lanes == 1:
        return shares
    return tuple(tuple(layouts.share(length, lanes, lane)[1] for length in row) for row in shares)
