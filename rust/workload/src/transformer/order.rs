//! In which order a pipeline stage takes its micro-batches.

/// Order of micro-batches in a stage (Narayanan et al. 2021, section 2.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Schedule {
    /// One forward, one backward: a stage runs ahead only as far as the stages behind it need. With virtual stages a rank
    /// takes turns with its chunks of layers, as many micro-batches of each as there are ranks.
    OneForwardOneBackward,
    /// All forward passes, then all backward passes (Huang et al., GPipe, 2019).
    GPipe,
}

/// A pass of a micro-batch through a chunk of layers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pass {
    Forward { chunk: u64, micro: u64 },
    Backward { chunk: u64, micro: u64 },
}

impl Schedule {
    /// Every schedule.
    pub const ALL: [Self; 2] = [Self::OneForwardOneBackward, Self::GPipe];

    /// As the field writes it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::OneForwardOneBackward => "1f1b",
            Self::GPipe => "gpipe",
        }
    }

    /// The passes of stage `stage` of `stages`, which has `chunks` of layers.
    pub(super) fn passes(self, stage: u64, stages: u64, chunks: u64, micro_batches: u64) -> impl Iterator<Item = Pass> {
        let all = micro_batches * chunks;
        // The n-th turn: `stages` micro-batches of a chunk, then as many of the next one.
        let turn = move |n: u64| match chunks {
            1 => (0, n),
            _ => (n / stages % chunks, n / (stages * chunks) * stages + n % stages),
        };
        let forward = move |n: u64| {
            let (chunk, micro) = turn(n);
            Pass::Forward { chunk, micro }
        };
        let backward = move |n: u64| {
            let (chunk, micro) = turn(n);
            Pass::Backward { chunk: chunks - 1 - chunk, micro }
        };
        let ahead = match (self, chunks) {
            (Self::GPipe, _) => all,
            (_, 1) => (stages - stage - 1).min(all),
            _ => (2 * (stages - stage - 1) + (chunks - 1) * stages).min(all),
        };
        let steady = (ahead..all).flat_map(move |n| [forward(n), backward(n - ahead)]);
        (0..ahead).map(forward).chain(steady).chain((all - ahead..all).map(backward))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(schedule: Schedule, stage: u64, chunks: u64) -> String {
        let passes = schedule.passes(stage, if chunks > 1 { 2 } else { 3 }, chunks, 4).map(|pass| {
            let (what, chunk, micro) = match pass {
                Pass::Forward { chunk, micro } => ("F", chunk, micro),
                Pass::Backward { chunk, micro } => ("B", chunk, micro),
            };
            if chunks > 1 { format!("{what}{chunk}.{micro}") } else { format!("{what}{micro}") }
        });
        passes.collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn a_stage_runs_ahead_as_far_as_those_behind_it() {
        assert_eq!(told(Schedule::OneForwardOneBackward, 0, 1), "F0 F1 F2 B0 F3 B1 B2 B3");
        assert_eq!(told(Schedule::OneForwardOneBackward, 2, 1), "F0 B0 F1 B1 F2 B2 F3 B3");
        assert_eq!(told(Schedule::GPipe, 1, 1), "F0 F1 F2 F3 B0 B1 B2 B3");
        assert_eq!(Schedule::OneForwardOneBackward.passes(0, 9, 1, 2).count(), 4, "fewer micro-batches than stages");
    }

    #[test]
    fn virtual_stages_take_turns() {
        // Narayanan et al. 2021, figure 4, of two ranks.
        let last = "F0.0 F0.1 F1.0 B1.0 F1.1 B1.1 F0.2 B0.0 F0.3 B0.1 F1.2 B1.2 F1.3 B1.3 B0.2 B0.3";
        assert_eq!(told(Schedule::OneForwardOneBackward, 1, 2), last);
        let first = "F0.0 F0.1 F1.0 F1.1 F0.2 B1.0 F0.3 B1.1 F1.2 B0.0 F1.3 B0.1 B1.2 B1.3 B0.2 B0.3";
        assert_eq!(told(Schedule::OneForwardOneBackward, 0, 2), first);
    }
}
