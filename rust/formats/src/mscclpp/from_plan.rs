//! Thread-block plans as execution plans: queues become slots in the receiver's scratch.
//!
//! A queue of k slots is a memory channel. The n-th message goes into slot n mod k: from the k-th on its sender
//! first waits for a credit, puts the chunks into the slot and signals; its receiver waits, takes the chunks and
//! signals the credit. At the end of its thread block a sender waits for the credits that are left, so that no
//! launch meets messages of the one before. Under LL a message travels as packets, which carry their arrival: every
//! message has a slot of its own, in one of two halves of scratch that launches use in turn.
//!
//! A dependency is a semaphore from the thread block that posts to the one that waits. Copies outside the thread
//! blocks are done by one more, which the others meet at barriers.

mod block;
mod order;
mod queues;

use crate::Format;
use ahbm_findings::Diagnostic;
use ahbm_plan::execution::{ExecutionPlan, Places, Rank};
use ahbm_plan::{Budget, Extents, Goal, Limit, Plan, Protocol, blocks};
use block::Writer;
use order::Order;
use queues::Queues;

/// Bytes that executors copy at once: the chunks of a plan that is written are a multiple of them.
pub const ALIGNMENT: u64 = 16;

/// A thread-block plan as an execution plan with at most `slots` slots per queue. Reductions add: an execution
/// plan says how it reduces, a thread-block plan leaves it to the run.
///
/// # Errors
/// `AHBM-U292` for LL128, messages whose ends differ in size, chunks beyond what the collective has and scratch
/// beyond 32 bits, each with rank and line; `AHBM-F128` a queue with one end only; `AHBM-B209` over the budget.
pub fn from_plan(plan: &Plan, slots: u32, budget: &Budget) -> Result<ExecutionPlan, Vec<Diagnostic>> {
    let alone = plan.unmatched();
    if !alone.is_empty() {
        return Err(alone);
    }
    from(plan, plan.protocol.depth(slots), budget).map_err(|error| vec![error])
}

fn from(plan: &Plan, slots: u32, budget: &Budget) -> Result<ExecutionPlan, Diagnostic> {
    if plan.protocol == Protocol::Ll128 {
        let finding = Format::Mscclpp.cannot_express("protocol LL128").site("plan", plan.whole().to_string());
        return Err(finding.hint("its protocols are Simple and LL"));
    }
    let ranks = plan.ranks.len() as u32;
    let extents: Vec<Extents> = (0u32..)
        .zip(&plan.ranks)
        .map(|(rank, work)| {
            let declared = if plan.goal == Goal::Custom { work.declared } else { [0, 0, work.declared[2]] };
            Extents::new(plan.goal, plan.shares(), [rank, ranks], plan.chunks, declared)
        })
        .collect();
    let mut scratch: Vec<u32> = extents.iter().map(|rank| rank.chunks[2]).collect();
    let sums = sums(plan, &mut scratch)?;
    let queues = Queues::of(plan, slots, &mut scratch)?;
    budget.check(Limit::Ops, plan.steps().saturating_add(queues.slots()))?;
    let parts = extents.iter().zip(&sums).zip(scratch);
    let rank = |(rank, ((own, sums), scratch)): (u32, ((&Extents, &Vec<u32>), u32))| {
        let made = write_rank(plan, rank, own, &queues, sums)?;
        Ok(Rank { chunks: [made.chunks[0], made.chunks[1], scratch], ..made })
    };
    let out = (0u32..).zip(parts).map(rank).collect::<Result<Vec<Rank>, Diagnostic>>()?;
    let chunks = out.iter().map(|rank| rank.chunks[0].max(rank.chunks[1])).max().unwrap_or(0);
    // A custom collective counts its chunks by what it declares.
    let bytes = |of: u64| (u128::from(of) * u128::from(chunks) / u128::from(plan.chunks.max(1))) as u64;
    let max_bytes = plan.max_bytes.filter(|&most| most > 0).map_or(u64::MAX, bytes);
    Ok(ExecutionPlan {
        name: plan.name.clone(),
        file: plan.file.clone(),
        places: Places::Positions,
        goal: plan.goal,
        in_place: plan.shares(),
        protocol: plan.protocol,
        reuse_resources: false,
        double_scratch: plan.protocol == Protocol::Ll,
        alignment: ALIGNMENT,
        min_bytes: bytes(plan.min_bytes.unwrap_or(0)),
        max_bytes,
        chunks,
        ranks: out,
        ends: queues.ends,
        quirks: false,
        unsupported: Vec::new(),
        warnings: Vec::new(),
    })
}

/// Per rank and thread block, where in `scratch` its sums begin; the room is added to `scratch`.
///
/// The executor keeps packets in twice their chunks: they come behind whatever is plain.
fn sums(plan: &Plan, scratch: &mut [u32]) -> Result<Vec<Vec<u32>>, Diagnostic> {
    let mut sums = Vec::with_capacity(plan.ranks.len());
    for ((rank, work), chunks) in (0u32..).zip(&plan.ranks).zip(scratch) {
        let mut reserve = |block: &blocks::Block| {
            let first = *chunks;
            *chunks = first
                .checked_add(block::sums(plan.protocol, block))
                .ok_or_else(|| too_large(plan, rank, block.line))?;
            Ok(first)
        };
        sums.push(work.blocks.iter().map(&mut reserve).collect::<Result<Vec<u32>, Diagnostic>>()?);
    }
    Ok(sums)
}

/// The thread blocks of a rank, and one that copies; its scratch is not known here.
fn write_rank(plan: &Plan, rank: u32, own: &Extents, queues: &Queues, sums: &[u32]) -> Result<Rank, Diagnostic> {
    let work = &plan.ranks[rank as usize];
    let order = Order::of(work);
    let copies = [&work.before, &work.after].map(|list| if plan.shares() { &[][..] } else { &list[..] });
    // Everybody of the rank meets before and after the copies.
    let everybody = work.blocks.len() as u32 + 1;
    let mut barriers = Vec::new();
    let meeting = copies.map(|list| {
        (!list.is_empty()).then(|| {
            barriers.push((barriers.len() as u32, everybody));
            barriers.len() as u32 - 1
        })
    });
    let mut blocks = Vec::with_capacity(work.blocks.len() + 1);
    for ((index, block), &room) in (0u32..).zip(&work.blocks).zip(sums) {
        let mut writer = Writer::new(plan, rank, own, queues, room);
        writer.barrier(meeting[0]);
        writer.block(index, block, &order)?;
        writer.barrier(meeting[1]);
        blocks.push(writer.finish());
    }
    if !barriers.is_empty() {
        let mut writer = Writer::new(plan, rank, own, queues, 0);
        writer.copies(copies[0])?;
        writer.barrier(meeting[0]);
        writer.barrier(meeting[1]);
        writer.copies(copies[1])?;
        blocks.push(writer.finish());
    }
    let semaphores = vec![0; order.semaphores()];
    Ok(Rank { chunks: [own.chunks[0], own.chunks[1], 0], semaphores, barriers, blocks })
}

/// Scratch beyond what the schema can index.
fn too_large(plan: &Plan, rank: u32, line: u32) -> Diagnostic {
    cannot_express(plan, rank, line, "more than 4,294,967,295 chunks of scratch")
}

/// `AHBM-U292` at a place of the source.
fn cannot_express(plan: &Plan, rank: u32, line: u32, what: impl std::fmt::Display) -> Diagnostic {
    let origin = plan.origin(rank, line).to_string();
    Format::Mscclpp.cannot_express(what).site(format!("rank {rank}"), origin)
}
