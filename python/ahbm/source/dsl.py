"""Programs of other languages as algorithms (`dsl:` in ccl.yaml): a script is run, and its plan is what runs."""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from os.path import isfile
from typing import TYPE_CHECKING, Any

from ahbm.config.checks import Check, integer, shaped, switch, text
from ahbm.config.kinds import Kind
from ahbm.dsl.script import UPSTREAM, Script, imports_language
from ahbm.source.files import no_file
from ahbm.source.plan import LOWERING, SLOTS, PlanAlgorithm, PlanOptions, runnable

if TYPE_CHECKING:
    from ahbm.config.settings import Settings


@dataclass(frozen=True)
class DslOptions:
    """The keys of an entry with `dsl:`."""

    script: Script
    how: PlanOptions

    @staticmethod
    def of(entry: Mapping[str, Any]) -> DslOptions:
        """Those of an entry of ccl.yaml."""
        program = str(entry["program"]) if "program" in entry else None
        script = Script(str(entry["dsl"]), arguments(entry.get("args")), program, entry.get("frontend"))
        return DslOptions(script, PlanOptions.of(entry))


def arguments(given: object) -> tuple[str, ...]:
    """The arguments of a script, from a list or from text as a shell splits it."""
    if given is None:
        return ()
    return tuple(map(str, given)) if isinstance(given, list) else tuple(shlex.split(str(given)))


def entry(script: Script) -> dict[str, object]:
    """The keys of an entry of ccl.yaml that runs `script`; its path is as it is."""
    found: dict[str, object] = {"dsl": script.path}
    if script.args:
        found["args"] = list(script.args)
    return found | {key: value for key in ("program", "frontend") if (value := getattr(script, key)) is not None}


def load(settings: Settings) -> PlanAlgorithm:
    """The program of `settings`, run and lowered.

    Raises ConfigError (AHBM-C110) when there is no such file, ProgramError for what is wrong with it, and as
    `ahbm.source.plan.load`.
    """
    options = settings.options
    assert isinstance(options, DslOptions)
    path = settings.folder / options.script.path
    if not isfile(path):
        raise no_file(settings.algorithm, path)
    script = Script(str(path), options.script.args, options.script.program, options.script.frontend)
    read = runnable(script, options.how.reading)
    text = script.chosen(quirks=options.how.reading.quirks).text
    digest = hashlib.sha256(text.encode()).hexdigest()
    return PlanAlgorithm(settings.algorithm, path.resolve(), digest, read, options.how)


@shaped({"type": ["string", "array"], "items": {"type": ["string", "number", "boolean"]}})
def _args(value: Any) -> str | None:
    plain = isinstance(value, str) or (
        isinstance(value, list) and all(isinstance(item, str | int | float) for item in value)
    )
    return None if plain else "a list of arguments, or text as on a command line"


@shaped({"type": ["string", "integer"], "minimum": 0})
def _program(value: Any) -> str | None:
    return None if isinstance(value, str) or integer(0)(value) is None else "the name of a program, or its position"


@shaped({"const": UPSTREAM})
def _frontend(value: Any) -> str | None:
    return None if value == UPSTREAM else UPSTREAM


def _listed(settings: Settings) -> tuple[tuple[str, ...], str]:
    options = settings.options
    assert isinstance(options, DslOptions)
    path = settings.folder / options.script.path
    if not isfile(path):
        raise no_file(settings.algorithm, path)
    return (), str(path)


KEYS: dict[str, Check] = {"args": _args, "program": _program, "frontend": _frontend, "quirks": switch}
KIND = Kind(
    check=text,
    example="dsl: with the path of a script",
    options=DslOptions.of,
    load=load,
    listed=_listed,
    keys={**LOWERING, **KEYS},
    defaults={"n_slots": SLOTS},
    file=lambda value, folder: folder / value,
    claims=lambda name: name.endswith(".py") and imports_language(name),
)
"""Programs of the MSCCL++ DSL and of MSCCLang. `args` follow the script, `program` names one of several."""
