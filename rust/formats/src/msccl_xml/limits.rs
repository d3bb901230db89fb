//! Why a runtime would not load, or would misread, a plan that means something.

use super::facts::Facts;
use ahbm_findings::{Diagnostic, suggestion};
use ahbm_plan::blocks::{Action, Rank};
use ahbm_plan::collective::Extent;
use ahbm_plan::{Goal, Plan};
use rustc_hash::FxHashMap;

/// Steps of a thread block, as the current executor is built.
const STEPS: usize = 64;
/// Channels of a communicator.
const CHANNELS: u32 = 32;
/// Peers of one direction on a channel.
const PEERS: u32 = 32;
/// Nodes of the part of the document that a rank keeps.
const NODES: usize = 4096;
/// Chunks of a step, exclusive.
const COUNT: u32 = 72;
/// The executor's names of the collectives.
const NAMES: [&str; 11] = [
    "reduce",
    "broadcast",
    "allreduce",
    "reducescatter",
    "allgather",
    "send",
    "recv",
    "gather",
    "scatter",
    "alltoall",
    "alltoallv",
];

/// One finding per reason, at its first place, with the number of places.
pub(super) fn warnings(plan: &Plan, facts: &Facts) -> Vec<Diagnostic> {
    let mut found = Found { plan, by_code: Vec::new() };
    header(plan, facts, &mut found);
    for (id, rank) in plan.ranks.iter().enumerate() {
        blocks(plan, id as u32, rank, &mut found);
        steps(id as u32, rank, &mut found);
    }
    found.finish()
}

/// The first finding of each code and how many there are.
struct Found<'a> {
    plan: &'a Plan,
    by_code: Vec<(&'static str, u64, Diagnostic)>,
}

impl Found<'_> {
    fn add<H: Into<String>>(
        &mut self,
        code: &'static str,
        (rank, line): (u32, u32),
        text: impl FnOnce() -> (String, H),
    ) {
        if let Some((_, count, _)) = self.by_code.iter_mut().find(|(known, _, _)| *known == code) {
            *count += 1;
            return;
        }
        let (message, hint) = text();
        let site = self.plan.origin(rank, line).to_string();
        self.by_code.push((code, 1, Diagnostic::new(code, message).site("plan", site).hint(hint)));
    }

    fn finish(mut self) -> Vec<Diagnostic> {
        self.by_code.sort_by_key(|(code, _, _)| *code);
        let told = |(_, count, mut first): (&str, u64, Diagnostic)| {
            if count > 1 {
                first.message = format!("{} (and {} more places)", first.message, count - 1);
            }
            first
        };
        self.by_code.into_iter().map(told).collect()
    }
}

fn header(plan: &Plan, facts: &Facts, found: &mut Found<'_>) {
    if !facts.missing.is_empty() {
        found.add("AHBM-F150", (0, facts.line), || {
            let names = facts.missing.join(", ");
            (format!("<algo> lacks {names}; the executor does not load it"), "writing the plan again sets them all")
        });
    }
    for (what, line, places) in &facts.lacking {
        let text = || (format!("{what}; the executor does not load the file"), "writing the plan again sets them all");
        (0..*places).for_each(|_| found.add("AHBM-F168", (0, *line), text));
    }
    if let (Some(least), Some(most)) = (plan.min_bytes, plan.max_bytes)
        && least > most
        && most != 0
    {
        found.add("AHBM-F165", (0, facts.line), || {
            (
                format!("minBytes={least} is above maxBytes={most}; no call is of such a size"),
                "exchange them, or set maxBytes=0 for no limit",
            )
        });
    }
    if let Some(line) = facts.channel {
        found.add("AHBM-F166", (0, line), || {
            ("a thread block has a negative channel; the executor does not load the file".into(), "set chan=0")
        });
    }
    if let Some(spelled) = &facts.protocol {
        found.add("AHBM-F167", (0, facts.line), || {
            let name = plan.protocol.name();
            (
                format!("proto={spelled:?} is read as {name}; the executor knows Simple, LL and LL128"),
                "writing the plan again spells it for the executor",
            )
        });
    }
    if plan.channels > CHANNELS {
        found.add("AHBM-F152", (0, facts.line), || {
            (format!("{} channels, a communicator has {CHANNELS}", plan.channels), "use fewer channels or instances")
        });
    }
    let named = !facts.coll.is_empty() && !NAMES.contains(&facts.coll.as_str());
    if named && plan.goal == Goal::Custom && !facts.coll.eq_ignore_ascii_case(Goal::Custom.name()) {
        found.add("AHBM-F169", (0, facts.line), || {
            let known = NAMES.into_iter().filter(|name| Goal::parse(name) != Goal::Custom);
            let known: Vec<&str> = known.chain([Goal::Custom.name()]).collect();
            (
                format!("coll={:?} names no collective, so that the result is compared with nothing", facts.coll),
                suggestion(&facts.coll.to_ascii_lowercase(), &known),
            )
        });
    }
    if named && plan.goal != Goal::Custom {
        found.add("AHBM-F162", (0, facts.line), || {
            (
                format!("the executor does not know coll={:?}", facts.coll),
                "writing the plan again spells it for the executor",
            )
        });
    }
    for (name, line) in &facts.unknown {
        found.add("AHBM-F158", (0, *line), || {
            (format!("attribute {name:?} is unknown and has no effect"), "check its spelling")
        });
    }
    if let Some(line) = facts.numbering {
        found.add("AHBM-F159", (0, line), || {
            ("steps are not numbered by position; dependencies count positions".into(), "number them 0, 1, 2, …")
        });
    }
}

fn blocks(plan: &Plan, id: u32, rank: &Rank, found: &mut Found<'_>) {
    let mut nodes = 1 + plan.ranks.len();
    let mut peers: FxHashMap<(u32, bool), u32> = FxHashMap::default();
    for (index, block) in rank.blocks.iter().enumerate() {
        nodes += 1 + block.steps.len();
        if block.steps.len() > STEPS {
            found.add("AHBM-F151", (id, block.line), || {
                let have = block.steps.len();
                (
                    format!("thread block {index} of rank {id} has {have} steps, the executor allows {STEPS}"),
                    "split the thread block, or build the executor with a larger limit",
                )
            });
        }
        for (sends, peer) in [(true, block.send), (false, block.recv)] {
            if peer.is_none() {
                continue;
            }
            let count = peers.entry((block.channel, sends)).or_default();
            *count += 1;
            if *count == PEERS + 1 {
                found.add("AHBM-F153", (id, block.line), || {
                    let way = if sends { "sends to" } else { "receives from" };
                    (
                        format!("rank {id} {way} more than {PEERS} peers on channel {}", block.channel),
                        "spread the peers over channels",
                    )
                });
            }
        }
    }
    if nodes > NODES {
        found.add("AHBM-F154", (id, rank.blocks.first().map_or(0, |b| b.line)), || {
            (format!("rank {id} needs {nodes} document nodes, the executor keeps {NODES}"), "use fewer steps per rank")
        });
    }
    if let Some(copy) = rank.before.iter().chain(&rank.after).next() {
        found.add("AHBM-F160", (id, copy.line), || {
            ("runtimes ignore <copy>; here it runs unless the plan is in place".into(), "write it as a cpy step")
        });
    }
    let ranks = plan.ranks.len() as u64;
    let factor = |extent: Extent| extent.of(1, ranks);
    let (input, output) =
        plan.goal.relation().map_or((1, 1), |relation| (factor(relation.operand), factor(relation.result)));
    for (name, declared, factor) in [("i_chunks", rank.declared[0], input), ("o_chunks", rank.declared[1], output)] {
        if declared > 0 && u64::from(declared) * factor != u64::from(plan.chunks) && plan.goal != Goal::Custom {
            found.add("AHBM-F161", (id, rank.blocks.first().map_or(0, |b| b.line)), || {
                (
                    format!(
                        "rank {id} has {name}={declared}, which does not agree with nchunksperloop={}",
                        plan.chunks
                    ),
                    "the classic runtime rejects the file",
                )
            });
        }
    }
}

fn steps(id: u32, rank: &Rank, found: &mut Found<'_>) {
    for (index, block) in rank.blocks.iter().enumerate() {
        let mut pending = None;
        for (position, step) in block.steps.iter().enumerate() {
            let here = || format!("step {position} of thread block {index} of rank {id}");
            if step.count >= COUNT {
                found.add("AHBM-F157", (id, step.line), || {
                    (
                        format!("{} moves {} chunks, fewer than {COUNT} are allowed", here(), step.count),
                        "split the step",
                    )
                });
            }
            if let Some(dep) = step.wait
                && !rank.blocks[dep.block as usize].steps[dep.step as usize].posts
            {
                found.add("AHBM-F156", (id, step.line), || {
                    (
                        format!("{} waits for a step with hasdep=0, which may never report", here()),
                        "set hasdep=1 on the step it waits for",
                    )
                });
            }
            match (step.action, step.wait) {
                (Action::Nop, Some(_)) => pending = Some(step.line),
                (Action::Nop, None) => {}
                (_, wait) => {
                    if let (Some(line), None) = (pending.take(), wait) {
                        found.add("AHBM-F155", (id, line), || chain(here()));
                    }
                }
            }
        }
        if let Some(line) = pending {
            found.add("AHBM-F155", (id, line), || chain(format!("the end of thread block {index} of rank {id}")));
        }
    }
}

fn chain(place: String) -> (String, &'static str) {
    (
        format!("nop steps wait on behalf of {place}, which has no dependency of its own; runtimes reject that"),
        "move the last dependency into the step that follows the nops",
    )
}
