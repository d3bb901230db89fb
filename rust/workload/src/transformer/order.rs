//! In which order a pipeline stage takes its micro-batches.

/// Order of micro-batches in a stage (Narayanan et al. 2021, section 2.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Schedule {
    /// One forward, one backward: a stage runs ahead only as far as the stages behind it need.
    OneForwardOneBackward,
    /// All forward passes, then all backward passes (Huang et al., GPipe, 2019).
    GPipe,
}

/// A pass of a micro-batch through a stage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pass {
    Forward(u64),
    Backward(u64),
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

    /// The passes of stage `stage` of `stages`.
    pub(super) fn passes(self, stage: u64, stages: u64, micro_batches: u64) -> impl Iterator<Item = Pass> {
        let ahead = match self {
            Self::OneForwardOneBackward => (stages - stage - 1).min(micro_batches),
            Self::GPipe => micro_batches,
        };
        let steady = (ahead..micro_batches).flat_map(move |m| [Pass::Forward(m), Pass::Backward(m - ahead)]);
        let rest = (micro_batches - ahead..micro_batches).map(Pass::Backward);
        (0..ahead).map(Pass::Forward).chain(steady).chain(rest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stage_runs_ahead_as_far_as_those_behind_it() {
        let told = |schedule: Schedule, stage| -> String {
            let passes = schedule.passes(stage, 3, 4).map(|pass| match pass {
                Pass::Forward(m) => format!("F{m}"),
                Pass::Backward(m) => format!("B{m}"),
            });
            passes.collect::<Vec<_>>().join(" ")
        };
        assert_eq!(told(Schedule::OneForwardOneBackward, 0), "F0 F1 F2 B0 F3 B1 B2 B3");
        assert_eq!(told(Schedule::OneForwardOneBackward, 2), "F0 B0 F1 B1 F2 B2 F3 B3");
        assert_eq!(told(Schedule::GPipe, 1), "F0 F1 F2 F3 B0 B1 B2 B3");
        assert_eq!(Schedule::OneForwardOneBackward.passes(0, 9, 2).count(), 4, "fewer micro-batches than stages");
    }
}
