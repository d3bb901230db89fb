//! In which order a pipeline stage takes its micro-batches, and where its chunks of layers stand.

/// Order of micro-batches in a stage (Narayanan et al. 2021, section 2.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Schedule {
    /// One forward, one backward: a stage runs ahead only as far as the stages behind it need. With virtual stages a rank
    /// takes turns with its chunks of layers, as many micro-batches of each as there are ranks.
    OneForwardOneBackward,
    /// All forward passes, then all backward passes (Huang et al., GPipe, 2019).
    GPipe,
    /// As one forward, one backward; gradients of weights wait as many backward passes as there are stages before, and
    /// compute where the stage would wait (ZB-H1 of Qi et al., *Zero Bubble Pipeline Parallelism*, ICLR 2024).
    ZeroBubble,
    /// The second of two chunks goes back through the ranks, so that the last stages are the first rank's (ZB-V of Qi et
    /// al., *Pipeline Parallelism with Controllable Memory*, NeurIPS 2024).
    ZeroBubbleV,
    /// Chunks stand as in [`Schedule::ZeroBubbleV`]; a forward pass of one chunk and a backward pass of the other compute
    /// side by side, so that the communication of one lies behind the other (DualPipe of the *DeepSeek-V3 Technical
    /// Report*, 2024, as one V).
    DualPipeV,
}

/// Whose turn it is: a chunk of layers and a micro-batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Turn {
    pub(super) chunk: u64,
    pub(super) micro: u64,
}

/// A pass of a micro-batch through a chunk of layers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pass {
    Forward(Turn),
    /// All gradients.
    Backward(Turn),
    /// The gradients that stages before wait for; those of weights are left.
    Inputs(Turn),
    /// The gradients of weights that were left.
    Weights(Turn),
    /// A forward and a backward pass that know nothing of each other.
    Both(Turn, Turn),
}

impl Schedule {
    /// Every schedule.
    pub const ALL: [Self; 5] =
        [Self::OneForwardOneBackward, Self::GPipe, Self::ZeroBubble, Self::ZeroBubbleV, Self::DualPipeV];

    /// As the field writes it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::OneForwardOneBackward => "1f1b",
            Self::GPipe => "gpipe",
            Self::ZeroBubble => "zb1",
            Self::ZeroBubbleV => "zbv",
            Self::DualPipeV => "dualpipev",
        }
    }

    /// Whether a rank's two chunks are the arms of a V.
    pub const fn is_v(self) -> bool {
        matches!(self, Self::ZeroBubbleV | Self::DualPipeV)
    }

    /// Why there is no such order of so many stages, chunks of a stage and micro-batches.
    pub fn misfit(self, stages: u64, chunks: u64, micro_batches: u64) -> Option<String> {
        let name = self.name();
        match self {
            _ if self.is_v() && (stages == 1 || chunks != 2) => {
                Some(format!("the schedule {name} needs pp above 1 and virtual_stages of 2"))
            }
            Self::DualPipeV if micro_batches < 2 * stages => {
                let least = 2 * stages;
                Some(format!("the schedule {name} needs micro_batches from twice pp, {least}, and has {micro_batches}"))
            }
            _ if chunks > 1 && (stages == 1 || self == Self::GPipe) => {
                Some("virtual_stages need pp above 1 and a schedule that is not gpipe".into())
            }
            _ => None,
        }
    }

    /// Where a chunk of a stage stands in the model.
    pub(super) fn place(self, stage: u64, stages: u64, chunk: u64) -> u64 {
        if self.is_v() && chunk % 2 == 1 { (chunk + 1) * stages - 1 - stage } else { chunk * stages + stage }
    }

    /// The stage of a place in the model, and the chunk there.
    pub(super) fn at(self, place: u64, stages: u64) -> (u64, u64) {
        let (chunk, stage) = (place / stages, place % stages);
        (if self.is_v() && chunk % 2 == 1 { stages - 1 - stage } else { stage }, chunk)
    }

    /// The passes of stage `stage` of `stages`, which has `chunks` of layers, two where it is a V; a dual pipe has at
    /// least twice as many micro-batches as stages.
    pub(super) fn passes(self, stage: u64, stages: u64, chunks: u64, micro_batches: u64) -> Vec<Pass> {
        match self {
            Self::ZeroBubbleV => zero_bubble_v(stage, stages, micro_batches),
            Self::DualPipeV => dual_pipe_v(stage, stages, micro_batches),
            Self::OneForwardOneBackward | Self::GPipe | Self::ZeroBubble => {
                self.turns(stage, stages, chunks, micro_batches)
            }
        }
    }

    fn turns(self, stage: u64, stages: u64, chunks: u64, micro_batches: u64) -> Vec<Pass> {
        let all = micro_batches * chunks;
        // The n-th turn: `stages` micro-batches of a chunk, then as many of the next one.
        let turn = |n: u64| match chunks {
            1 => Turn { chunk: 0, micro: n },
            _ => Turn { chunk: n / stages % chunks, micro: n / (stages * chunks) * stages + n % stages },
        };
        let back = |n: u64| Turn { chunk: chunks - 1 - turn(n).chunk, ..turn(n) };
        let ahead = match (self, chunks) {
            (Self::GPipe, _) => all,
            (_, 1) => (stages - stage - 1).min(all),
            _ => (2 * (stages - stage - 1) + (chunks - 1) * stages).min(all),
        };
        let mut passes: Vec<Pass> = (0..ahead).map(|n| Pass::Forward(turn(n))).collect();
        for n in 0..all {
            passes.extend((n + ahead < all).then(|| Pass::Forward(turn(n + ahead))));
            if self == Self::ZeroBubble {
                passes.push(Pass::Inputs(back(n)));
                passes.extend(n.checked_sub(stage).map(|n| Pass::Weights(back(n))));
            } else {
                passes.push(Pass::Backward(back(n)));
            }
        }
        if self == Self::ZeroBubble {
            passes.extend((all.saturating_sub(stage)..all).map(|n| Pass::Weights(back(n))));
        }
        passes
    }

    /// Chunks of layers of a stage whose activations are kept, at most: from their forward pass to the gradients of their
    /// weights.
    pub fn in_flight(self, stage: u64, stages: u64, chunks: u64, micro_batches: u64) -> u64 {
        let (all, behind) = (micro_batches * chunks, stages - stage - 1);
        match (self, chunks) {
            (Self::GPipe, _) => all,
            (Self::OneForwardOneBackward, 1) => all.min(behind + 1),
            (Self::OneForwardOneBackward, _) => all.min(2 * behind + (chunks - 1) * stages + 1),
            _ => self.kept(stage, stages, chunks, micro_batches),
        }
    }

    /// As [`Schedule::in_flight`], counted.
    fn kept(self, stage: u64, stages: u64, chunks: u64, micro_batches: u64) -> u64 {
        let (mut kept, mut most) = (0u64, 0);
        for pass in self.passes(stage, stages, chunks, micro_batches) {
            match pass {
                Pass::Forward(_) => kept += 1,
                Pass::Backward(_) | Pass::Weights(_) => kept -= 1,
                Pass::Inputs(_) => {}
                // What the backward pass took is free when both have ended.
                Pass::Both(..) => most = most.max(kept + 1),
            }
            most = most.max(kept);
        }
        most
    }
}

/// Passes of two chunks, of which each takes its micro-batches in order.
#[derive(Default)]
struct Arms {
    passes: Vec<Pass>,
    forward: [u64; 2],
    inputs: [u64; 2],
    weights: [u64; 2],
    /// Chunks whose gradients of weights are left, in order.
    left: std::collections::VecDeque<usize>,
}

fn next(count: &mut [u64; 2], chunk: usize) -> Turn {
    count[chunk] += 1;
    Turn { chunk: chunk as u64, micro: count[chunk] - 1 }
}

impl Arms {
    fn forward(&mut self, chunk: usize) {
        self.passes.push(Pass::Forward(next(&mut self.forward, chunk)));
    }

    /// A whole backward pass, in two halves.
    fn backward(&mut self, chunk: usize) {
        self.inputs(chunk);
        self.weights();
    }

    fn inputs(&mut self, chunk: usize) {
        self.passes.push(Pass::Inputs(next(&mut self.inputs, chunk)));
        self.left.push_back(chunk);
    }

    /// The gradients of weights that were left first.
    fn weights(&mut self) {
        if let Some(chunk) = self.left.pop_front() {
            self.passes.push(Pass::Weights(next(&mut self.weights, chunk)));
        }
    }

    /// A backward pass as one, while others are left.
    fn whole(&mut self, chunk: usize) {
        let turn = next(&mut self.inputs, chunk);
        self.weights[chunk] += 1;
        self.passes.push(Pass::Backward(turn));
    }

    fn both(&mut self, forward: usize, backward: usize) {
        let turns = (next(&mut self.forward, forward), next(&mut self.inputs, backward));
        self.weights[backward] += 1;
        self.passes.push(Pass::Both(turns.0, turns.1));
    }
}

fn zero_bubble_v(stage: u64, stages: u64, micro_batches: u64) -> Vec<Pass> {
    let mut arms = Arms::default();
    // The shape needs so many; those that there are not are left out.
    let all = micro_batches.max(2 * stages - 1);
    let behind = stages - stage;
    (0..2 * behind - 1).for_each(|_| arms.forward(0));
    for _ in 0..stage {
        arms.forward(1);
        arms.forward(0);
    }
    for _ in 0..behind {
        arms.forward(1);
        arms.backward(1);
    }
    while arms.forward[1] < all {
        if arms.forward[0] < all {
            arms.forward(0);
        }
        arms.backward(0);
        arms.forward(1);
        arms.backward(1);
    }
    for _ in 0..stage {
        arms.inputs(0);
        arms.inputs(1);
    }
    for _ in 0..behind {
        arms.inputs(0);
        arms.weights();
    }
    while !arms.left.is_empty() {
        arms.weights();
    }
    let there = |pass: &Pass| match pass {
        Pass::Forward(of) | Pass::Backward(of) | Pass::Inputs(of) | Pass::Weights(of) | Pass::Both(of, _) => {
            of.micro < micro_batches
        }
    };
    arms.passes.retain(there);
    arms.passes
}

fn dual_pipe_v(stage: u64, stages: u64, micro_batches: u64) -> Vec<Pass> {
    let mut arms = Arms::default();
    let (behind, own) = (stages - stage - 1, stage + 1);
    (0..2 * behind).for_each(|_| arms.forward(0));
    for _ in 0..own {
        arms.forward(0);
        arms.forward(1);
    }
    for _ in 0..behind {
        arms.backward(1);
        arms.forward(1);
    }
    for at in 0..micro_batches + own - 2 * stages {
        if at == 0 && behind == 0 {
            // The turn of the V has just computed what it takes back.
            arms.forward(0);
            arms.whole(1);
        } else {
            arms.both(0, 1);
        }
        arms.both(1, 0);
    }
    for _ in 0..behind {
        arms.whole(1);
        arms.both(1, 0);
    }
    for at in 0..2 * own {
        let chunk = if at % 2 == 0 { 1 } else { 0 };
        if at < own { arms.whole(chunk) } else { arms.inputs(chunk) }
    }
    for _ in 0..behind {
        arms.weights();
        arms.inputs(0);
    }
    while !arms.left.is_empty() {
        arms.weights();
    }
    arms.passes
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn told(schedule: Schedule, stage: u64, chunks: u64) -> String {
        let of = |what: &str, turn: &Turn| {
            if chunks > 1 { format!("{what}{}.{}", turn.chunk, turn.micro) } else { format!("{what}{}", turn.micro) }
        };
        let word = |pass: &Pass| match pass {
            Pass::Forward(turn) => of("F", turn),
            Pass::Backward(turn) => of("B", turn),
            Pass::Inputs(turn) => of("I", turn),
            Pass::Weights(turn) => of("W", turn),
            Pass::Both(forward, backward) => format!("{}&{}", of("F", forward), of("B", backward)),
        };
        let passes = schedule.passes(stage, if chunks > 1 { 2 } else { 3 }, chunks, 4);
        passes.iter().map(word).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn a_stage_runs_ahead_as_far_as_those_behind_it() {
        assert_eq!(told(Schedule::OneForwardOneBackward, 0, 1), "F0 F1 F2 B0 F3 B1 B2 B3");
        assert_eq!(told(Schedule::OneForwardOneBackward, 2, 1), "F0 B0 F1 B1 F2 B2 F3 B3");
        assert_eq!(told(Schedule::GPipe, 1, 1), "F0 F1 F2 F3 B0 B1 B2 B3");
        assert_eq!(Schedule::OneForwardOneBackward.passes(0, 9, 1, 2).len(), 4, "fewer micro-batches than stages");
    }

    #[test]
    fn virtual_stages_take_turns() {
        // Narayanan et al. 2021, figure 4, of two ranks.
        let last = "F0.0 F0.1 F1.0 B1.0 F1.1 B1.1 F0.2 B0.0 F0.3 B0.1 F1.2 B1.2 F1.3 B1.3 B0.2 B0.3";
        assert_eq!(told(Schedule::OneForwardOneBackward, 1, 2), last);
        let first = "F0.0 F0.1 F1.0 F1.1 F0.2 B1.0 F0.3 B1.1 F1.2 B0.0 F1.3 B0.1 B1.2 B1.3 B0.2 B0.3";
        assert_eq!(told(Schedule::OneForwardOneBackward, 0, 2), first);
    }

    #[test]
    fn gradients_of_weights_wait() {
        assert_eq!(told(Schedule::ZeroBubble, 0, 1), "F0 F1 F2 I0 W0 F3 I1 W1 I2 W2 I3 W3");
        assert_eq!(told(Schedule::ZeroBubble, 2, 1), "F0 I0 F1 I1 F2 I2 W0 F3 I3 W1 W2 W3");
        assert!(told(Schedule::ZeroBubbleV, 1, 2).starts_with("F0.0 F1.0 F0.1 F1.1 I1.0 W1.0 F0.2 I0.0 W0.0"));
        assert!(told(Schedule::DualPipeV, 1, 2).contains("F1.2&B0.0 F0.3&B1.1"));
    }

    /// When everything ends where each half of a pass takes 1 and nothing else anything, with the least that a rank waits;
    /// panics where a rank waits for ever.
    fn took(schedule: Schedule, stages: u64, chunks: u64, micro: u64) -> u64 {
        let (mut now, mut next) = (vec![0; stages as usize], vec![0; stages as usize]);
        let orders: Vec<_> = (0..stages).map(|stage| schedule.passes(stage, stages, chunks, micro)).collect();
        let (mut forward, mut backward) = (BTreeMap::new(), BTreeMap::new());
        while (0..stages as usize).any(|rank| next[rank] < orders[rank].len()) {
            let mut moved = false;
            for rank in 0..stages as usize {
                let Some(pass) = orders[rank].get(next[rank]) else { continue };
                let place = |turn: &Turn| schedule.place(rank as u64, stages, turn.chunk);
                let last = stages * chunks - 1;
                let ready_forward = |turn: &Turn| match place(turn) {
                    0 => Some(0),
                    at => forward.get(&(at - 1, turn.micro)).copied(),
                };
                let ready_backward = |turn: &Turn| match place(turn) {
                    at if at == last => forward.get(&(at, turn.micro)).copied(),
                    at => backward.get(&(at + 1, turn.micro)).copied(),
                };
                let ready = match pass {
                    Pass::Forward(turn) => ready_forward(turn),
                    Pass::Backward(turn) | Pass::Inputs(turn) => ready_backward(turn),
                    Pass::Weights(_) => Some(0),
                    Pass::Both(f, b) => ready_forward(f).zip(ready_backward(b)).map(|(f, b)| f.max(b)),
                };
                let Some(ready) = ready else { continue };
                let begin = ready.max(now[rank]);
                now[rank] = begin
                    + match pass {
                        Pass::Forward(_) | Pass::Inputs(_) | Pass::Weights(_) => 1,
                        Pass::Backward(_) => 2,
                        Pass::Both(..) => 3,
                    };
                match pass {
                    Pass::Forward(turn) => {
                        forward.insert((place(turn), turn.micro), now[rank]);
                    }
                    Pass::Backward(turn) | Pass::Inputs(turn) => {
                        backward.insert((place(turn), turn.micro), now[rank]);
                    }
                    Pass::Weights(_) => {}
                    Pass::Both(f, b) => {
                        forward.insert((place(f), f.micro), now[rank]);
                        backward.insert((place(b), b.micro), now[rank]);
                    }
                }
                next[rank] += 1;
                moved = true;
            }
            assert!(moved, "{schedule:?} of {stages} stages and {micro} micro-batches waits for ever");
        }
        now.into_iter().max().unwrap_or(0)
    }

    #[test]
    fn bubbles_are_those_of_the_papers() {
        for (stages, micro) in [(2, 4), (4, 8), (4, 12), (8, 32)] {
            let ideal = |chunks: u64| 3 * micro * chunks;
            // (p - 1)(F + B + W), (p - 1)(F + B - W), and none but what fills the V (Qi et al., table 2).
            assert_eq!(took(Schedule::OneForwardOneBackward, stages, 1, micro), ideal(1) + 3 * (stages - 1));
            assert_eq!(took(Schedule::GPipe, stages, 1, micro), ideal(1) + 3 * (stages - 1));
            assert_eq!(took(Schedule::ZeroBubble, stages, 1, micro), ideal(1) + stages - 1);
            assert_eq!(took(Schedule::ZeroBubbleV, stages, 2, micro), ideal(2) + stages - 1);
            assert!(
                took(Schedule::DualPipeV, stages, 2, micro) < took(Schedule::OneForwardOneBackward, stages, 2, micro)
            );
        }
    }

    #[test]
    fn every_pass_is_taken_once_and_in_order() {
        for schedule in Schedule::ALL {
            for (stages, micro) in [(1, 2), (2, 4), (3, 6), (4, 9), (5, 40)] {
                let chunks = if schedule.is_v() { 2 } else { 1 };
                for stage in 0..stages {
                    let passes = schedule.passes(stage, stages, chunks, micro);
                    let mut ends: BTreeMap<Turn, [u64; 3]> = BTreeMap::new();
                    let mut count = |turn: Turn, halves: &[usize]| {
                        for &half in halves {
                            let done = ends.entry(turn).or_default();
                            assert!(done[..half].iter().all(|&before| before == 1), "{schedule:?} {turn:?}");
                            done[half] += 1;
                        }
                    };
                    for pass in passes {
                        match pass {
                            Pass::Forward(turn) => count(turn, &[0]),
                            Pass::Backward(turn) => count(turn, &[1, 2]),
                            Pass::Inputs(turn) => count(turn, &[1]),
                            Pass::Weights(turn) => count(turn, &[2]),
                            Pass::Both(forward, backward) => {
                                count(backward, &[1, 2]);
                                count(forward, &[0]);
                            }
                        }
                    }
                    assert_eq!(ends.len() as u64, chunks * micro);
                    assert!(ends.values().all(|&done| done == [1; 3]), "{schedule:?}");
                    let kept = schedule.in_flight(stage, stages, chunks, micro);
                    assert_eq!(kept, schedule.kept(stage, stages, chunks, micro));
                    assert!(kept >= 1 && kept <= chunks * micro);
                    if schedule == Schedule::ZeroBubble {
                        assert_eq!(kept, stages.min(micro), "no more than the first stage of 1f1b");
                    }
                }
                if stages > 1 {
                    took(schedule, stages, chunks, micro.max(2 * stages));
                }
            }
        }
    }
}
