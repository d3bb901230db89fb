//! Operations: the small closed set that every source is expressed in.
//!
//! # Who waits for whom
//!
//! Three interpreters run the operations: the timing pass of the emulator says when, its data pass says what, and the
//! check runs them in any order, without time. They agree on these rules, and a property test of the check holds all
//! three to them on random programs.
//!
//! Operations of one agent take effect one after the other. Agents affect each other by the operations below alone, and
//! by the memory they share.
//!
//! | operation | waits until | then |
//! |---|---|---|
//! | [`Send`](Comm::Send) | the channel has a free slot | occupies the slot; does not wait for delivery |
//! | [`AwaitSlot`](Comm::AwaitSlot) | the channel has a free slot | nothing |
//! | [`Recv`](Comm::Recv) | the channel's next message is there | takes it and frees its slot |
//! | [`RecvAny`](Comm::RecvAny) | a channel that leads to the agent has a message | takes it from the first such channel, beginning behind the one it took from last, in order of direction |
//! | [`PostRecv`](Comm::PostRecv) | never | claims the channel's next message; its slot is freed once the message is there |
//! | [`Await`](Comm::Await) | the message of the posted receive is there | takes it; a receive that is complete may be awaited again |
//! | [`Signal`](Control::Signal) | never | adds to the counter; `posted`, once everything that the agent posted before has arrived |
//! | [`WaitCounter`](Control::WaitCounter) | the counter has reached the value | nothing |
//! | [`Acquire`](Control::Acquire) | the counter has reached the amount | subtracts the amount |
//! | [`Fence`](Control::Fence) | everything that the agent posted has arrived | nothing |
//! | [`Barrier`](Control::Barrier) | as many agents as it has participants are at it | lets all of them go on; it can be used again |
//! | all others | never | |
//!
//! A channel is a queue, first in, first out: the n-th message sent is the n-th received or claimed, in the order of the
//! sender's and the receiver's operations. A program *stops* where no agent can go on and some have operations left.
//!
//! The interpreters differ in what they leave out. The check and the data pass know no transfers under way: a posted
//! signal adds at once, and a fence never waits. The data pass has no slots either: it follows a timing pass that ended.
//! Which message a `RecvAny` takes, and which of several agents acquires first, depends on time; the timing pass records
//! its choices of messages and the data pass repeats them.
//!
//! # Adding an operation
//!
//! It belongs to one of four families: [`Math`] makes a value of values, [`Move`] touches memory, [`Comm`] messages,
//! [`Control`] other agents or the clock. An interpreter has one arm for a family that is not its business.
//!
//! The compiler names these places, whose matches have no arm for the rest of a family:
//!
//! - [`Op::describe`] in `text`, and [`OpKind::operands`] in `lint/operands`; of math also [`Math::dst`] here
//! - the `hash` of a program: append a number
//! - the emulator's `timing/wiring` (the routes it needs), `timing/agent` (`advance`) and `data/replay` (`step`) for all
//!   but math, `data/compute` (`apply`) for math
//! - the check's `schedule` (`effect`) for messages and control, `values` (`done`) for memory and messages
//!
//! These have an arm for the rest, which may have to change:
//!
//! - here [`Op::defines`] and [`OpKind::direction`]; `lint/shape`, `lint/values` and `lint/traffic`; `builder` for what
//!   moves messages; `class/member` for what names memory or directions; `text` for operands that it should print
//! - the emulator's `timing/agent` (`math_ps`) for math that is not one pass over its tile, and `data/liveness` for
//!   results whose tile is not the operation's
//! - the check's `values` (what a result of math is made of) and `clocks` (what it orders)
//! - the views' `tracks` for what deserves a look of its own
//! - the sources that issue it: `tl` in the border crate, `plan`, `synthesis`

/// A value slot of a body. Values are immutable; a slot is reused once its value is dead.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ValueId(pub u32);

/// One operation of an agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Op {
    /// The operation's kind.
    pub kind: OpKind,
    /// Kernel calls since the previous operation, this one included; each costs one dispatch.
    pub calls: u16,
}

/// Element-wise functions of one argument.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum UnaryFn {
    Neg,
    Exp,
    Log,
    Sqrt,
}

/// Element-wise functions of two arguments. Comparisons yield 0 or 1 in the operands' dtype.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum BinaryFn {
    Add,
    Sub,
    Mul,
    Div,
    Max,
    Min,
    Lt,
    Le,
    Gt,
    Ge,
    Eq,
    Ne,
    And,
    Or,
    Xor,
}

impl BinaryFn {
    /// True for the functions whose result does not depend on the order of their operands, rounding aside.
    pub fn reduces(self) -> bool {
        matches!(self, Self::Add | Self::Mul | Self::Max | Self::Min | Self::And | Self::Or | Self::Xor)
    }

    /// True for the functions of bits, which integers have and floating-point numbers do not.
    pub fn is_bitwise(self) -> bool {
        matches!(self, Self::And | Self::Or | Self::Xor)
    }
}

/// Reductions along an axis.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum ReduceFn {
    Sum,
    Max,
    Min,
}

/// The effect of an operation, by family. `tile` indexes [`crate::Body::tiles`], `mem` [`crate::Body::mems`], `group`
/// [`crate::Body::groups`], `dir` [`crate::Body::directions`] and `scalar` [`crate::Body::scalars`] of the body the
/// operation stands in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum OpKind {
    /// Values of values alone.
    Math(Math),
    /// Memory and values.
    Move(Move),
    /// Messages.
    Comm(Comm),
    /// The order of agents.
    Control(Control),
}

/// Computes a value of values alone; it is done when the engine has done it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum Math {
    /// Every element equal to a scalar.
    Fill { dst: ValueId, scalar: u32, tile: u32 },
    /// `start, start + 1, …` along the only axis.
    Arange { dst: ValueId, start: u32, tile: u32 },
    /// Element-wise function of one value.
    Unary { f: UnaryFn, dst: ValueId, a: ValueId, tile: u32 },
    /// Element-wise function of two values with NumPy broadcasting; `tile` is the result's.
    Binary { f: BinaryFn, dst: ValueId, a: ValueId, b: ValueId, tile: u32 },
    /// Element-wise function of a value and a scalar; `swapped` puts the scalar first.
    BinaryScalar { f: BinaryFn, swapped: bool, dst: ValueId, a: ValueId, scalar: u32, tile: u32 },
    /// `a * b + c`, rounded once.
    Fma { dst: ValueId, a: ValueId, b: ValueId, c: ValueId, tile: u32 },
    /// `min(max(a, lo), hi)` with scalar bounds.
    Clamp { dst: ValueId, a: ValueId, lo: u32, hi: u32, tile: u32 },
    /// `cond != 0 ? a : b`.
    Where { dst: ValueId, cond: ValueId, a: ValueId, b: ValueId, tile: u32 },
    /// Reduction along `axis` (all axes when negative); `tile` is the operand's.
    Reduce { f: ReduceFn, axis: i8, dst: ValueId, a: ValueId, tile: u32 },
    /// Softmax along `axis`.
    Softmax { axis: i8, dst: ValueId, a: ValueId, tile: u32 },
    /// Matrix product; `tile` has the extents `[m, k, n]` and the result's dtype.
    Dot { dst: ValueId, a: ValueId, b: ValueId, tile: u32 },
    /// Transpose of a matrix; `tile` is the result's.
    Transpose { dst: ValueId, a: ValueId, tile: u32 },
    /// Dtype conversion, round to nearest even; `tile` is the result's.
    Cast { dst: ValueId, a: ValueId, tile: u32 },
}

/// Moves bytes between memory and values, or from memory to memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum Move {
    /// Memory to value: a DMA read, complete when the last byte is there.
    Load { dst: ValueId, mem: u32, tile: u32 },
    /// Value to memory: a DMA write, complete when the last byte is written; `posted`, the agent goes on when the last
    /// byte has left.
    Store { src: ValueId, mem: u32, tile: u32, posted: bool },
    /// The same range of several memories to one value, reduced by the switch between them in the order of the group:
    /// a DMA read, complete when the last byte is there.
    ReducingLoad { f: BinaryFn, dst: ValueId, group: u32, tile: u32 },
    /// One value to several memories, copied by the switch between them: a posted DMA write, which arrives when it has
    /// arrived everywhere.
    Multicast { src: ValueId, group: u32, tile: u32 },
    /// Memory to memory: a one-sided DMA (put or get), complete when the last byte is written; `posted` as in a store.
    Copy { src: u32, dst: u32, tile: u32, posted: bool },
}

/// Sends and receives messages over channels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum Comm {
    /// Posted send: waits for a free slot, not for delivery.
    Send { dir: u16, src: ValueId, tile: u32 },
    /// Waits until the next send in this direction would find a free slot. Before a receive whose message is
    /// passed on, it keeps the receive's own slot occupied until then.
    AwaitSlot { dir: u16 },
    /// Blocking receive of the next message.
    Recv { dir: u16, dst: ValueId, tile: u32 },
    /// Blocking receive from the next direction, in turn, that has a message.
    RecvAny { dst: ValueId, tile: u32 },
    /// Posts a receive that completes in the background; `dst` is usable after [`Comm::Await`].
    PostRecv { dir: u16, dst: ValueId, tile: u32 },
    /// Waits for a posted receive.
    Await { value: ValueId },
}

/// Orders agents, or passes time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum Control {
    /// Adds to a counter of the program. `posted`, it travels behind what the agent has posted: the agent goes on, and
    /// the counter grows once all of that has arrived.
    Signal { counter: u32, add: u32, posted: bool },
    /// Waits until everything the agent has posted has arrived.
    Fence,
    /// Waits until a counter has reached a value.
    WaitCounter { counter: u32, at_least: u32 },
    /// Waits until a counter has reached an amount and takes it: a semaphore.
    Acquire { counter: u32, amount: u32 },
    /// Waits for every agent of the program's barrier `id`.
    Barrier { id: u32 },
    /// Occupies the agent for a fixed time.
    Delay { ps: u64 },
}

impl Op {
    /// The value this operation defines.
    pub fn defines(&self) -> Option<ValueId> {
        match self.kind {
            OpKind::Math(math) => Some(math.dst()),
            OpKind::Move(Move::Load { dst, .. } | Move::ReducingLoad { dst, .. })
            | OpKind::Comm(Comm::Recv { dst, .. } | Comm::RecvAny { dst, .. } | Comm::PostRecv { dst, .. }) => {
                Some(dst)
            }
            OpKind::Move(_) | OpKind::Comm(_) | OpKind::Control(_) => None,
        }
    }
}

impl OpKind {
    /// The body-local direction a message operation uses.
    pub fn direction(&self) -> Option<u16> {
        match *self {
            Self::Comm(
                Comm::Send { dir, .. } | Comm::AwaitSlot { dir } | Comm::Recv { dir, .. } | Comm::PostRecv { dir, .. },
            ) => Some(dir),
            _ => None,
        }
    }
}

impl From<Math> for OpKind {
    fn from(math: Math) -> Self {
        Self::Math(math)
    }
}

impl From<Move> for OpKind {
    fn from(moved: Move) -> Self {
        Self::Move(moved)
    }
}

impl From<Comm> for OpKind {
    fn from(comm: Comm) -> Self {
        Self::Comm(comm)
    }
}

impl From<Control> for OpKind {
    fn from(control: Control) -> Self {
        Self::Control(control)
    }
}

impl Math {
    /// The value it makes.
    pub const fn dst(self) -> ValueId {
        self.result().0
    }

    /// The tile that its work is counted by.
    pub const fn tile(self) -> u32 {
        self.result().1
    }

    const fn result(self) -> (ValueId, u32) {
        match self {
            Self::Fill { dst, tile, .. }
            | Self::Arange { dst, tile, .. }
            | Self::Unary { dst, tile, .. }
            | Self::Binary { dst, tile, .. }
            | Self::BinaryScalar { dst, tile, .. }
            | Self::Fma { dst, tile, .. }
            | Self::Clamp { dst, tile, .. }
            | Self::Where { dst, tile, .. }
            | Self::Reduce { dst, tile, .. }
            | Self::Softmax { dst, tile, .. }
            | Self::Dot { dst, tile, .. }
            | Self::Transpose { dst, tile, .. }
            | Self::Cast { dst, tile, .. } => (dst, tile),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn families_cost_no_memory() {
        assert_eq!((size_of::<OpKind>(), size_of::<Op>()), (24, 32));
    }
}
