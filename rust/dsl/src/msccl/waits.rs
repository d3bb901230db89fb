//! What a step waits for: steps of other thread blocks of its rank.

use ahbm_plan::Space;
use ahbm_plan::blocks::{Action, Dep, Slot, Step};
use rustc_hash::FxHashSet;

/// A step before it is known how many others only wait.
#[derive(Debug, Clone)]
pub struct Draft {
    /// The step; what it waits for is in `waits`.
    pub step: Step,
    /// Thread blocks and steps that come before it; steps are counted without those that only wait.
    pub waits: Vec<Dep>,
}

/// A thread block after all.
pub struct Written {
    /// Its steps. They wait for steps that are counted without those that only wait.
    pub steps: Vec<Step>,
    /// The place of every step of its draft.
    pub places: Vec<u32>,
}

/// The steps of a thread block. A step waits for one other, so that those before it wait for the rest; what an earlier
/// step waited for needs no second wait. `gathered`: what reductions wait for is waited for before the first of them.
pub fn write(mut drafts: Vec<Draft>, gathered: bool) -> Written {
    let mut known = FxHashSet::default();
    for draft in &mut drafts {
        draft.waits.retain(|wait| known.insert(*wait));
    }
    let mut before = Vec::new();
    let first = drafts.iter().position(|draft| draft.step.action == Action::Reduce).filter(|_| gathered);
    if let Some(first) = first {
        let reductions = drafts.iter_mut().filter(|draft| draft.step.action == Action::Reduce);
        before = reductions.flat_map(|draft| std::mem::take(&mut draft.waits)).collect();
        if !before.is_empty() {
            drafts[first].waits.push(before.remove(0));
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
        Draft { step, waits: waits.iter().map(|&step| Dep { block: 7, step }).collect() }
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
    }
}
