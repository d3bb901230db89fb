//! The counters of several calls.

use crate::support::Subject;
use ahbm_program::{Control, OpKind};

/// Counters by call: one that agents only wait on starts anew with every call, a semaphore keeps its value.
#[derive(Debug, Clone)]
pub(crate) struct Counters {
    pub(crate) values: Vec<u64>,
    /// Taken from, rather than waited on.
    pub(crate) semaphore: Vec<bool>,
    /// The first launch's surplus of signals over a later launch's: each counter starts and ends with it.
    pub(crate) initial: Vec<u64>,
}

impl Counters {
    pub(crate) fn new(subject: Subject<'_>) -> Self {
        let program = subject.program;
        let mut semaphore = vec![false; program.counters as usize];
        for op in subject.programs().flat_map(|program| &program.bodies).flat_map(|body| &body.ops) {
            if let OpKind::Control(Control::Acquire { counter, .. }) = op.kind {
                semaphore[counter as usize] = true;
            }
        }
        let mut initial = vec![0; semaphore.len()];
        if let Some(last) = subject.later.last() {
            for (launch, is_first) in [(program, true), (last, false)] {
                for op in launch.agents.iter().flat_map(|agent| &launch.bodies[agent.body as usize].ops) {
                    if let OpKind::Control(Control::Signal { counter, add, .. }) = op.kind {
                        let sum = &mut initial[counter as usize];
                        *sum = if is_first { *sum + u64::from(add) } else { sum.saturating_sub(add.into()) };
                    }
                }
            }
        }
        Self { values: vec![0; semaphore.len() * subject.calls as usize], semaphore, initial }
    }

    /// The counter that an operation of a call means.
    pub(crate) fn index(&self, counter: u32, call: u32) -> usize {
        let first = counter as usize;
        if self.semaphore[first] { first } else { first + call as usize * self.semaphore.len() }
    }

    pub(crate) fn len(&self) -> usize {
        self.values.len()
    }

    /// The signals of a counter that no semaphore is, in all calls.
    pub(crate) fn total(&self, counter: usize) -> u64 {
        self.values.iter().skip(counter).step_by(self.semaphore.len().max(1)).sum()
    }
}
