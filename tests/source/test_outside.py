"""What a kernel reads or changes besides its arguments is refused every time; what only looks like it is not."""

from __future__ import annotations

import gc
import os
import random
import sys
import textwrap
import time
from pathlib import Path

import numpy as np
import pytest

import ahbm
from ahbm.config.ccl import CclConfig
from ahbm.errors import KernelError, Site
from ahbm.source import module
from ahbm.source.reach import Reach

IMPORTS = """
import collections, copy, dataclasses, datetime, functools, glob, hashlib, io, itertools, json, logging, math, operator
import os, pathlib, pickle, platform, random, secrets, socket, struct, subprocess, sys, threading, time, uuid
import numpy as np
from time import perf_counter as clock
from random import random as drawn
"""
KERNEL = """
def kernel_args(world_size, n_elem, *, cube_w=4, cube_h=4, dtype="f16"):
    ARGS
    return (n_elem, world_size, dtype)

def kernel(t_ptr, n_elem, n, dtype, rank, kind, w, h, *, tl):
    x = 0
    BODY
    if x:
        tl.zeros((1,), dtype=dtype)
    own = tl.load(t_ptr, shape=(n_elem,), dtype=dtype)
    tl.send(dir="global_E", src=own)
    tl.store(t_ptr, own + tl.recv(dir="global_W", shape=(n_elem,), dtype=dtype))
"""


@pytest.fixture(autouse=True)
def in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def outcome(body: str = "pass", before: str = "", args: str = "pass", ranks: int = 4) -> str | KernelError:
    """The hash of the run of a kernel with these lines, or its error."""
    text = IMPORTS + textwrap.dedent(before) + KERNEL
    Path("k.py").write_text(text.replace("ARGS", args).replace("BODY", body), encoding="utf-8")
    machine = {"system.sips.count": ranks}
    try:
        report = ahbm.run("all_reduce", "k.py", "npu_ring_8", data=False, bytes_per_rank=64 * ranks, overrides=machine)
        return report.program_hash
    except KernelError as error:
        return error


def line(text: str) -> str:
    lines = Path("k.py").read_text(encoding="utf-8").split("\n")
    return f"k.py:{next(number for number, one in enumerate(lines, 1) if text in one)}"


READS = [
    ("the clock", "x = time.time() < 5"),
    ("the clock", "x = time.time_ns() % 1000 == 999"),
    ("the clock", "x = clock() < 0"),
    ("the clock", "x = datetime.datetime.now().year < 5"),
    ("the clock", "x = datetime.date.today().year < 5"),
    ("the clock", "x = time.strftime('%Y') == '5'"),
    ("the clock", "import time as own; x = own.monotonic() < 0"),
    ("random numbers", "x = random.random() < 0.001"),
    ("random numbers", "x = drawn() < 0.001"),
    ("random numbers", "x = random.choice([0, 0, 0, 0, 0])"),
    ("random numbers", "x = random.Random().random() < 0.001"),
    ("random numbers", "x = secrets.randbelow(1000) == 1"),
    ("random numbers", "x = os.urandom(1) == b'1'"),
    ("random numbers", "x = uuid.uuid4().int % 1000 == 1"),
    ("random numbers", "x = np.random.rand() < 0.001"),
    ("random numbers", "x = np.random.default_rng().random() < 0.001"),
    ("the environment", "x = os.environ.get('NOONE') == '1'"),
    ("the environment", "x = 'NOONE' in os.environ"),
    ("the environment", "x = os.getenv('NOONE') is not None"),
    ("the number of a process or thread", "x = os.getpid() == 1"),
    ("the number of a process or thread", "x = threading.get_ident() == 1"),
    ("the address of an object", "x = id(object()) % 16"),
    ("the hash of a text or an object", "x = hash('a') % 1000 == 1"),
    ("the hash of a text or an object", "x = hash((1, 'a')) % 1000 == 1"),
    ("a file", "x = open('k.py').read() == ''"),
    ("a file", "x = pathlib.Path('nothing').exists()"),
    ("a file", "x = len(os.listdir('.')) > 99"),
    ("a file", "x = np.fromfile('k.py', 'u1').size > 1e9"),
    ("a file", "x = glob.glob('*.none') != []"),
    ("the network", "x = socket.gethostname() == ''"),
    ("the system", "x = os.cpu_count() > 1e6"),
    ("the system", "x = platform.node() == ''"),
    ("the command line or the interpreter's paths", "x = len(sys.argv) > 1000"),
]
CHANGES = [
    ("changes a file", "open('out', 'w')"),
    ("changes a file", "open('k.py', 'a').write('')"),
    ("changes a file", "pathlib.Path('out').write_text('')"),
    ("changes a file", "os.mkdir('out')"),
    ("changes a file", "os.remove('k.py')"),
    ("changes a file", "np.save('out', np.zeros(3))"),
    ("changes the environment", "os.environ['NOONE'] = '1'"),
    ("starts or ends a process", "subprocess.run(['true'])"),
    ("starts or ends a process", "os.system('true')"),
    ("starts or ends a thread", "threading.Thread(target=print).start()"),
]


@pytest.mark.parametrize(("what", "body"), READS)
def test_what_is_read_is_told_every_time(what: str, body: str) -> None:
    for _ in range(20):
        error = outcome(body)
        assert isinstance(error, KernelError) and error.code == "AHBM-K217"
        assert error.message == f"kernel reads {what}"
        assert error.sites[0].origin == line(body)


@pytest.mark.parametrize(
    "number", ["random.random()", "np.random.rand()", "np.random.default_rng().random()", "drawn()"]
)
def test_random_numbers_are_told_whatever_they_are(number: str) -> None:
    for _ in range(20):
        error = outcome(f"x = {number} < 0.5")
        assert isinstance(error, KernelError) and error.code == "AHBM-K217"
        assert error.message == "kernel reads random numbers"


@pytest.mark.parametrize(("what", "body"), CHANGES)
def test_what_is_changed_is_told_and_not_done(what: str, body: str) -> None:
    there = set(Path().iterdir()) | {Path("k.py")}
    error = outcome(body)
    assert isinstance(error, KernelError) and error.code == "AHBM-K218"
    assert error.message == f"kernel {what}"
    assert error.sites[0].origin == line(body)
    assert set(Path().iterdir()) == there


SETS = [
    "x = list({'ab', 'cd', 'ef'})[0] == 'ab'",
    "x = list({'ab', 'cd', 'ef'})[1] == 'ab'",
    "x = next(iter({'ab', 'cd', 'ef'})) == 'ab'",
    "x = {'ab', 'cd', 'ef'}.pop() == 'ab'",
    "x = [a for a in {'ab', 'cd', 'ef'}][2] == 'ef'",
    "x = max({'ab', 'cd', 'ef'}, key=len) == 'cd'",
    "x = ''.join({'ab', 'cd'}) == 'abcd'",
    "a, b = {'ab', 'cd'}; x = a == 'ab'",
    "x = [*{'ab', 'cd'}][0] == 'ab'",
    "x = [k for k in {'ab': 1, 'cd': 2}.keys() - {'e'}][0] == 'ab'",
    "x = list(NAMES)[0] == 'ab'",
    "x = [a for a in CONSTANT][0] == 'ab'",
]


@pytest.mark.parametrize("body", SETS)
def test_an_order_of_a_set_is_found_whatever_the_process_s_own_is(body: str) -> None:
    error = outcome(body, "NAMES = {'ab', 'cd', 'ef'}\nCONSTANT = frozenset({'ab', 'cd'})")
    assert isinstance(error, KernelError) and error.code == "AHBM-K216"
    assert error.sites[0] == Site("goes through a set of no fixed order", line(body))


STATES = [
    ("x = next(TURNS) == 4", "TURNS = itertools.count()"),
    ("LIST.append(1); x = len(LIST) == 5", "LIST = []"),
    ("global COUNT; COUNT += 1; x = COUNT == 5", "COUNT = 0"),
    ("kernel.turn = getattr(kernel, 'turn', 0) + 1; x = kernel.turn == 3", ""),
    ("OWN.turn += 1; x = OWN.turn == 4", "class Own:\n    turn = 0\nOWN = Own()"),
]


@pytest.mark.parametrize(("body", "before"), STATES)
def test_what_a_call_leaves_to_the_next_is_found(body: str, before: str) -> None:
    error = outcome(body, before)
    assert isinstance(error, KernelError) and error.code == "AHBM-K216"


HELPERS = [
    "def help():\n    return time.time() < 5",
    "def help(now=time.time):\n    return now() < 5",
    "help = lambda: time.time() < 5",
    "class Own:\n    def __call__(self):\n        return time.time() < 5\nhelp = Own()",
    "class Own:\n    @staticmethod\n    def now():\n        return time.time() < 5\nhelp = Own.now",
    "def made():\n    own = time.time\n    def inner():\n        return own() < 5\n    return inner\nhelp = made()",
    "def help():\n    try:\n        return time.time() < 5\n    except Exception:\n        return 0",
    "HELP = {'one': [lambda: time.time() < 5]}\ndef help():\n    return HELP['one'][0]()",
    "RNG = random.Random(0)\ndef help():\n    return RNG.random() < 0.001",
    "RNG = np.random.default_rng(0)\ndef help():\n    return RNG.random() < 0.001",
    "help = functools.partial(random.random)",
    "FILE = open('/dev/zero')\ndef help():\n    return FILE.read(1) == 'a'",
]


@pytest.mark.parametrize("before", HELPERS)
def test_helpers_are_followed_and_named_behind_the_kernel(before: str) -> None:
    error = outcome("x = help()", before)
    assert isinstance(error, KernelError) and error.code == "AHBM-K217"
    lines = error.sites[0].origin.split(" -> ")
    # NumPy's generators say nothing of the frames that draw from them.
    own = line("RNG.random" if "default_rng" in before else "x = help()")
    assert lines[0] == own and len(lines) <= 3


def test_a_file_of_the_module_is_not_printed_to() -> None:
    for body in ("print('x', file=FILE)", "FILE.write('x')"):
        error = outcome(body, "FILE = open('out', 'w')")
        assert isinstance(error, KernelError) and error.code == "AHBM-K218"
        assert Path("out").read_text(encoding="utf-8") == ""


def test_the_arguments_are_made_of_the_arguments() -> None:
    for args in ("n_elem += int(time.time() < 5)", "n_elem += os.environ.get('NOONE') == '1'"):
        error = outcome(args=args)
        assert isinstance(error, KernelError) and error.code == "AHBM-K217"
        assert error.message.startswith("kernel_args reads") and error.sites[0].origin == line(args)


LEGAL = [
    "x = random.Random(0).random() > 2",
    "random.seed(3); x = random.random() > 2",
    "np.random.seed(3); x = np.random.rand() > 2",
    "x = np.random.default_rng(3).random() > 2",
    "x = sorted({'ab', 'cd'})[0] != 'ab'",
    "x = min({'ab', 'cd'}) != 'ab'",
    "x = 'x' in {'ab', 'cd'} or len({'ab', 'cd'}) > 2",
    "x = sum(len(name) for name in {'ab', 'c'}) > 3",
    "x = {3, 4, 5}.pop() > 5 or [k for k in {1, 2}][0] > 2",
    "seen = set(); seen.add('a'); x = 'b' in seen",
    "x = hash(rank) < 0 or hash((1, 2.5)) == 0",
    "log.info('rank %d', rank); log.debug('x')",
    "print('rank', rank); print('x', file=sys.stderr)",
    "print('x', file=io.StringIO())",
    "x = json.dumps({'a': 1}) == '' or pickle.loads(pickle.dumps([1])) != [1]",
    "x = copy.deepcopy([1, [2]]) != [1, [2]]",
    "from math import pi; x = pi < 3",
    "import fractions; x = fractions.Fraction(1, 2) > 1",
    "x = collections.Counter('ab')['a'] > 1",
    "x = {Pair('a', 1): 2}[Pair('a', 1)] > 2",
    "x = START < 0 or HOME == 'nobody' or TEXT == ''",
    "x = memo(n) == 0 or cached(n) == 0",
    "x = os.path.join('a', 'b') == '' or pathlib.PurePath('a').name == ''",
    "x = int(hashlib.sha256(b'a').hexdigest()[:2], 16) > 255",
    "x = np.zeros(3).sum() > 0",
    "x = tl is None or (kind is not None) is False",
    "time.sleep(0)",
    "x = sys.version_info < (3, 11)",
]
BEFORE = """
log = logging.getLogger("kernel")
START, HOME, TEXT = time.time(), os.environ.get("HOME"), open(__file__).read()
MEMO = {}
@dataclasses.dataclass(frozen=True)
class Pair:
    name: str
    number: int
def memo(n):
    if n not in MEMO:
        MEMO[n] = n + 1
    return MEMO[n]
@functools.lru_cache
def cached(n):
    return n + 1
"""


@pytest.mark.parametrize("body", LEGAL)
def test_what_only_looks_like_it_is_none(body: str) -> None:
    plain = outcome()
    assert isinstance(plain, str) and outcome(body, BEFORE) == plain


def test_nothing_is_left_behind() -> None:
    random.seed(1)
    np.random.seed(1)
    before = sys.getprofile(), random.getstate(), np.random.get_state()[1].tolist(), gc.isenabled()
    for body in ("x = list({'ab', 'cd'})[0] > 'zz'", "x = time.time() < 5", "x = np.random.rand() < 2"):
        outcome(body)
    assert sys.getprofile() is before[0] and gc.isenabled() is before[3]
    assert random.getstate() == before[1]


def test_streams_that_print_may_look_at_the_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    class Stream:
        def __init__(self) -> None:
            self.text = ""

        def write(self, text: str) -> None:
            assert time.time() > 0 and os.getpid()
            self.text += text

        def flush(self) -> None:
            pass

    stream = Stream()
    monkeypatch.setattr(sys, "stdout", stream)
    assert isinstance(outcome("print('rank', rank)\n    log.info('x')", BEFORE), str)
    assert "rank 0" in stream.text


def test_a_profiler_goes_on() -> None:
    seen: list[str] = []

    def profiler(frame: object, event: str, _: object) -> None:
        seen.append(event)

    sys.setprofile(profiler)
    try:
        outcome("x = time.time() < 5")
        assert sys.getprofile() is profiler
    finally:
        sys.setprofile(None)
    assert seen


def test_packaged_kernels_are_not_watched() -> None:
    for name in ("ring_allreduce", "tree_allreduce", "nvls_allreduce", "lrab_hierarchical_allreduce"):
        loaded = module.load(CclConfig.load().settings(name))
        reach = Reach(loaded.kernel, loaded.kernel_args)
        assert reach.quiet and not reach.kept and len(reach.functions) >= 2


SAME = [
    "type(rank) is int and rank == 2",
    "type(rank) == int",
    "type(rank)(5)",
    "isinstance(rank, int) and rank == 2",
    "len(repr(rank) + f'{rank:>4}' + str(rank) + '%d' % rank)",
    "pickle.loads(pickle.dumps(rank)) + copy.deepcopy(rank)",
    "{0: 1, 1: 2, 2: 3}.get(rank, 4)",
    "struct.unpack('<i', struct.pack('<i', rank))[0]",
    "sum(range(rank)) + len(bytes(rank)) + len([0] * rank)",
    "json.loads(json.dumps(rank))",
    "int.__add__(rank, 1)",
    "int.bit_length(rank) + rank.bit_length() + rank.bit_count()",
    "int(np.int64(rank) + np.arange(rank + 1).sum())",
    "int(np.array([rank]).dtype == np.int64)",
    "rank in {0, 1}",
    "rank in (0, 1) or rank in range(3)",
    "math.gcd(rank, 4) + math.isqrt(rank)",
    "math.log2(rank + 1) > 1",
    "rank.to_bytes(2, 'big')[1] + int.from_bytes([rank], 'big')",
    "divmod(rank, 3)[1] + pow(2, rank, 7) + 2 ** rank % 7",
    "rank / 2 > 1",
    "round(rank) + abs(rank - 3) + (~rank & 3) - rank // -3",
    "[5, 6, 7, 8, 9, 1, 2, 3][rank % 8]",
    "functools.reduce(operator.add, range(rank), 0)",
    "max(rank, 3) + sorted([3, rank, 1])[1]",
    "random.Random(rank).randrange(4)",
    "hash(rank) + hash((rank, 1)) % 3",
    "operator.index(rank) + rank.real + rank.numerator",
    "rank.__class__ is int",
    "list(itertools.islice(range(10), rank % 8, 9))[0]",
    "rank == 3.0 or rank < 2.5",
    "rank ^ (1 << 70) > 3",
    "(rank & -rank) + int(hex(rank), 16)",
    "sum(c == '1' for c in bin(rank))",
    "cached(rank) + memo(rank)",
    "collections.Counter([rank, 1])[1]",
    "sys.getsizeof(rank) % 8",
    "matched(rank)",
    "dict.fromkeys([rank, 1]).popitem()[0] + set([rank, 1]).pop()",
    "eval('rank + 1')",
    "(3).__sub__(rank)",
    "tl.cdiv(rank, 3)",
    "complex(rank).real + float(rank)",
    "issubclass(type(rank), int)",
]
MATCHED = """
def matched(rank):
    match rank:
        case bool(): return 7
        case 0: return 1
        case int(own) if own == 3: return own
        case 1 | 2: return 5
        case _: return 2
"""


@pytest.mark.parametrize("value", SAME)
def test_a_symbolic_rank_is_an_integer(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    body = f"tl.load(t_ptr + 2 * (int({value}) % 8), shape=(1,), dtype=dtype)"
    for ranks in (4, 16):
        found = []
        for by_class in (True, False):
            monkeypatch.setattr(module, "BY_CLASS", by_class)
            found.append(outcome(body, BEFORE + MATCHED, ranks=ranks))
        assert isinstance(found[0], str) and found[0] == found[1]


@pytest.mark.parametrize("ranks", [4, 8, 16, 1024])
@pytest.mark.parametrize(
    "body",
    [
        "x = rank is n - 1",
        "x = rank is not n - 1",
        "x = operator.is_(rank, 3)",
        "x = [v for v in range(3) if v is rank]",
    ],
)
def test_integers_have_no_identity(body: str, ranks: int) -> None:
    error = outcome(body, ranks=ranks)
    assert isinstance(error, KernelError) and error.code == "AHBM-K219"
    assert error.sites[0].origin == line(body)


def test_without_its_text_a_kernel_that_asks_for_types_is_called_with_plain_ranks() -> None:
    text = IMPORTS + KERNEL.replace("ARGS", "pass").replace("BODY", "x = type(rank) is int and rank == 2")
    names: dict[str, object] = {"__name__": "made"}
    exec(compile(text, "<made>", "exec"), names)
    kernel, args = names["kernel"], names["kernel_args"]
    asked = ahbm.algorithm(kernel, kernel_args=args)  # type: ignore[arg-type]
    machine = {"system.sips.count": 16}
    hashes = []
    for by_class in (True, False):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(module, "BY_CLASS", by_class)
            report = ahbm.run("all_reduce", asked, "npu_ring_8", data=False, bytes_per_rank=1024, overrides=machine)
            hashes.append(report.program_hash)
    assert hashes[0] == hashes[1]


def test_an_error_of_the_kernel_is_its_own() -> None:
    error = outcome("log.info('x'); x = 1 // 0", BEFORE)
    assert isinstance(error, KernelError) and error.code == "AHBM-K210"
    assert isinstance(error.__cause__, ZeroDivisionError)


SENT = """
def kernel_args(world_size, n_elem, *, cube_w=4, cube_h=4, dtype="f16"):
    return (n_elem, world_size, dtype)

def kernel(t_ptr, n_elem, n, dtype, rank, kind, w, h, *, tl):
    own = tl.load(t_ptr, shape=(n_elem,), dtype=dtype)
    for turn in range(1, n):
        tl.send(dir="global_E", src=tl.ref(t_ptr, shape=(n_elem,), dtype=dtype))
        tl.store(t_ptr, tl.zeros((n_elem,), dtype=dtype))
        came = tl.recv(dir="global_W", shape=(n_elem,), dtype=dtype)
        own = own + came
        tl.store(t_ptr, came)
    tl.store(t_ptr, own)
"""


def test_a_posted_send_has_read_its_memory() -> None:
    Path("k.py").write_text(SENT, encoding="utf-8")
    report = ahbm.run("all_reduce", "k.py", "npu_ring_8", bytes_per_rank=1 << 16, dtype="i32", check="all")
    assert report.wrong == 0
