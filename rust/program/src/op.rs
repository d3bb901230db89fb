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
//! | [`Send`](OpKind::Send) | the channel has a free slot | occupies the slot; does not wait for delivery |
//! | [`AwaitSlot`](OpKind::AwaitSlot) | the channel has a free slot | nothing |
//! | [`Recv`](OpKind::Recv) | the channel's next message is there | takes it and frees its slot |
//! | [`RecvAny`](OpKind::RecvAny) | a channel that leads to the agent has a message | takes it from the first such channel, beginning behind the one it took from last, in order of direction |
//! | [`PostRecv`](OpKind::PostRecv) | never | claims the channel's next message; its slot is freed once the message is there |
//! | [`Await`](OpKind::Await) | the message of the posted receive is there | takes it; a receive that is complete may be awaited again |
//! | [`Signal`](OpKind::Signal) | never | adds to the counter; `posted`, once everything that the agent posted before has arrived |
//! | [`WaitCounter`](OpKind::WaitCounter) | the counter has reached the value | nothing |
//! | [`Acquire`](OpKind::Acquire) | the counter has reached the amount | subtracts the amount |
//! | [`Fence`](OpKind::Fence) | everything that the agent posted has arrived | nothing |
//! | [`Barrier`](OpKind::Barrier) | as many agents as it has participants are at it | lets all of them go on; it can be used again |
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
//! The compiler names these places, whose matches have no arm for the rest:
//!
//! - here [`Op::describe`], and [`OpKind::operands`] in `lint/operands`
//! - the `hash` of a program: append a number
//! - the emulator's `timing/wiring` (the routes it needs), `timing/agent` (`math_ps`) and `data/replay` (`compute`)
//! - the check's `schedule` (`effect`)
//!
//! These have an arm for the rest, which may have to change:
//!
//! - here [`Op::defines`] and [`OpKind::direction`]; `lint/shape`, `lint/values` and `lint/traffic`; `builder` for what
//!   moves messages; `class/member` for what names memory or directions; `text` for operands that it should print
//! - the emulator's `timing/agent` (`advance`) for all but math, `data/replay` (`step`) for all but math, and
//!   `data/liveness` for results whose tile is not the operation's
//! - the check's `values` (what the result is made of) and `clocks` (what it orders)
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

/// The effect of an operation. `tile` indexes [`crate::Body::tiles`], `mem` [`crate::Body::mems`], `group`
/// [`crate::Body::groups`], `dir` [`crate::Body::directions`] and `scalar` [`crate::Body::scalars`] of the body the
/// operation stands in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum OpKind {
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
    /// Posted send: waits for a free slot, not for delivery.
    Send { dir: u16, src: ValueId, tile: u32 },
    /// Waits until the next send in this direction would find a free slot. Before a receive whose message is
    /// passed on, it keeps the receive's own slot occupied until then.
    AwaitSlot { dir: u16 },
    /// Blocking receive of the next message.
    Recv { dir: u16, dst: ValueId, tile: u32 },
    /// Blocking receive from the next direction, in turn, that has a message.
    RecvAny { dst: ValueId, tile: u32 },
    /// Posts a receive that completes in the background; `dst` is usable after [`OpKind::Await`].
    PostRecv { dir: u16, dst: ValueId, tile: u32 },
    /// Waits for a posted receive.
    Await { value: ValueId },
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
    /// The operation in words, with the names of `body`, the body it stands in.
    pub fn describe(&self, body: &crate::Body) -> String {
        let tile = |t: u32| body.tiles[t as usize].to_string();
        let dir = |d: u16| body.directions[d as usize].to_string();
        let post = |posted: bool| if posted { "post " } else { "" };
        let members = |group: u32| body.groups[group as usize].len();
        match self.kind {
            OpKind::Load { tile: t, .. } => format!("load {}", tile(t)),
            OpKind::Store { tile: t, posted, .. } => format!("{}store {}", post(posted), tile(t)),
            OpKind::ReducingLoad { f, group, tile: t, .. } => {
                format!("load {f:?} of {} {}", members(group), tile(t)).to_lowercase()
            }
            OpKind::Multicast { group, tile: t, .. } => format!("post store to {} {}", members(group), tile(t)),
            OpKind::Copy { tile: t, posted, .. } => format!("{}copy {}", post(posted), tile(t)),
            OpKind::Fill { tile: t, .. } => format!("full {}", tile(t)),
            OpKind::Arange { tile: t, .. } => format!("arange {}", tile(t)),
            OpKind::Unary { f, tile: t, .. } => format!("{f:?} {}", tile(t)).to_lowercase(),
            OpKind::Binary { f, tile: t, .. } | OpKind::BinaryScalar { f, tile: t, .. } => {
                format!("{f:?} {}", tile(t)).to_lowercase()
            }
            OpKind::Fma { tile: t, .. } => format!("fma {}", tile(t)),
            OpKind::Clamp { tile: t, .. } => format!("clamp {}", tile(t)),
            OpKind::Where { tile: t, .. } => format!("where {}", tile(t)),
            OpKind::Reduce { f, tile: t, .. } => format!("{f:?} {}", tile(t)).to_lowercase(),
            OpKind::Softmax { tile: t, .. } => format!("softmax {}", tile(t)),
            OpKind::Dot { tile: t, .. } => format!("dot {}", tile(t)),
            OpKind::Transpose { tile: t, .. } => format!("trans {}", tile(t)),
            OpKind::Cast { tile: t, .. } => format!("cast {}", tile(t)),
            OpKind::Send { dir: d, tile: t, .. } => format!("send(dir=\"{}\") {}", dir(d), tile(t)),
            OpKind::AwaitSlot { dir: d } => format!("await a slot (dir=\"{}\")", dir(d)),
            OpKind::Recv { dir: d, tile: t, .. } => format!("recv(dir=\"{}\") {}", dir(d), tile(t)),
            OpKind::RecvAny { tile: t, .. } => format!("recv(dir=None) {}", tile(t)),
            OpKind::PostRecv { dir: d, tile: t, .. } => format!("recv_async(dir=\"{}\") {}", dir(d), tile(t)),
            OpKind::Await { .. } => "wait".into(),
            OpKind::Signal { counter, add, posted } => format!("{}signal counter {counter} +{add}", post(posted)),
            OpKind::Fence => "fence".into(),
            OpKind::WaitCounter { counter, at_least } => format!("wait counter {counter} >= {at_least}"),
            OpKind::Acquire { counter, amount } => format!("acquire {amount} of counter {counter}"),
            OpKind::Barrier { id } => format!("barrier {id}"),
            OpKind::Delay { ps } => format!("delay {ps} ps"),
        }
    }

    /// The value this operation defines.
    pub fn defines(&self) -> Option<ValueId> {
        match self.kind {
            OpKind::Load { dst, .. }
            | OpKind::ReducingLoad { dst, .. }
            | OpKind::Fill { dst, .. }
            | OpKind::Arange { dst, .. }
            | OpKind::Unary { dst, .. }
            | OpKind::Binary { dst, .. }
            | OpKind::BinaryScalar { dst, .. }
            | OpKind::Fma { dst, .. }
            | OpKind::Clamp { dst, .. }
            | OpKind::Where { dst, .. }
            | OpKind::Reduce { dst, .. }
            | OpKind::Softmax { dst, .. }
            | OpKind::Dot { dst, .. }
            | OpKind::Transpose { dst, .. }
            | OpKind::Cast { dst, .. }
            | OpKind::Recv { dst, .. }
            | OpKind::RecvAny { dst, .. }
            | OpKind::PostRecv { dst, .. } => Some(dst),
            _ => None,
        }
    }
}

impl OpKind {
    /// The body-local direction a message operation uses.
    pub fn direction(&self) -> Option<u16> {
        match *self {
            Self::Send { dir, .. } | Self::AwaitSlot { dir } | Self::Recv { dir, .. } | Self::PostRecv { dir, .. } => {
                Some(dir)
            }
            _ => None,
        }
    }
}
