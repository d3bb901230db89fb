"""What states: a rank, a channel, a semaphore; the statements that they share, recorded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ahbm._core import MscclppProgram
from ahbm.dsl.mscclpp.internal.chunk import Chunk
from ahbm.dsl.mscclpp.internal.numbers import function, sync, unusable, whole
from ahbm.dsl.mscclpp.internal.operands import older, piece, pieces, workers


class Actor:
    """Has statements recorded at `_at`, its numbers as `MscclppProgram.statement` takes them."""

    __slots__ = ("_at", "_recorder")

    _at: Sequence[int]
    _recorder: MscclppProgram

    def _move(self, kind: str, dst: object, src: object, tb: object, group: object) -> None:
        """Chunks go from one place to another."""
        self._recorder.statement(kind, self._at, workers(tb, group), (piece(dst), piece(src)), 0, 0)

    def _meet(
        self, kind: str, tb: object, data_sync: object, rest: Mapping[str, object], relaxed: object = False
    ) -> None:
        """A thread block signals, waits, or does what has no chunks."""
        if not isinstance(relaxed, bool):
            raise unusable(relaxed, "True or False")
        block, meet = whole(tb), sync(data_sync)
        meet = older(self._recorder, kind, rest, sync=sync).get("sync", meet)
        self._recorder.statement(f"relaxed_{kind}" if relaxed else kind, self._at, block, (), meet, 0)

    def _reduce(
        self,
        kind: str,
        src_chunk: object,
        other_chunks: object,
        dst_chunk: object,
        reduce_op: object,
        where: int | Sequence[int] | None,
        rest: Mapping[str, object],
    ) -> None:
        """Chunks are reduced into `dst_chunk`, by default into `src_chunk`, by the thread blocks `where`."""
        src, operation = piece(src_chunk), function(reduce_op)
        operation = older(self._recorder, "reduce", rest, op=function).get("op", operation)
        all_: list[Chunk] = pieces(self._recorder, other_chunks)
        all_ = [src if dst_chunk is None else piece(dst_chunk), src, *all_]
        self._recorder.statement(kind, self._at, where, all_, 0, operation)
