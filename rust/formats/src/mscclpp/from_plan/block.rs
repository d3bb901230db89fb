//! The operations of one thread block.

use super::cannot_express;
use super::order::Order;
use super::queues::{Queue, Queues};
use ahbm_findings::Diagnostic;
use ahbm_plan::blocks::{Action as Step, Block, Precopy, Slot};
use ahbm_plan::execution::{Action, Form, Kind, Op, Operand, Words};
use ahbm_plan::{Extents, Plan, Protocol, Space, blocks};
use ahbm_program::BinaryFn;

/// Semaphores that one operation may name.
const SEMAPHORES: usize = 16;

/// Writes one thread block.
pub(super) struct Writer<'a> {
    plan: &'a Plan,
    rank: u32,
    extents: &'a Extents,
    queues: &'a Queues,
    /// Scratch for the sums that the block only sends, which it uses in turn.
    sums: u32,
    ops: Vec<Op>,
    /// The operands that have been read and written (true) since the threads of the block last met.
    touched: Vec<(Operand, bool)>,
    /// One thread has waited since, the others do not know yet.
    waited: bool,
}

impl<'a> Writer<'a> {
    pub(super) fn new(plan: &'a Plan, rank: u32, extents: &'a Extents, queues: &'a Queues, sums: u32) -> Self {
        let (ops, touched) = (Vec::new(), Vec::new());
        Self { plan, rank, extents, queues, sums, ops, touched, waited: false }
    }

    pub(super) fn finish(self) -> Vec<Op> {
        self.ops
    }

    /// All steps, then the credits that are left.
    pub(super) fn block(&mut self, index: u32, block: &Block, order: &Order) -> Result<(), Diagnostic> {
        let queues = self.queues;
        let inbox = block.recv.and_then(|peer| queues.get(peer, self.rank, block.channel));
        let outbox = block.send.and_then(|peer| queues.get(self.rank, peer, block.channel));
        let packets = self.plan.protocol == Protocol::Ll;
        let (mut taken, mut sent, mut credits) = (0, 0, 0);
        for (s, step) in (0u32..).zip(&block.steps) {
            if let Some(id) = order.acquire(index, s) {
                self.push(Action::Acquire([id].into()), Words::local("sem_acquire"));
                self.waited = true;
            }
            let input = inbox.filter(|_| step.action.receives());
            let output = outbox.filter(|_| step.action.sends());
            let needs_credit = output.filter(|queue| !packets && sent >= queue.depth());
            let waits: Vec<u32> = [needs_credit.map(|q| q.ends[0]), input.filter(|_| !packets).map(|q| q.ends[1])]
                .into_iter()
                .flatten()
                .collect();
            self.wait(waits);
            credits += u32::from(needs_credit.is_some());
            let from = input.map(|queue| self.slot(queue, taken, step.count));
            let to = output.map(|queue| self.slot(queue, sent, step.count));
            self.step(step, from, to)?;
            (taken, sent) = (taken + u32::from(input.is_some()), sent + u32::from(output.is_some()));
            if !packets {
                let credit = input.map(|queue| (queue.ends[1], queue.ends[0]));
                let message = output.map(|queue| (queue.ends[0], queue.ends[1]));
                self.signal(credit.into_iter().chain(message).collect());
            }
            for ids in order.release(index, s).chunks(SEMAPHORES) {
                self.meet();
                self.push(Action::Release(ids.into()), Words::local("sem_release"));
            }
        }
        if let Some(queue) = outbox.filter(|_| !packets) {
            // Never more than the receiver gives.
            (credits..queue.taken.min(queue.sent)).for_each(|_| self.wait(vec![queue.ends[0]]));
        }
        Ok(())
    }

    /// Copies outside the thread blocks.
    pub(super) fn copies(&mut self, list: &[Precopy]) -> Result<(), Diagnostic> {
        for copy in list {
            let slot = |space, chunk| Slot { space, chunk };
            let src = self.own(slot(Space::Input, copy.input), copy.count, copy.line)?;
            let dst = self.own(slot(Space::Output, copy.output), copy.count, copy.line)?;
            self.transfer("copy", src, dst);
        }
        Ok(())
    }

    /// Meets the other thread blocks of the rank.
    pub(super) fn barrier(&mut self, index: Option<u32>) {
        if let Some(index) = index {
            self.push(Action::Barrier(index), Words::local("barrier"));
            self.touched.clear();
            self.waited = false;
        }
    }

    fn step(&mut self, step: &blocks::Step, from: Option<Operand>, to: Option<Operand>) -> Result<(), Diagnostic> {
        let packets = self.plan.protocol == Protocol::Ll;
        let name = |plain, packed| if packets { packed } else { plain };
        let src = if step.action.reads() { Some(self.own(step.src, step.count, step.line)?) } else { None };
        let dst = if step.action.writes() { Some(self.own(step.dst, step.count, step.line)?) } else { None };
        match (step.action, src, dst, from, to) {
            (Step::Send, Some(src), _, _, Some(to)) => self.transfer(name("put", "ppkt"), src, to),
            (Step::Recv | Step::RecvCopySend, _, Some(dst), Some(from), to) => {
                self.transfer(name("copy", "upkt"), from, dst);
                if let Some(to) = to {
                    self.transfer(name("put", "rppkt"), from, to);
                }
            }
            (Step::RecvReduceCopy, Some(src), Some(dst), Some(from), _) => {
                self.reduce(name("re", "repkt"), [src, from], vec![dst]);
            }
            (Step::RecvReduceSend, Some(src), _, Some(from), Some(to)) => {
                // A plain slot is the receiver's own until it gives the credit; packets cannot hold a sum.
                let room = Operand { rank: self.rank, chunk: self.sums, form: Form::Plain, ..from };
                let sum = if packets { room } else { from };
                self.reduce(name("res", "respkt"), [src, from], vec![sum, to]);
            }
            (Step::RecvReduceCopySend, Some(src), Some(dst), Some(from), Some(to)) => {
                self.reduce(name("res", "respkt"), [src, from], vec![dst, to]);
            }
            (Step::Copy, Some(src), Some(dst), ..) => self.transfer("copy", src, dst),
            (Step::Reduce, Some(src), Some(dst), ..) => self.reduce("re", [dst, src], vec![dst]),
            // Nothing but its dependency.
            _ => {}
        }
        Ok(())
    }

    fn transfer(&mut self, name: &'static str, src: Operand, dst: Operand) {
        let kind = if dst.rank == self.rank { Kind::None } else { Kind::Memory };
        let waits = src.form == Form::Packets;
        let action = Action::Move { pairs: [(src, dst)].into(), waits, signals: Box::default() };
        self.data(action, Words { name, kind, ends: Box::default() });
    }

    /// The rank's own data first, as files name it.
    fn reduce(&mut self, name: &'static str, mut operands: [Operand; 2], results: Vec<Operand>) {
        if operands[1].form == Form::Packets {
            operands.swap(0, 1);
        }
        let kind = if results.len() > 1 { Kind::Memory } else { Kind::None };
        let action = Action::Reduce { function: BinaryFn::Add, operands: operands.into(), results: results.into() };
        self.data(action, Words { name, kind, ends: Box::default() });
    }

    /// An operation on data: the threads meet first where it touches what an earlier one has touched.
    fn data(&mut self, action: Action, words: Words) {
        let mut own = Vec::new();
        action.each_operand(|operand, written| {
            if operand.rank == self.rank && operand.form == Form::Plain {
                own.push((*operand, written));
            }
        });
        if self.waited || own.iter().any(|now| self.touched.iter().any(|before| self.conflict(now, before))) {
            self.meet();
        }
        self.touched.extend(own);
        self.push(action, words);
    }

    fn conflict(&self, (a, writes): &(Operand, bool), (b, wrote): &(Operand, bool)) -> bool {
        let home = |operand: &Operand| self.extents.home(operand.space, operand.chunk.into());
        let ((space, at), (other, there)) = (home(a), home(b));
        (*writes || *wrote) && space == other && at < there + u64::from(b.count) && there < at + u64::from(a.count)
    }

    fn wait(&mut self, ends: Vec<u32>) {
        if !ends.is_empty() {
            let words = Words { name: "wait", kind: Kind::Memory, ends: ends.clone().into() };
            self.push(Action::Wait(ends.into()), words);
            self.waited = true;
        }
    }

    /// Own ends with the ones that the signals arrive at.
    fn signal(&mut self, ends: Vec<(u32, u32)>) {
        if !ends.is_empty() {
            self.meet();
            let words = Words { name: "signal", kind: Kind::Memory, ends: ends.iter().map(|(own, _)| *own).collect() };
            self.push(Action::Signal(ends.iter().map(|(_, other)| Some(*other)).collect()), words);
        }
    }

    /// The threads of the block meet, unless they have since anything happened.
    fn meet(&mut self) {
        if self.waited || !self.touched.is_empty() {
            self.push(Action::Sync, Words::local("nop"));
        }
        self.touched.clear();
        self.waited = false;
    }

    fn push(&mut self, action: Action, words: Words) {
        let index = self.ops.len() as u32;
        self.ops.push(Op { action, words, share: None, index, place: 0 });
    }

    fn own(&self, slot: Slot, count: u32, line: u32) -> Result<Operand, Diagnostic> {
        let end = u64::from(slot.chunk) + u64::from(count);
        let has = self.extents.of(slot.space);
        if end > u64::from(has) {
            let (from, name) = (slot.chunk, slot.space.name());
            let what = format!("chunks [{from}, {end}) of buffer {name}, which has {has} in this collective");
            return Err(cannot_express(self.plan, self.rank, line, what));
        }
        Ok(Operand { rank: self.rank, space: slot.space, chunk: slot.chunk, count, form: Form::Plain })
    }

    fn slot(&self, queue: &Queue, n: u32, count: u32) -> Operand {
        let form = if self.plan.protocol == Protocol::Ll { Form::Packets } else { Form::Plain };
        Operand { rank: queue.to, space: Space::Scratch, chunk: queue.slot(n), count, form }
    }
}

/// Chunks of the largest sum that a block only sends and has no slot for.
pub(super) fn sums(protocol: Protocol, block: &Block) -> u32 {
    let only_sent = |step: &&blocks::Step| protocol == Protocol::Ll && step.action == Step::RecvReduceSend;
    block.steps.iter().filter(only_sent).map(|step| step.count).max().unwrap_or(0)
}
