//! A program's operations in one order in which they can take effect, for whoever wants to follow them.

use crate::deadlock;
use crate::schedule::{Ended, Fence, Nobody, Order, Schedule, Watch, min_slots};
use crate::support::{Step, Subject};
use ahbm_findings::Diagnostic;
use ahbm_program::{AgentId, ChannelId, Program};

/// Told of a walk, in the order in which things happen.
pub trait Walker {
    /// An operation took effect; `message` is the one that it sends, takes, or has posted a receive for: its channel, and
    /// its number on it.
    fn done(&mut self, agent: AgentId, op: u32, message: Option<(ChannelId, u64)>);
    /// The participants of a barrier met. Barriers are told by this alone.
    fn met(&mut self, participants: &[AgentId]);
}

/// Walks through a structurally sound program in one order in which its operations can take effect, without time. False
/// when it gets stuck, or the user does not want it any more.
pub fn walk(program: &Program, walker: &mut impl Walker) -> bool {
    struct Told<'w, W>(&'w mut W);
    impl<W: Walker> Watch for Told<'_, W> {
        fn done(&mut self, step: &Step) -> Result<(), Diagnostic> {
            self.0.done(step.agent, step.op, step.message);
            Ok(())
        }
        fn released(&mut self, participants: &[AgentId]) {
            self.0.met(participants);
        }
    }
    let order = Order::of(0, program.agents.len(), 0);
    Schedule::new(Subject::once(program), None, order, Fence::World).run(&mut Told(walker)) == Ok(Ended::Complete)
}

/// The operations of a structurally sound program in the order of [`walk`], barriers left out; `None` when it gets
/// stuck.
pub(crate) fn sequence(program: &Program) -> Option<Vec<(AgentId, u32)>> {
    struct Record(Vec<(AgentId, u32)>);
    impl Walker for Record {
        fn done(&mut self, agent: AgentId, op: u32, _: Option<(ChannelId, u64)>) {
            self.0.push((agent, op));
        }
        fn met(&mut self, _: &[AgentId]) {}
    }
    let mut record = Record(Vec::with_capacity(program.ops() as usize));
    walk(program, &mut record).then_some(record.0)
}

/// Messages that every queue of a structurally sound program must hold for it to end; `None` without queues, and when it
/// gets stuck whatever they hold.
pub fn needed_slots(program: &Program) -> Option<u32> {
    min_slots(Subject::once(program))
}

/// Who waits for whom where a structurally sound program gets stuck; `None` when it ends.
pub(crate) fn stuck(program: &Program) -> Option<Diagnostic> {
    let order = Order::of(0, program.agents.len(), 0);
    let mut schedule = Schedule::new(Subject::once(program), None, order, Fence::Rank);
    (schedule.run(&mut Nobody) == Ok(Ended::Stuck)).then(|| deadlock::report(&schedule))
}
