//! The time of a run: every picosecond with the one before it.
//!
//! A [`Piece`] is something that took time: a dispatch, a flit on a link, a slot being read. It starts at the
//! later end of two others: what its own operation did before (`own`), and what it had to wait for (`other`: who
//! held the link, the message, the credit). So
//!
//! - along `own` from an agent's last piece lies that agent's time, waits included, back to 0;
//! - along whichever of the two ends later lies the critical path, without any wait, back to 0.

use ahbm_machine::{LinkId, PeId, Ps};
use ahbm_program::AgentId;

/// Index into [`Detail::pieces`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct PieceId(pub u32);

impl PieceId {
    /// The launch: ends at 0, and comes before everything.
    pub const LAUNCH: PieceId = PieceId(0);
}

/// The kind of a piece. Links and engines are indices into [`Detail::links`] and [`Detail::engines`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Issue of an operation; every operation has exactly one.
    Dispatch,
    /// Address generation and pointer management of a queue.
    Control,
    /// A slot of the channel is claimed: waits for its credit.
    Claim(u32),
    /// A DMA channel from descriptor to first byte: an index into [`Detail::dma`].
    Setup(u32),
    /// The DMA channel hands its bytes to the first link.
    Handover(u32),
    /// Latency between links, and of requests.
    Wire,
    /// The first flit crosses a link, after which the head moves on.
    Head(u32),
    /// A message or flit occupies a link; waits for who had it before.
    Link(u32),
    /// The link waits for the last flit of the same message.
    Tail(u32),
    /// Bytes over the slowest link, without contention.
    Serial,
    /// A message enters its slot; waits for the write before it. One per message.
    SlotWrite(u32),
    /// A message is read from its slot; waits for the message. One per message that is received.
    SlotRead(u32),
    /// A credit on its way back to the sender.
    Credit(u32),
    /// A posted receive; waits for those posted before it.
    Queued,
    /// The agent waits for a receive that it posted.
    Await,
    /// The agent, or a signal, waits for the transfers that were posted before.
    Fence,
    /// The math or matrix engine works; waits for who had it before.
    Math(u32),
    /// A fixed time.
    Delay,
    /// Waits for a counter's signal.
    Counter(u32),
    /// Waits for the last to arrive at a barrier.
    Barrier(u32),
}

/// A use of time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[allow(missing_docs)]
pub enum Category {
    Dispatch,
    Dma,
    LinkSerialisation,
    LinkContention,
    WireLatency,
    SlotIo,
    /// A credit on the wire.
    Credit,
    Math,
    Delay,
    /// Only in an agent's own time, as all that follow: on the critical path stands what was waited for.
    ///
    /// A receive: nothing has arrived.
    Message,
    /// A send: no slot of the queue is free.
    Slot,
    /// Nobody has signalled.
    Counter,
    /// Others have not come.
    Barrier,
    /// A transfer: the link carries other bytes.
    Link,
    /// The PE's DMA channel or math engine serves something else.
    Engine,
    /// A fence: transfers that were posted have not arrived.
    Transfer,
    /// The agent has ended, others have not.
    Ended,
}

impl Category {
    /// Every category, in order.
    pub const ALL: [Self; 17] = [
        Self::Dispatch,
        Self::Dma,
        Self::LinkSerialisation,
        Self::LinkContention,
        Self::WireLatency,
        Self::SlotIo,
        Self::Credit,
        Self::Math,
        Self::Delay,
        Self::Message,
        Self::Slot,
        Self::Counter,
        Self::Barrier,
        Self::Link,
        Self::Engine,
        Self::Transfer,
        Self::Ended,
    ];

    /// Name for people and JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Dispatch => "dispatch",
            Self::Dma => "DMA",
            Self::LinkSerialisation => "link serialisation",
            Self::LinkContention => "link contention",
            Self::WireLatency => "wire latency",
            Self::SlotIo => "slot I/O",
            Self::Credit => "credit",
            Self::Math => "math",
            Self::Delay => "delay",
            Self::Message => "waiting for message",
            Self::Slot => "waiting for slot",
            Self::Counter => "waiting for counter",
            Self::Barrier => "waiting for barrier",
            Self::Link => "waiting for link",
            Self::Engine => "waiting for engine",
            Self::Transfer => "waiting for transfer",
            Self::Ended => "idle after its end",
        }
    }
}

impl Kind {
    /// The use of the piece itself.
    pub fn category(self) -> Category {
        match self {
            Self::Dispatch => Category::Dispatch,
            Self::Setup(_) | Self::Handover(_) => Category::Dma,
            Self::Wire => Category::WireLatency,
            Self::Head(_) | Self::Link(_) | Self::Tail(_) | Self::Serial => Category::LinkSerialisation,
            Self::Control | Self::SlotWrite(_) | Self::SlotRead(_) | Self::Queued => Category::SlotIo,
            Self::Credit(_) => Category::Credit,
            Self::Math(_) => Category::Math,
            Self::Delay => Category::Delay,
            Self::Claim(_) => Category::Slot,
            Self::Await => Category::Message,
            Self::Fence => Category::Transfer,
            Self::Counter(_) => Category::Counter,
            Self::Barrier(_) => Category::Barrier,
        }
    }

    /// The use of the wait before the piece.
    pub fn wait(self) -> Category {
        match self {
            Self::Head(_) | Self::Link(_) => Category::Link,
            Self::SlotRead(_) => Category::Message,
            Self::Setup(_) | Self::Math(_) => Category::Engine,
            kind => kind.category(),
        }
    }

    /// The link it keeps busy.
    pub fn link(self) -> Option<u32> {
        match self {
            Self::Head(link) | Self::Link(link) | Self::Tail(link) => Some(link),
            _ => None,
        }
    }
}

/// Something that took time, and what it came after.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Piece {
    /// When it was over.
    pub end: Ps,
    /// The piece of its operation's own work before it.
    pub own: PieceId,
    /// The piece it waited for; [`PieceId::LAUNCH`] when nothing.
    pub other: PieceId,
    /// Whose it is.
    pub agent: AgentId,
    /// The operation it belongs to.
    pub op: u32,
    /// Its kind.
    pub kind: Kind,
}

/// A DMA channel of a PE.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DmaChannel {
    /// The PE: an index into [`Detail::engines`].
    pub engine: u32,
    /// It reads, rather than writes.
    pub reads: bool,
    /// Its number among those that carry the same transfers.
    pub number: u32,
    /// The link between SIPs that it is for, if for one.
    pub link: Option<LinkId>,
}

/// The time of a run, piece by piece.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Detail {
    /// In order of discovery, which is not order of time; each comes after its `own` and `other`.
    pub pieces: Vec<Piece>,
    /// Per agent: the piece that its end is the end of.
    pub last: Vec<PieceId>,
    /// The links that DMA channels hand bytes over to: pieces of [`Kind::Handover`], in order, with the index of the
    /// link. A transfer from or to a group has none.
    pub handed: Vec<(PieceId, u32)>,
    /// Links in use.
    pub links: Vec<LinkId>,
    /// PEs in use.
    pub engines: Vec<PeId>,
    /// Their DMA channels.
    pub dma: Vec<DmaChannel>,
}

impl Detail {
    /// A piece by id.
    #[inline]
    pub fn piece(&self, id: PieceId) -> &Piece {
        &self.pieces[id.0 as usize]
    }

    /// The link that a piece keeps busy, or that it hands bytes over to.
    pub fn link(&self, id: PieceId) -> Option<u32> {
        let handed = || self.handed.binary_search_by_key(&id, |entry| entry.0).ok().map(|at| self.handed[at].1);
        self.piece(id).kind.link().or_else(handed)
    }

    /// When what a piece depends on inside its own operation was over: from here on it waits.
    #[inline]
    pub fn ready(&self, piece: &Piece) -> Ps {
        self.piece(piece.own).end
    }

    /// When a piece starts: at the later end of the two before it.
    #[inline]
    pub fn start(&self, piece: &Piece) -> Ps {
        self.ready(piece).max(self.piece(piece.other).end)
    }
}
