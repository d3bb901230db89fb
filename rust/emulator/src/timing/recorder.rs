//! Keeps the pieces of a run as they happen.

use super::wiring::Wiring;
use crate::detail::{Detail, Kind, Piece, PieceId};
use ahbm_engine::Time;
use ahbm_machine::Machine;
use ahbm_program::{AgentId, ChannelId, Program};
use std::cell::{Cell, RefCell};

/// A resource that remembers the piece it was last busy with.
type Holder = Cell<PieceId>;

/// The account a run gives of itself. All of it is compiled away in a run that does not record ([`Off`]).
pub(super) trait Recorder {
    fn state(&self) -> Option<&State>;

    /// The pieces, at the end of a run.
    fn finish(self, wiring: &Wiring) -> Option<Detail>;

    /// Runs `action` when recording; [`PieceId::LAUNCH`] stands for every piece otherwise.
    #[inline]
    fn on(&self, action: impl FnOnce(&State) -> PieceId) -> PieceId {
        self.state().map_or(PieceId::LAUNCH, action)
    }

    /// True when the budget of pieces was not enough.
    fn overflowed(&self) -> bool {
        self.state().is_some_and(|s| s.pieces.borrow().len() > s.limit)
    }

    /// The operation `op` of an agent is issued, `dispatch` after the end of the one before it.
    #[inline]
    fn issue(&self, agent: AgentId, op: u32, dispatch: Time) -> PieceId {
        self.on(|s| s.issue(agent, op, dispatch))
    }

    /// The agent's operation ends with `piece`.
    #[inline]
    fn end(&self, agent: AgentId, piece: PieceId) {
        self.on(|s| s.last[agent.0 as usize].replace(piece));
    }

    /// The piece the agent's operation has come to.
    #[inline]
    fn last(&self, agent: AgentId) -> PieceId {
        self.on(|s| s.last[agent.0 as usize].get())
    }

    /// Something without a resource.
    #[inline]
    fn plain(&self, kind: Kind, own: PieceId, duration: Time) -> PieceId {
        self.on(|s| s.add(kind, own, PieceId::LAUNCH, duration))
    }

    /// Waits for another piece, which takes no time of its own.
    #[inline]
    fn join(&self, kind: Kind, own: PieceId, other: PieceId) -> PieceId {
        self.on(|s| s.add(kind, own, other, 0))
    }

    /// The slot of message `index` of a channel is claimed: waits for the credit of the slot's message before.
    #[inline]
    fn claim(&self, own: PieceId, channel: ChannelId, index: u32, slots: u32) -> PieceId {
        self.on(|s| {
            let Some(before) = index.checked_sub(slots) else { return own };
            let credit = s.channels[channel.0 as usize].credits.borrow()[before as usize];
            s.add(Kind::Claim(channel.0), own, credit, 0)
        })
    }

    /// A DMA channel is granted for `setup` and then for handing over its bytes to `link`; returns the ends of both.
    #[inline]
    fn dma(
        &self,
        channel: u32,
        link: Option<u32>,
        own: PieceId,
        (setup, handover): (Time, Time),
    ) -> (PieceId, PieceId) {
        let mut ends = (PieceId::LAUNCH, PieceId::LAUNCH);
        self.on(|s| {
            let holder = &s.dma[channel as usize];
            ends.0 = s.add(Kind::Setup(channel), own, holder.get(), setup);
            ends.1 = s.add(Kind::Handover(channel), ends.0, PieceId::LAUNCH, handover);
            if let Some(link) = link.filter(|_| handover > 0 && !s.full()) {
                s.handed.borrow_mut().push((ends.1, link));
            }
            holder.replace(ends.1)
        });
        ends
    }

    /// The math engine is used for `duration`; `shared` with other agents.
    #[inline]
    fn math(&self, engine: u32, shared: bool, own: PieceId, duration: Time) -> PieceId {
        self.on(|s| {
            let holder = &s.math[engine as usize];
            let before = if shared { holder.get() } else { PieceId::LAUNCH };
            let piece = s.add(Kind::Math(engine), own, before, duration);
            holder.set(piece);
            piece
        })
    }

    /// The head of a message takes a link and moves on `after` its first flit. To be called before
    /// [`Recorder::occupy`].
    #[inline]
    fn head(&self, link: u32, own: PieceId, flit: Time, after: Time) -> PieceId {
        self.on(|s| {
            let head = s.add(Kind::Head(link), own, s.links[link as usize].get(), flit);
            s.add(Kind::Wire, head, PieceId::LAUNCH, after)
        })
    }

    /// A message or flit takes a link for `duration`.
    #[inline]
    fn occupy(&self, link: u32, own: PieceId, duration: Time) -> PieceId {
        self.on(|s| {
            let holder = &s.links[link as usize];
            let piece = s.add(Kind::Link(link), own, holder.get(), duration);
            holder.set(piece);
            piece
        })
    }

    /// The link stays busy until the message's last flit, which left the link before with `own` and arrived `after`
    /// that, has crossed it.
    #[inline]
    fn tail(&self, link: u32, own: PieceId, after: Time, flit: Time) -> PieceId {
        self.on(|s| {
            let wire = s.add(Kind::Wire, own, PieceId::LAUNCH, after);
            let piece = s.add(Kind::Tail(link), wire, PieceId::LAUNCH, flit);
            s.links[link as usize].set(piece);
            piece
        })
    }

    /// The message's last flit, which left the link before with `own` and arrived `after` that, crosses a link that it does
    /// not keep busy.
    #[inline]
    fn trail(&self, own: PieceId, after: Time, flit: Time) -> PieceId {
        self.plain(Kind::Serial, self.plain(Kind::Wire, own, after), flit)
    }

    /// A message that has arrived is written into its slot and becomes visible.
    #[inline]
    fn deliver(&self, channel: ChannelId, own: PieceId, write: Time) {
        self.on(|s| {
            let state = &s.channels[channel.0 as usize];
            let piece = s.always(Kind::SlotWrite(channel.0), own, state.written.get(), write);
            state.written.set(piece);
            state.messages.borrow_mut().push(piece);
            piece
        });
    }

    /// Message `index` is taken out of its slot; returns the ends of slot read and credit.
    #[inline]
    fn consume(
        &self,
        channel: ChannelId,
        index: u32,
        own: PieceId,
        (control, read, credit): (Time, Time, Time),
    ) -> (PieceId, PieceId) {
        let mut ends = (PieceId::LAUNCH, PieceId::LAUNCH);
        self.on(|s| {
            let state = &s.channels[channel.0 as usize];
            let ready = s.add(Kind::Control, own, PieceId::LAUNCH, control);
            let message = state.messages.borrow()[index as usize];
            ends.0 = s.always(Kind::SlotRead(channel.0), ready, message, read);
            ends.1 = s.add(Kind::Credit(channel.0), ends.0, PieceId::LAUNCH, credit);
            state.credits.borrow_mut().push(ends.1);
            ends.1
        });
        ends
    }

    /// The event an agent waits for is complete.
    #[inline]
    fn complete(&self, agent: AgentId, piece: PieceId) {
        self.on(|s| s.done[agent.0 as usize].replace(piece));
    }

    /// The piece that completed what an agent waited for.
    #[inline]
    fn done(&self, agent: AgentId) -> PieceId {
        self.on(|s| s.done[agent.0 as usize].get())
    }

    #[inline]
    fn signal(&self, counter: u32, piece: PieceId) {
        self.on(|s| s.counters[counter as usize].replace(piece));
    }

    /// Waits for the last signal of a counter.
    #[inline]
    fn await_signal(&self, counter: u32, own: PieceId) -> PieceId {
        self.on(|s| s.add(Kind::Counter(counter), own, s.counters[counter as usize].get(), 0))
    }

    /// An agent's gate has opened: it starts, late by its skew, after the last signal of a counter.
    #[inline]
    fn opened(&self, agent: AgentId, counter: u32) {
        self.on(|s| {
            let (own, other) = (s.last[agent.0 as usize].get(), s.counters[counter as usize].get());
            let end = s.ends(own) + s.ends(other);
            let piece = s.push(Piece { end, own: PieceId::LAUNCH, other, agent, op: 0, kind: Kind::Counter(counter) });
            s.last[agent.0 as usize].replace(piece)
        });
    }

    /// An agent arrives at a barrier; returns the latest arrival so far of the round that `first` opens.
    #[inline]
    fn arrive(&self, barrier: u32, first: bool, own: PieceId) -> PieceId {
        self.on(|s| {
            let latest = &s.barriers[barrier as usize];
            if first || s.ends(own) > s.ends(latest.get()) {
                latest.set(own);
            }
            latest.get()
        })
    }
}

/// Records nothing.
pub(super) struct Off;

impl Recorder for Off {
    fn state(&self) -> Option<&State> {
        None
    }

    fn finish(self, _: &Wiring) -> Option<Detail> {
        None
    }
}

impl Recorder for State {
    fn state(&self) -> Option<&State> {
        Some(self)
    }

    fn finish(self, wiring: &Wiring) -> Option<Detail> {
        Some(Detail {
            pieces: self.pieces.into_inner(),
            last: self.last.into_iter().map(Cell::into_inner).collect(),
            handed: self.handed.into_inner(),
            links: wiring.links.clone(),
            engines: wiring.engines.clone(),
            dma: wiring.dma.clone(),
        })
    }
}

/// Records everything.
pub(super) struct State {
    pieces: RefCell<Vec<Piece>>,
    /// The link of every piece that hands bytes over.
    handed: RefCell<Vec<(PieceId, u32)>>,
    /// More than this is an error.
    limit: usize,
    /// Per agent: the piece its clock is the end of.
    last: Vec<Holder>,
    /// Per agent: the piece that completed the transfer or barrier it waits for.
    done: Vec<Holder>,
    links: Vec<Holder>,
    /// Per DMA channel.
    dma: Vec<Holder>,
    math: Vec<Holder>,
    counters: Vec<Holder>,
    barriers: Vec<Holder>,
    channels: Vec<Channel>,
}

#[derive(Default)]
struct Channel {
    written: Holder,
    /// The piece after which each message is visible, and each credit, in order.
    messages: RefCell<Vec<PieceId>>,
    credits: RefCell<Vec<PieceId>>,
}

impl State {
    pub(super) fn new(program: &Program, machine: &Machine, wiring: &Wiring, limit: u32) -> Self {
        let launch =
            Piece { end: 0, own: PieceId::LAUNCH, other: PieceId::LAUNCH, agent: AgentId(0), op: 0, kind: Kind::Delay };
        let agents = program.agents.len();
        let state = Self {
            pieces: RefCell::new(vec![launch]),
            handed: RefCell::default(),
            limit: limit as usize,
            last: super::default_vec(agents),
            done: super::default_vec(agents),
            links: super::default_vec(wiring.links.len()),
            dma: super::default_vec(wiring.dma.len()),
            math: super::default_vec(wiring.engines.len()),
            counters: super::default_vec(program.counters as usize),
            barriers: super::default_vec(program.barriers.len()),
            channels: super::default_vec(program.channels.len()),
        };
        for index in 0..agents {
            let end = super::start(program, machine, index);
            if end > 0 {
                let agent = AgentId(index as u32);
                state.last[index].set(state.push(Piece { end, agent, ..launch }));
            }
        }
        state
    }

    fn full(&self) -> bool {
        self.pieces.borrow().len() > self.limit
    }

    fn ends(&self, piece: PieceId) -> Time {
        self.pieces.borrow()[piece.0 as usize].end
    }

    fn issue(&self, agent: AgentId, op: u32, dispatch: Time) -> PieceId {
        let own = self.last[agent.0 as usize].get();
        let end = self.ends(own) + dispatch;
        let piece = self.push(Piece { end, own, other: PieceId::LAUNCH, agent, op, kind: Kind::Dispatch });
        self.last[agent.0 as usize].set(piece);
        piece
    }

    /// Adds a piece to the operation of `own`, unless it neither waits nor takes time.
    fn add(&self, kind: Kind, own: PieceId, other: PieceId, duration: Time) -> PieceId {
        let (before, end) = self.after(own, other);
        if duration == 0 && end <= before.end {
            return own;
        }
        self.always(kind, own, other, duration)
    }

    fn after(&self, own: PieceId, other: PieceId) -> (Piece, Time) {
        let pieces = self.pieces.borrow();
        (pieces[own.0 as usize], pieces[other.0 as usize].end)
    }

    /// Adds a piece to the operation of `own`.
    fn always(&self, kind: Kind, own: PieceId, other: PieceId, duration: Time) -> PieceId {
        let (before, end) = self.after(own, other);
        let end = before.end.max(end) + duration;
        self.push(Piece { end, own, other, agent: before.agent, op: before.op, kind })
    }

    /// Beyond the budget the last place is overwritten: the run is refused when it ends.
    fn push(&self, piece: Piece) -> PieceId {
        let mut pieces = self.pieces.borrow_mut();
        if pieces.len() > self.limit {
            pieces.pop();
        }
        pieces.push(piece);
        PieceId(pieces.len() as u32 - 1)
    }
}
