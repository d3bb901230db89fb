"""The first MSCCL++ language, which was a part of MSCCLang. Its programs are refused by name."""

from __future__ import annotations

from ahbm.errors import Finding, program_error

raise program_error(
    [
        Finding(
            "AHBM-A211",
            "msccl.language.mscclpp: a program of the first MSCCL++ language, inside MSCCLang, which is not served",
            hint="mscclpp.language, of MSCCL++ 0.8 and later, is",
        ).to_json()
    ],
    "RuntimeError",
)
