//! The operations of one thread block.

use super::context::Context;
use super::layout::{Iteration, Piece};
use super::{Action, Form, Kind, Op, Operand, Places};
use ahbm_findings::Diagnostic;
use ahbm_program::{
    BinaryFn, Body, BodyBuilder, BufferId, Control, Locus, Math, Mem, Move, OpKind, Origin, OriginId, Origins, Tile,
    ValueId,
};
use indexmap::IndexSet;
use rustc_hash::FxBuildHasher;

/// Writes the body of one thread block.
pub(super) struct Writer<'l, 'p> {
    all: &'l Context<'p>,
    rank: u32,
    body: BodyBuilder,
    buffers: IndexSet<BufferId, FxBuildHasher>,
    /// Dispatches to be charged to the next operation: one per operation of the file.
    calls: u16,
    /// Something has been put at another rank since the last fence.
    posted: bool,
    origin: OriginId,
}

impl<'l, 'p> Writer<'l, 'p> {
    pub(super) fn new(all: &'l Context<'p>, rank: u32) -> Self {
        let (body, buffers) = (BodyBuilder::new(), IndexSet::default());
        Self { all, rank, body, buffers, calls: 0, posted: false, origin: OriginId(0) }
    }

    pub(super) fn finish(self) -> (Body, Vec<BufferId>) {
        (self.body.finish(), self.buffers.into_iter().collect())
    }

    /// All operations of the rank's thread block `index`, which ends when what it has put has arrived.
    pub(super) fn block(&mut self, index: u32, ops: &[Op], origins: &mut Origins) -> Result<(), Diagnostic> {
        let at = format!("/gpus/{}/threadblocks/{index}", self.rank);
        if index == 0 {
            self.origin = match ops.first() {
                Some(first) if self.all.plan.places != Places::Positions => self.intern(origins, first, String::new),
                _ => origins
                    .intern(Origin { file: self.all.plan.file.clone(), locus: Locus::Pointer(at.clone().into()) }),
            };
            self.initialise();
        }
        let mut previous = None;
        for op in ops {
            let pointer = format!("{at}/ops/{}", op.index);
            self.count(op, &mut previous);
            if let Action::Loop { unit, chunks, ops } = &op.action {
                let (times, unit) = self.all.layout.iterations(*unit, *chunks)?;
                let inner: Vec<_> = (0..)
                    .zip(ops)
                    .map(|(i, op): (usize, _)| self.intern(origins, op, || format!("{pointer}/ops/{i}")))
                    .collect();
                for pass in 0..times {
                    let mut previous = None;
                    for (op, &origin) in ops.iter().zip(&inner) {
                        self.origin = origin;
                        self.count(op, &mut previous);
                        self.op(op, Some(Iteration { at: pass * unit, unit }))?;
                    }
                }
            } else {
                self.origin = self.intern(origins, op, || pointer);
                self.op(op, None)?;
            }
        }
        self.fence();
        Ok(())
    }

    /// Charges a dispatch for every operation of the file.
    fn count(&mut self, op: &Op, previous: &mut Option<u32>) {
        if previous.replace(op.index) != Some(op.index) {
            self.calls = self.calls.saturating_add(1);
        }
    }

    fn intern(&self, origins: &mut Origins, op: &Op, pointer: impl FnOnce() -> String) -> OriginId {
        origins.intern(self.all.plan.origin(op, pointer))
    }

    /// Semaphores start with their values: the rank's first thread block gives them before anything else.
    fn initialise(&mut self) {
        if !self.all.fresh {
            return;
        }
        let first = self.all.semaphores[self.rank as usize];
        for (counter, &add) in (first..).zip(&self.all.plan.ranks[self.rank as usize].semaphores) {
            if add > 0 {
                self.push(Control::Signal { counter, add, posted: false });
            }
        }
    }

    fn op(&mut self, op: &Op, pass: Option<Iteration>) -> Result<(), Diagnostic> {
        match &op.action {
            Action::Sync | Action::Loop { .. } => {}
            Action::Flush => self.fence(),
            Action::Barrier(id) => {
                self.fence();
                self.push(Control::Barrier { id: self.all.barriers[self.rank as usize] + id });
            }
            Action::Acquire(ids) => ids.iter().for_each(|id| {
                self.push(Control::Acquire { counter: self.all.semaphores[self.rank as usize] + id, amount: 1 });
            }),
            Action::Release(ids) => ids.iter().for_each(|id| {
                self.push(Control::Signal {
                    counter: self.all.semaphores[self.rank as usize] + id,
                    add: 1,
                    posted: false,
                });
            }),
            Action::Signal(ends) => self.signal(ends),
            Action::Wait(ends) => ends.iter().for_each(|&end| self.wait(end)),
            Action::Move { pairs, waits, signals } if self.switched(op) => {
                for pairs in pairs.chunk_by(|(a, _), (b, _)| a == b) {
                    self.broadcast(op, pairs, *waits, pass)?;
                }
                self.signal(signals);
            }
            Action::Move { pairs, waits, signals } => {
                for (src, dst) in pairs {
                    self.transfer(op, [src, dst], *waits, pass)?;
                }
                self.signal(signals);
            }
            Action::Reduce { function, operands, results } => self.reduce(op, *function, operands, results, pass)?,
        }
        Ok(())
    }

    fn signal(&mut self, ends: &[Option<u32>]) {
        for &counter in ends.iter().flatten() {
            self.push(Control::Signal { counter, add: 1, posted: self.posted });
        }
    }

    fn fence(&mut self) {
        if std::mem::take(&mut self.posted) {
            self.push(Control::Fence);
        }
    }

    /// Signals that were not waited for stay, for the next wait and for the next launch.
    fn wait(&mut self, end: u32) {
        self.push(Control::Acquire { counter: end, amount: 1 });
    }

    fn transfer(
        &mut self,
        op: &Op,
        [src, dst]: [&Operand; 2],
        waits: bool,
        pass: Option<Iteration>,
    ) -> Result<(), Diagnostic> {
        let [src, dst] = [src, dst].map(|operand| self.all.layout.piece(self.rank, op, operand, pass));
        if src.bytes == 0 {
            return Ok(());
        }
        if waits {
            self.await_packets(&src);
        }
        if src == dst && dst.form == Form::Packets {
            // A packet that is rewritten with itself is valid all the time.
            return Ok(());
        }
        let tile = self.tile(&src);
        let from = self.mem(&src, 0)?;
        let to = self.mem(&dst, 0)?;
        let posted = self.posts(&dst);
        self.push(Move::Copy { src: from, dst: to, tile, posted });
        if dst.form == Form::Packets {
            let flags = self.mem(&dst, 1)?;
            self.push(Move::Copy { src: from, dst: flags, tile, posted });
            self.post_packets(&dst, posted);
        }
        Ok(())
    }

    fn reduce(
        &mut self,
        op: &Op,
        function: BinaryFn,
        operands: &[Operand],
        results: &[Operand],
        pass: Option<Iteration>,
    ) -> Result<(), Diagnostic> {
        let pieces = |operands: &[Operand]| -> Vec<Piece> {
            operands.iter().map(|operand| self.all.layout.piece(self.rank, op, operand, pass)).collect()
        };
        let (operands, results) = (pieces(operands), pieces(results));
        let mut total: Option<ValueId> = None;
        let grouped = self.switched(op) && operands.len() > 1;
        for piece in &operands {
            if piece.bytes == 0 {
                return Ok(());
            }
            if piece.form == Form::Packets {
                self.await_packets(piece);
            }
            if grouped {
                continue;
            }
            let (tile, mem) = (self.tile(piece), self.mem(piece, 0)?);
            let value = self.body.value();
            self.push(Move::Load { dst: value, mem, tile });
            total = Some(match total {
                None => value,
                Some(sum) => {
                    let dst = self.body.value();
                    self.push(Math::Binary { f: function, dst, a: sum, b: value, tile });
                    self.body.release(sum);
                    self.body.release(value);
                    dst
                }
            });
        }
        if grouped {
            let (dst, tile, group) = (self.body.value(), self.tile(&operands[0]), self.group(operands.iter(), 0)?);
            self.push(Move::ReducingLoad { f: function, dst, group, tile });
            total = Some(dst);
        }
        let Some(total) = total else { return Ok(()) };
        self.store(op, total, &results)?;
        self.body.release(total);
        Ok(())
    }

    /// A value to its places. A switch takes it to the other ranks alone: what follows, here or behind a semaphore, may
    /// read the rank's own memory without a wait.
    fn store(&mut self, op: &Op, src: ValueId, places: &[Piece]) -> Result<(), Diagnostic> {
        let afar = |piece: &&Piece| self.switched(op) && piece.rank != self.rank;
        let (others, places): (Vec<&Piece>, Vec<&Piece>) = places.iter().partition(afar);
        if !others.is_empty() {
            self.multicast(src, &others)?;
        }
        for piece in places {
            let (tile, mem) = (self.tile(piece), self.mem(piece, 0)?);
            let posted = self.posts(piece);
            self.push(Move::Store { src, mem, tile, posted });
            if piece.form == Form::Packets {
                let flags = self.mem(piece, 1)?;
                self.push(Move::Store { src, mem: flags, tile, posted });
                self.post_packets(piece, posted);
            }
        }
        Ok(())
    }

    /// True when the switch performs the operation.
    fn switched(&self, op: &Op) -> bool {
        self.all.switched && op.words.kind == Kind::Switch
    }

    /// One source to several places at once.
    fn broadcast(
        &mut self,
        op: &Op,
        pairs: &[(Operand, Operand)],
        waits: bool,
        pass: Option<Iteration>,
    ) -> Result<(), Diagnostic> {
        let src = self.all.layout.piece(self.rank, op, &pairs[0].0, pass);
        if src.bytes == 0 {
            return Ok(());
        }
        if waits {
            self.await_packets(&src);
        }
        let places = pairs.iter().map(|(_, dst)| self.all.layout.piece(self.rank, op, dst, pass));
        // A packet that is rewritten with itself is valid all the time.
        let places: Vec<Piece> = places.filter(|dst| src != *dst || dst.form == Form::Plain).collect();
        if places.is_empty() {
            return Ok(());
        }
        let (dst, tile, mem) = (self.body.value(), self.tile(&src), self.mem(&src, 0)?);
        self.push(Move::Load { dst, mem, tile });
        self.store(op, dst, &places)?;
        self.body.release(dst);
        Ok(())
    }

    /// A value to several places, all data or all packets.
    fn multicast(&mut self, src: ValueId, places: &[&Piece]) -> Result<(), Diagnostic> {
        let (tile, packets) = (self.tile(places[0]), places[0].form == Form::Packets);
        for area in 0..1 + u64::from(packets) {
            let group = self.group(places.iter().copied(), area)?;
            self.push(Move::Multicast { src, group, tile });
        }
        self.posted = true;
        if packets {
            places.iter().for_each(|place| self.post_packets(place, true));
        }
        Ok(())
    }

    fn group<'a>(&mut self, pieces: impl Iterator<Item = &'a Piece>, area: u64) -> Result<u32, Diagnostic> {
        let mems = pieces.map(|piece| self.mem(piece, area)).collect::<Result<Vec<_>, _>>()?;
        Ok(self.body.group(&mems))
    }

    fn await_packets(&mut self, piece: &Piece) {
        for counter in self.all.packets.counters(piece) {
            self.push(Control::WaitCounter { counter, at_least: 1 });
        }
    }

    fn post_packets(&mut self, piece: &Piece, posted: bool) {
        for counter in self.all.packets.counters(piece) {
            self.push(Control::Signal { counter, add: 1, posted });
        }
    }

    /// A piece that is put at another rank is posted.
    fn posts(&mut self, piece: &Piece) -> bool {
        let posted = piece.rank != self.rank;
        self.posted |= posted;
        posted
    }

    fn tile(&mut self, piece: &Piece) -> u32 {
        let dtype = self.all.layout.dtype;
        self.body.tile(Tile::new(dtype, &[piece.bytes / dtype.bytes()]))
    }

    /// `area` is 0 for data and 1 for the flags of packets.
    fn mem(&mut self, piece: &Piece, area: u64) -> Result<u32, Diagnostic> {
        let (buffer, mut offset) = self.all.home(piece.rank, piece.space);
        if piece.form == Form::Packets {
            offset += self.all.packet_areas[piece.rank as usize] * (1 + area);
        }
        let index = self.buffers.insert_full(buffer).0;
        let Ok(buffer) = u16::try_from(index) else {
            let message = "a thread block that touches more than 65,536 buffers".to_owned();
            return Err(Diagnostic::new("AHBM-F147", message).site(format!("rank {}", self.rank), &*self.all.plan.file));
        };
        Ok(self.body.mem(Mem { buffer, offset: offset + piece.offset }))
    }

    fn push(&mut self, kind: impl Into<OpKind>) {
        self.body.push(kind, std::mem::take(&mut self.calls), self.origin);
    }
}
