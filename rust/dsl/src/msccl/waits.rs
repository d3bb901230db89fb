//! What a step waits for: steps of other thread blocks of its rank.

use super::graph::Adjacency;
use ahbm_plan::Space;
use ahbm_plan::blocks::{Action, Dep, Rank, Slot, Step};
use rustc_hash::{FxHashMap, FxHashSet};

/// What is waited for before the first reduction of a thread block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gathered {
    /// What it waits for itself.
    Nothing,
    /// Of what its reductions wait for, that which has its turn before the first of them.
    Earlier,
    /// All that its reductions wait for.
    All,
}

/// A step before it is known how many others only wait.
#[derive(Debug, Clone)]
pub struct Draft {
    /// The step; what it waits for is in `waits`.
    pub step: Step,
    /// Thread blocks and steps that come before it; steps are counted without those that only wait.
    pub waits: Vec<Dep>,
    /// Of these, those that an earlier step of its thread block must not wait for.
    pub due: FxHashSet<Dep>,
}

/// A thread block after all.
pub struct Written {
    /// Its steps. They wait for steps that are counted without those that only wait.
    pub steps: Vec<Step>,
    /// The place of every step of its draft.
    pub places: Vec<u32>,
}

/// The steps of a thread block. A step waits for one other, so that those before it wait for the rest; what an earlier
/// step waited for needs no second wait. `gathered`: what reductions wait for is waited for before the first of them, unless
/// it is due.
pub fn write(mut drafts: Vec<Draft>, gathered: bool) -> Written {
    let mut known = FxHashSet::default();
    for draft in &mut drafts {
        draft.waits.retain(|wait| known.insert(*wait));
    }
    let mut before = Vec::new();
    let first = drafts.iter().position(|draft| draft.step.action == Action::Reduce).filter(|_| gathered);
    if let Some(first) = first {
        let reductions = drafts.iter_mut().filter(|draft| draft.step.action == Action::Reduce);
        for Draft { waits, due, .. } in reductions {
            let later = waits.iter().copied().filter(|wait| due.contains(wait)).collect();
            before.extend(std::mem::replace(waits, later).into_iter().filter(|wait| !due.contains(wait)));
        }
        if !before.is_empty() {
            drafts[first].waits.insert(0, before.remove(0));
        }
    }
    let (mut steps, mut places) = (Vec::with_capacity(drafts.len()), Vec::with_capacity(drafts.len()));
    for (i, draft) in drafts.iter().enumerate() {
        if Some(i) == first {
            steps.extend(before.iter().map(|&wait| nop(wait, draft.step.line)));
        }
        let (own, rest) = draft.waits.split_first().map_or((None, &[][..]), |(own, rest)| (Some(*own), rest));
        steps.extend(rest.iter().map(|&wait| nop(wait, draft.step.line)));
        places.push(steps.len() as u32);
        steps.push(Step { wait: own, ..draft.step });
    }
    Written { steps, places }
}

/// True when steps wait for each other in a circle, however much a queue holds.
pub fn circular(ranks: &[Rank]) -> bool {
    let mut count = 0u32;
    // The first step of every thread block.
    let mut starts: Vec<Vec<u32>> = Vec::with_capacity(ranks.len());
    for rank in ranks {
        let mut own = Vec::with_capacity(rank.blocks.len());
        for block in &rank.blocks {
            own.push(count);
            count += block.steps.len() as u32;
        }
        starts.push(own);
    }
    let mut edges: Vec<(u32, u32)> = Vec::new();
    let mut sends: FxHashMap<(u32, u32, u32), Vec<u32>> = FxHashMap::default();
    let mut receives = sends.clone();
    for ((id, rank), starts) in (0..).zip(ranks).zip(&starts) {
        for (block, &start) in rank.blocks.iter().zip(starts) {
            for (at, step) in (start..).zip(&block.steps) {
                edges.extend((at > start).then(|| (at - 1, at)));
                edges.extend(step.wait.map(|wait| (starts[wait.block as usize] + wait.step, at)));
                if let Some(to) = block.send.filter(|_| step.action.sends()) {
                    sends.entry((id, to, block.channel)).or_default().push(at);
                }
                if let Some(from) = block.recv.filter(|_| step.action.receives()) {
                    receives.entry((from, id, block.channel)).or_default().push(at);
                }
            }
        }
    }
    for (queue, sends) in &sends {
        edges.extend(sends.iter().copied().zip(receives.get(queue).into_iter().flatten().copied()));
    }
    let next = Adjacency::new(count as usize, edges.iter().copied());
    let mut waiting = vec![0u32; count as usize];
    edges.iter().for_each(|&(_, to)| waiting[to as usize] += 1);
    let mut ready: Vec<u32> = (0..count).filter(|&step| waiting[step as usize] == 0).collect();
    let mut done = 0;
    while let Some(step) = ready.pop() {
        done += 1;
        for &to in next.of(step) {
            waiting[to as usize] -= 1;
            ready.extend((waiting[to as usize] == 0).then_some(to));
        }
    }
    done < count
}

fn nop(wait: Dep, line: u32) -> Step {
    let slot = |space| Slot { space, chunk: 0 };
    let (src, dst) = (slot(Space::Input), slot(Space::Output));
    Step { action: Action::Nop, src, dst, count: 0, wait: Some(wait), posts: false, line }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn draft(action: Action, waits: &[u32]) -> Draft {
        let Step { .. } = nop(Dep { block: 0, step: 0 }, 0);
        let step = Step { action, count: 1, wait: None, ..nop(Dep { block: 0, step: 0 }, 0) };
        Draft { step, waits: waits.iter().map(|&step| Dep { block: 7, step }).collect(), due: FxHashSet::default() }
    }

    fn text(written: &Written) -> String {
        let step =
            |step: &Step| format!("{}{}", step.action.name(), step.wait.map_or(String::new(), |w| w.step.to_string()));
        written.steps.iter().map(step).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn a_step_waits_for_the_first_and_those_before_it_for_the_rest() {
        let written = write(vec![draft(Action::Send, &[1, 2, 3]), draft(Action::Send, &[2, 4])], false);
        assert_eq!(text(&written), "nop2 nop3 s1 s4");
        assert_eq!(written.places, [2, 3]);
    }

    #[test]
    fn reductions_wait_together() {
        let drafts = || vec![draft(Action::Copy, &[]), draft(Action::Reduce, &[1]), draft(Action::Reduce, &[2, 3])];
        assert_eq!(text(&write(drafts(), true)), "cpy nop2 nop3 re1 re");
        assert_eq!(text(&write(drafts(), false)), "cpy re1 nop3 re2");
        let mut late = drafts();
        late[2].due.insert(Dep { block: 7, step: 3 });
        assert_eq!(text(&write(late, true)), "cpy nop2 re1 re3");
    }
}
