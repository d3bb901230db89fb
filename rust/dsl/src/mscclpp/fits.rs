//! Whether the operands of a statement fit it. Every function raises `AHBM-A102` (a `RuntimeError`) if they do not.

use super::model::{Channel, Chunk, named};
use crate::{Fault, Raised};
use ahbm_plan::Space;

/// A statement that its operands do not fit.
const OPERANDS: &str = "AHBM-A102";

/// Thread blocks of a rank are numbered below this.
const BLOCKS: u32 = 1 << 16;

/// The thread block numbered `tb`.
pub(super) fn number(tb: i64) -> Result<u32, Fault> {
    let known = u32::try_from(tb).ok().filter(|&tb| tb < BLOCKS);
    known.ok_or_else(|| wrong(format!("thread block {tb}: they are numbered from 0 to {}", BLOCKS - 1)))
}

/// The fault with a message of its own.
pub(super) fn wrong(message: impl Into<String>) -> Fault {
    Fault::new(Raised::Runtime, OPERANDS, message)
}

/// Chunks that a channel needs on a rank are there.
pub(super) fn ends(channel: Channel, what: &str, chunk: Chunk, rank: u32) -> Result<(), Fault> {
    if chunk.rank == rank {
        return Ok(());
    }
    let Channel { src, dst, .. } = channel;
    Err(wrong(format!(
        "the {what} is on rank {}; this channel of rank {src} to rank {dst} needs it on rank {rank}",
        chunk.rank
    )))
}

/// All chunks belong to the rank.
pub(super) fn local(rank: u32, chunks: &[Chunk]) -> Result<(), Fault> {
    match chunks.iter().find(|chunk| chunk.rank != rank) {
        None => Ok(()),
        Some(chunk) => Err(wrong(format!("chunks of rank {} in a statement of rank {rank}", chunk.rank))),
    }
}

/// There is something to reduce with, and all have one size.
pub(super) fn operands(own: &[Chunk], others: &[Chunk]) -> Result<(), Fault> {
    if others.is_empty() {
        return Err(wrong("Other chunk empty. A reduction needs something to reduce with"));
    }
    same_size(own)?;
    others.iter().try_for_each(|&other| same_size(&[own[0], other]))
}

/// All chunks have one size.
pub(super) fn same_size(chunks: &[Chunk]) -> Result<(), Fault> {
    let first = chunks[0];
    match chunks.iter().find(|chunk| chunk.size != first.size) {
        None => Ok(()),
        Some(chunk) => Err(wrong(format!("operands of {} and of {} chunks", first.size, chunk.size))),
    }
}

/// Packets are in scratch.
pub(super) fn in_scratch(what: &str, chunk: Chunk) -> Result<(), Fault> {
    match chunk.space {
        Space::Scratch => Ok(()),
        _ => Err(wrong(format!("packets outside scratch: the {what} is in {}", named(chunk.space)))),
    }
}
