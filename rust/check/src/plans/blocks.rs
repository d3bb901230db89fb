//! Whether a plan of thread blocks is right: however it is called, and however large its arrays are.

use super::{PlanCheck, verdict};
use crate::walk::{needed_slots, stuck};
use crate::{Outcome, Verdict};
use ahbm_findings::Diagnostic;
use ahbm_plan::Plan;
use ahbm_plan::blocks::MAX_TOGETHER;

/// A plan that allows calls in place and out of place serves both: the graver verdict counts, and says which calls it
/// is about.
pub(super) fn check(plan: &Plan, options: &PlanCheck) -> Verdict {
    let own = called(plan, options);
    if !(plan.shares() && plan.out_of_place) {
        return own;
    }
    let apart = called(&Plan { in_place: false, ..plan.clone() }, options);
    let (mut graver, how) = match own.outcome.cmp(&apart.outcome) {
        std::cmp::Ordering::Equal => return own,
        std::cmp::Ordering::Less => (apart, "out of place"),
        std::cmp::Ordering::Greater => (own, "in place"),
    };
    for finding in &mut graver.findings {
        finding.message = format!("called {how}: {}", finding.message);
    }
    graver
}

/// A plan that is right as long as the chunks of a step fit one message may hang where they do not: then it is right for
/// some sizes only, which is a finding. One that hangs for every size is a deadlock.
fn called(plan: &Plan, options: &PlanCheck) -> Verdict {
    let lowered = plan.lower_for_check(options.slots, &options.budget);
    let mut verdict = verdict(lowered, plan.goal, plan.chunks, options);
    if verdict.outcome < Outcome::Deadlock {
        match Hang::of(plan, options) {
            Some(Hang { together: MAX_TOGETHER, report, .. }) => {
                return Verdict { outcome: Outcome::Deadlock, findings: vec![report], proof: None, ..verdict };
            }
            Some(hang) => verdict.findings.extend(hang.told(plan)),
            None => {}
        }
    }
    verdict
}

/// How a plan hangs whose chunks do not fit one message.
struct Hang {
    /// Chunks per message, at most, for which it hangs.
    together: u64,
    /// Messages a queue would have to hold for it to end at any size.
    needs: Option<u32>,
    report: Diagnostic,
}

impl Hang {
    /// Fewer chunks in a message are more messages, so what hangs with some hangs with all that are fewer.
    fn of(plan: &Plan, options: &PlanCheck) -> Option<Self> {
        let steps = plan.ranks.iter().flat_map(|rank| &rank.blocks).flat_map(|block| &block.steps);
        let longest = steps.filter(|step| step.action.sends()).map(|step| u64::from(step.count)).max()?;
        // What cannot be lowered for these sizes does not run either.
        let lower = |together| plan.lower_in_messages(options.slots, together, &options.budget).ok();
        let hangs = |together| stuck(&lower(together)?.program);
        let most = longest.min(MAX_TOGETHER + 1);
        let (mut together, mut ends, mut report) = (1, most, (most > 1).then(|| hangs(1))??);
        while ends - together > 1 {
            let middle = together + (ends - together) / 2;
            match hangs(middle) {
                Some(found) => (together, report) = (middle, found),
                None => ends = middle,
            }
        }
        let needs = lower(1).and_then(|lowered| needed_slots(&lowered.program));
        Some(Self { together, needs, report })
    }

    /// The finding, unless the plan is for smaller arrays only.
    fn told(self, plan: &Plan) -> Option<Diagnostic> {
        // More than `together` chunks fit a slice while they are at most this long.
        let chunk = plan.protocol.slice_bytes() / (self.together + 1);
        let above = chunk.saturating_mul(plan.chunks.into());
        if plan.max_bytes.is_some_and(|most| most != 0 && most <= above) {
            return None;
        }
        let fit = if self.together == 1 { "one chunk fits" } else { &format!("{} chunks fit", self.together) };
        let message = format!("hangs above {above} bytes, where no more than {fit} a message: {}", self.report.message);
        let slots = self.needs.map(|needs| format!("; queues of {needs} messages would do")).unwrap_or_default();
        let hint = format!("send fewer chunks before receiving, or set maxBytes={above}{slots}");
        Some(Diagnostic { sites: self.report.sites, ..Diagnostic::new("AHBM-V416", message) }.hint(hint))
    }
}
