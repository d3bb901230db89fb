//! D: runs that cannot go on.

use super::{Code, row};

#[rustfmt::skip]
pub(super) const CODES: &[Code] = &[
    row("AHBM-D101", "deadlock; names who waits for whom, in which operation, and the last progress",
        "every rank calls `tl.recv` before its `tl.send`",
        "send first, or raise `n_slots` where a queue is full; `ahbm inspect` shows the state in which nothing moves"),
    row("AHBM-D102", "a job in which ranks wait for collectives that never start",
        "a recorded job in which rank 3 never starts a collective of its group",
        "record all ranks of the same step"),
    row("AHBM-D103", "ASTRA-sim's numbers: a rank that never ends there; names rank, node, peer or group",
        "two ready collectives of a group, which ranks take in different orders because they compute differently long",
        "add a dependency between them, or give all ranks one order"),
    row("AHBM-D190", "the data pass stands still: the timeline belongs to another program",
        "a timeline that another program has made",
        "make the timeline with the same program; report it when you did"),
    row("AHBM-D191", "a timeline, memory or later call that belongs to another program",
        "a memory that another program has laid out",
        "make the memory and the timeline from the same program, recorded"),
    row("AHBM-D201", "`ahbm check`: deadlock; names the thread blocks that wait for each other, and where",
        "two thread blocks that each wait for the other's message",
        "follow the cycle that it names, and send before one of the receives"),
];
