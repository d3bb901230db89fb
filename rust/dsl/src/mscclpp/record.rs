//! The recorder: one method per statement of the language.

use super::fits::{ends, in_scratch, local, number, operands, same_size, wrong};
use super::model::{Block, Body, Channel, Chunk, Code, Gpu, Map, Meet, Op, Part, Ref, Settings, Via, listed};
use crate::{Faith, Fault};
use ahbm_formats::mscclpp::schema::{Kind, ReduceOp};
use ahbm_plan::Space;

/// Barriers by rank and thread blocks.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Barriers(rustc_hash::FxHashMap<u32, Map<Vec<u32>, u32>>);

/// Ways to put chunks at a peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transfer {
    /// Data.
    Put,
    /// Data, then a signal.
    PutSignal,
    /// Data, then a signal, then the block waits for both to be sent.
    PutSignalFlush,
    /// Data that become packets.
    PutPackets,
    /// Packets that are awaited and passed on.
    ReadPutPackets,
}

/// The thread blocks that execute a statement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Workers<'a> {
    /// One.
    Block(i64),
    /// Several, which share the bytes.
    Group(&'a [u32]),
    /// The author did not say.
    Unsaid,
}

/// Statements by ranks and kind of channel.
pub(super) type Counts = Map<(u32, u32, Kind), Vec<u32>>;

/// A loop whose statements are being recorded.
#[derive(Debug, Clone)]
struct Open {
    unit: u64,
    chunks: u32,
    place: u32,
    ops: Vec<(u32, u32, Op)>,
}

/// A program under construction. Places are the numbers of its statements, which the caller gives.
#[derive(Debug, Clone)]
pub struct Recorder {
    pub(super) settings: Settings,
    pub(super) faith: Faith,
    pub(super) gpus: Vec<Gpu>,
    pub(super) signals: Counts,
    pub(super) waits: Counts,
    /// Statements whose barrier the language's own compiler would have given another number.
    pub(super) renumbered: Vec<u32>,
    barriers: Barriers,
    open: Option<Open>,
}

impl Recorder {
    /// A program whose ranks have so many chunks of input and output. `barriers` are those of earlier programs: the
    /// language's own compiler numbers on.
    pub fn new(settings: Settings, chunks: &[[u32; 2]], faith: Faith, barriers: Barriers) -> Self {
        let gpu = |&[input, output]: &[u32; 2]| Gpu { chunks: [input, output, 0], ..Gpu::default() };
        Self {
            settings,
            faith,
            gpus: chunks.iter().map(gpu).collect(),
            signals: Counts::default(),
            waits: Counts::default(),
            renumbered: Vec::new(),
            barriers,
            open: None,
        }
    }

    /// The barriers so far.
    pub fn barriers(&self) -> Barriers {
        self.barriers.clone()
    }

    /// The rank numbered `rank`.
    ///
    /// # Errors
    /// `AHBM-A102` (`RuntimeError`) there is none.
    pub fn rank(&self, rank: i64) -> Result<u32, Fault> {
        let known = u32::try_from(rank).ok().filter(|&rank| (rank as usize) < self.gpus.len());
        known.ok_or_else(|| wrong(format!("rank {rank} is out of bounds: the program has {} ranks", self.gpus.len())))
    }

    /// Chunks of a rank's buffer.
    pub fn chunks(&self, rank: u32, space: Space) -> u32 {
        self.gpus[rank as usize].chunks[space as usize]
    }

    /// `size` more chunks of scratch; returns the first.
    ///
    /// # Errors
    /// `AHBM-A102` (`RuntimeError`) an unusable rank or size.
    pub fn scratch(&mut self, rank: i64, size: i64) -> Result<(u32, u32, u32), Fault> {
        let rank = self.rank(rank)?;
        let scratch = &mut self.gpus[rank as usize].chunks[Space::Scratch as usize];
        let first = *scratch;
        let end = u32::try_from(size).ok().filter(|&size| size > 0).and_then(|size| first.checked_add(size));
        let end = end.ok_or_else(|| wrong(format!("a buffer of {size} chunks")))?;
        *scratch = end;
        Ok((rank, first, end))
    }

    /// A channel from `src` to `dst`.
    ///
    /// # Errors
    /// `AHBM-A102` (`RuntimeError`) no such rank.
    pub fn channel(&mut self, kind: Kind, dst: i64, src: i64) -> Result<Channel, Fault> {
        let (dst, src) = (self.rank(dst)?, self.rank(src)?);
        let lists = &mut self.gpus[src as usize].peers;
        let at = lists.iter().position(|(known, _)| *known == kind).unwrap_or_else(|| {
            lists.push((kind, Vec::new()));
            lists.len() - 1
        });
        let peers = &mut lists[at].1;
        peers.push(dst);
        Ok(Channel { kind, id: peers.len() as u32 - 1, src, dst })
    }

    /// A switch channel over one buffer of several ranks; returns its number at each of them.
    ///
    /// # Errors
    /// `AHBM-A102` (`RuntimeError`) no such rank, or a rank twice.
    pub fn switch(&mut self, ranks: &[i64], space: Space) -> Result<Vec<(u32, u32)>, Fault> {
        let ranks = ranks.iter().map(|&rank| self.rank(rank)).collect::<Result<Vec<u32>, Fault>>()?;
        if ranks.is_empty() || (1..ranks.len()).any(|at| ranks[..at].contains(&ranks[at])) {
            return Err(wrong("the ranks of a switch channel must be some, and different"));
        }
        let one = |&rank: &u32| {
            let switches = &mut self.gpus[rank as usize].switches;
            switches.push((space, ranks.clone()));
            (rank, switches.len() as u32 - 1)
        };
        Ok(ranks.iter().map(one).collect())
    }

    /// A semaphore of a rank; returns its number.
    ///
    /// # Errors
    /// `AHBM-A102` (`RuntimeError`) an unusable rank or value.
    pub fn semaphore(&mut self, rank: i64, value: i64) -> Result<(u32, u32), Fault> {
        let rank = self.rank(rank)?;
        let value = u32::try_from(value).map_err(|_| wrong(format!("a semaphore that starts at {value}")))?;
        let semaphores = &mut self.gpus[rank as usize].semaphores;
        semaphores.push(value);
        Ok((rank, semaphores.len() as u32 - 1))
    }

    /// The thread blocks of a rank meet.
    ///
    /// # Errors
    /// `AHBM-A102` (`RuntimeError`) an unusable list of thread blocks.
    pub fn barrier(&mut self, rank: u32, blocks: &[i64], place: u32) -> Result<(), Fault> {
        let blocks = blocks.iter().map(|&block| number(block)).collect::<Result<Vec<u32>, Fault>>()?;
        match blocks[..] {
            [] => return Err(wrong("a barrier without thread blocks")),
            [one] => {
                self.push(rank, one, Op::new(Code::Nop, place));
                return Ok(());
            }
            _ if (1..blocks.len()).any(|at| blocks[..at].contains(&blocks[at])) => {
                return Err(wrong("a barrier that names a thread block twice"));
            }
            _ => {}
        }
        let known = self.barriers.0.entry(rank).or_default();
        let next = known.values().max().map_or(0, |last| last + 1);
        let id = match known.get(&blocks) {
            Some(&id) => id,
            None => {
                let members = |list: &[u32]| {
                    let mut members = list.to_vec();
                    members.sort_unstable();
                    members
                };
                let same = known.iter().find(|(other, _)| members(other) == members(&blocks)).map(|(_, &id)| id);
                let id = match (self.faith, same) {
                    (Faith::Meant, Some(id)) => {
                        self.renumbered.push(place);
                        id
                    }
                    _ => next,
                };
                known.insert(blocks.clone(), id);
                id
            }
        };
        for &block in &blocks {
            let op = Op { ids: vec![id], blocks: blocks.len() as u32, ..Op::new(Code::Barrier, place) };
            self.push(rank, block, op);
        }
        Ok(())
    }

    /// A thread block takes one from a semaphore, or gives one.
    ///
    /// # Errors
    /// `AHBM-A102` (`RuntimeError`) an unusable thread block.
    pub fn semaphored(&mut self, at: (u32, u32), take: bool, tb: i64, meet: Meet, place: u32) -> Result<(), Fault> {
        let code = if take { Code::Acquire } else { Code::Release };
        self.push(at.0, number(tb)?, Op { ids: vec![at.1], meet, ..Op::new(code, place) });
        Ok(())
    }

    /// A signal through a channel.
    ///
    /// # Errors
    /// `AHBM-A102` (`RuntimeError`) an unusable thread block.
    pub fn signal(&mut self, channel: Channel, relaxed: bool, tb: i64, meet: Meet, place: u32) -> Result<(), Fault> {
        let code = if relaxed { Code::RelaxedSignal } else { Code::Signal };
        self.through(channel, code, tb, meet, place)?;
        self.signals.entry((channel.src, channel.dst, channel.kind)).or_default().push(place);
        Ok(())
    }

    /// A wait for a signal through a channel.
    ///
    /// # Errors
    /// `AHBM-A102` (`RuntimeError`) an unusable thread block.
    pub fn wait(&mut self, channel: Channel, relaxed: bool, tb: i64, meet: Meet, place: u32) -> Result<(), Fault> {
        let code = if relaxed { Code::RelaxedWait } else { Code::Wait };
        self.through(channel, code, tb, meet, place)?;
        self.waits.entry((channel.src, channel.dst, channel.kind)).or_default().push(place);
        Ok(())
    }

    /// A wait until everything has been sent through a channel.
    ///
    /// # Errors
    /// `AHBM-A102` (`RuntimeError`) an unusable thread block.
    pub fn flush(&mut self, channel: Channel, tb: i64, meet: Meet, place: u32) -> Result<(), Fault> {
        self.through(channel, Code::Flush, tb, meet, place)
    }

    fn through(&mut self, channel: Channel, code: Code, tb: i64, meet: Meet, place: u32) -> Result<(), Fault> {
        let tb = number(tb)?;
        let id = self.uses_channel(channel.src, tb, channel, place);
        let op = Op { kind: channel.kind, ids: vec![id], meet, ..Op::new(code, place) };
        self.push(channel.src, tb, op);
        Ok(())
    }

    /// Chunks of the channel's own rank go to its peer.
    ///
    /// # Errors
    /// `AHBM-A102` (`RuntimeError`) chunks that do not fit the channel, each other or the transfer.
    pub fn put(
        &mut self,
        channel: Channel,
        how: Transfer,
        [dst, src]: [Chunk; 2],
        workers: Workers<'_>,
        place: u32,
    ) -> Result<(), Fault> {
        ends(channel, "source", src, channel.src)?;
        ends(channel, "destination", dst, channel.dst)?;
        same_size(&[dst, src])?;
        let code = match how {
            Transfer::Put => Code::Put,
            Transfer::PutSignal => Code::PutSignal,
            Transfer::PutSignalFlush => Code::PutSignalFlush,
            Transfer::PutPackets => Code::PutPackets,
            Transfer::ReadPutPackets => Code::ReadPutPackets,
        };
        if matches!(how, Transfer::PutPackets | Transfer::ReadPutPackets) {
            in_scratch("destination", dst)?;
        }
        if how == Transfer::ReadPutPackets {
            in_scratch("source", src)?;
        }
        self.each(channel.src, workers, |this, tb, part| {
            let remote = this.uses_buffer(channel.src, tb, dst, channel.kind, place);
            let id = this.uses_channel(channel.src, tb, channel, place);
            Op {
                kind: channel.kind,
                src: vec![Ref::own(src)],
                dst: vec![Ref { via: Via::Remote(remote), chunk: dst }],
                ids: if channel.kind == Kind::Port { vec![id] } else { Vec::new() },
                part,
                ..Op::new(code, place)
            }
        })?;
        if matches!(how, Transfer::PutSignal | Transfer::PutSignalFlush) {
            self.signals.entry((channel.src, channel.dst, channel.kind)).or_default().push(place);
        }
        Ok(())
    }

    /// Chunks of the channel's peer come to its own rank.
    ///
    /// # Errors
    /// As [`Recorder::put`].
    pub fn get(
        &mut self,
        channel: Channel,
        [dst, src]: [Chunk; 2],
        workers: Workers<'_>,
        place: u32,
    ) -> Result<(), Fault> {
        ends(channel, "source", src, channel.dst)?;
        ends(channel, "destination", dst, channel.src)?;
        same_size(&[dst, src])?;
        self.each(channel.src, workers, |this, tb, part| {
            let remote = this.uses_buffer(channel.src, tb, src, channel.kind, place);
            let id = this.uses_channel(channel.src, tb, channel, place);
            Op {
                kind: channel.kind,
                src: vec![Ref { via: Via::Remote(remote), chunk: src }],
                dst: vec![Ref::own(dst)],
                ids: vec![id],
                part,
                ..Op::new(Code::Get, place)
            }
        })
    }

    /// A rank reduces `src` and chunks of the channel's peer into `dst`.
    ///
    /// # Errors
    /// As [`Recorder::put`].
    pub fn read_reduce(
        &mut self,
        channel: Channel,
        [dst, src]: [Chunk; 2],
        others: &[Chunk],
        function: ReduceOp,
        workers: Workers<'_>,
        place: u32,
    ) -> Result<(), Fault> {
        ends(channel, "source", src, channel.src)?;
        ends(channel, "destination", dst, channel.src)?;
        operands(&[dst, src], others)?;
        others.iter().try_for_each(|&other| ends(channel, "remote source", other, channel.dst))?;
        self.each(channel.src, workers, |this, tb, part| {
            let mut refs = vec![Ref::own(src)];
            for &chunk in others {
                let remote = this.uses_buffer(channel.src, tb, chunk, channel.kind, place);
                refs.push(Ref { via: Via::Remote(remote), chunk });
            }
            this.uses_channel(channel.src, tb, channel, place);
            let dst = vec![Ref::own(dst)];
            Op { kind: channel.kind, src: refs, dst, function, part, ..Op::new(Code::ReadReduce, place) }
        })
    }

    /// A rank copies chunks of its own: as they are, into packets (`Some(true)`) or out of them (`Some(false)`).
    ///
    /// # Errors
    /// `AHBM-A102` (`RuntimeError`) chunks of another rank, of different sizes, or packets outside scratch.
    pub fn copy(
        &mut self,
        rank: u32,
        pack: Option<bool>,
        [dst, src]: [Chunk; 2],
        workers: Workers<'_>,
        place: u32,
    ) -> Result<(), Fault> {
        local(rank, &[dst, src])?;
        same_size(&[dst, src])?;
        let code = match pack {
            None => Code::Copy,
            Some(true) => {
                in_scratch("destination", dst)?;
                Code::CopyPackets
            }
            Some(false) => {
                in_scratch("source", src)?;
                Code::Unpack
            }
        };
        self.each(rank, workers, |_, _, part| Op {
            src: vec![Ref::own(src)],
            dst: vec![Ref::own(dst)],
            part,
            ..Op::new(code, place)
        })
    }

    /// A rank reduces chunks of its own; `packets` says that `others` are packets.
    ///
    /// # Errors
    /// As [`Recorder::copy`].
    #[allow(clippy::too_many_arguments)] // The statement has them.
    pub fn reduce(
        &mut self,
        rank: u32,
        [dst, src]: [Chunk; 2],
        others: &[Chunk],
        packets: bool,
        function: ReduceOp,
        workers: Workers<'_>,
        place: u32,
    ) -> Result<(), Fault> {
        local(rank, &[dst, src])?;
        local(rank, others)?;
        operands(&[dst, src], others)?;
        if packets {
            others.iter().try_for_each(|&other| in_scratch("packet", other))?;
        }
        let code = if packets { Code::ReducePackets } else { Code::Reduce };
        let refs: Vec<Ref> = std::iter::once(&src).chain(others).map(|&chunk| Ref::own(chunk)).collect();
        self.each(rank, workers, |_, _, part| Op {
            src: refs.clone(),
            dst: vec![Ref::own(dst)],
            function,
            part,
            ..Op::new(code, place)
        })
    }

    /// A switch reduces the same chunks of all its ranks into `dst`, for `at`: a rank and its number of the switch.
    ///
    /// # Errors
    /// `AHBM-A102` (`RuntimeError`) chunks outside the buffers, or of a rank that the switch does not join.
    pub fn switch_reduce(
        &mut self,
        at: (u32, u32),
        [offset, size]: [i64; 2],
        dst: Chunk,
        function: ReduceOp,
        workers: Workers<'_>,
        place: u32,
    ) -> Result<(), Fault> {
        let chunk = self.switched(at, [offset, size], dst)?;
        self.each(at.0, workers, |this, tb, part| {
            let id = this.uses(at.0, tb, Kind::Switch, at.1, place);
            Op {
                kind: Kind::Switch,
                src: vec![Ref { via: Via::Switch(id), chunk }],
                dst: vec![Ref { via: Via::Named, chunk: dst }],
                function,
                part,
                ..Op::new(Code::SwitchReduce, place)
            }
        })
    }

    /// A switch stores `src` at the same chunks of all its ranks, for `at`: a rank and its number of the switch.
    ///
    /// # Errors
    /// As [`Recorder::switch_reduce`], and for packets outside scratch.
    pub fn switch_broadcast(
        &mut self,
        at: (u32, u32),
        src: Chunk,
        [offset, size]: [i64; 2],
        packets: bool,
        workers: Workers<'_>,
        place: u32,
    ) -> Result<(), Fault> {
        let chunk = self.switched(at, [offset, size], src)?;
        if packets {
            in_scratch("source", src)?;
            in_scratch("switch buffer", chunk)?;
        }
        let code = if packets { Code::SwitchStorePackets } else { Code::SwitchStore };
        self.each(at.0, workers, |this, tb, part| {
            let id = this.uses(at.0, tb, Kind::Switch, at.1, place);
            Op {
                kind: Kind::Switch,
                src: vec![Ref { via: Via::Named, chunk: src }],
                dst: vec![Ref { via: Via::Switch(id), chunk }],
                part,
                ..Op::new(code, place)
            }
        })
    }

    /// The chunks of a switch's buffer at the acting rank.
    fn switched(&self, (rank, id): (u32, u32), [offset, size]: [i64; 2], other: Chunk) -> Result<Chunk, Fault> {
        let (space, ranks) = &self.gpus[rank as usize].switches[id as usize];
        if !ranks.contains(&other.rank) {
            return Err(wrong(format!("chunks of rank {}, which the switch channel does not join", other.rank)));
        }
        let least = ranks.iter().map(|&rank| self.chunks(rank, *space)).min().unwrap_or(0);
        let end = offset.checked_add(size).filter(|&end| offset >= 0 && size > 0 && end <= i64::from(least));
        if end.is_none() {
            return Err(wrong(format!("{size} chunks from {offset} of a switch channel's buffer of {least} chunks")));
        }
        let chunk = Chunk { rank, space: *space, index: offset as u32, size: size as u32, object: 0 };
        same_size(&[other, chunk])?;
        Ok(chunk)
    }

    /// What follows is repeated over pieces of `unit` bytes until `chunks` chunks are covered.
    ///
    /// # Errors
    /// `AHBM-A102` (`RuntimeError`) inside another loop, or for an extent that is none.
    pub fn enter_loop(&mut self, unit: i64, chunks: i64, place: u32) -> Result<(), Fault> {
        if self.open.is_some() {
            return Err(wrong("Nested Pipelines are not Supported: a loop inside a loop"));
        }
        let unit = u64::try_from(unit).ok().filter(|&unit| unit > 0);
        let (Some(unit), Ok(chunks)) = (unit, u32::try_from(chunks)) else {
            return Err(wrong("a loop needs a unit of at least one byte, and a number of chunks"));
        };
        self.open = Some(Open { unit, chunks, place, ops: Vec::new() });
        Ok(())
    }

    /// The loop ends: each thread block gets what it is to repeat.
    pub fn leave_loop(&mut self) {
        let Some(Open { unit, chunks, place, ops }) = self.open.take() else { return };
        let mut bodies: Map<(u32, u32), Vec<Op>> = Map::default();
        for (rank, tb, op) in ops {
            bodies.entry((rank, tb)).or_default().push(op);
        }
        for ((rank, tb), ops) in bodies {
            let body = Some(Box::new(Body { unit, chunks, ops }));
            self.push(rank, tb, Op { body, ..Op::new(Code::Loop, place) });
        }
    }

    /// One operation for every thread block that takes part.
    fn each(
        &mut self,
        rank: u32,
        workers: Workers<'_>,
        mut make: impl FnMut(&mut Self, u32, Option<Part>) -> Op,
    ) -> Result<(), Fault> {
        match workers {
            Workers::Block(tb) => {
                let tb = number(tb)?;
                let op = make(self, tb, None);
                self.push(rank, tb, op);
            }
            Workers::Group(blocks) => {
                for (position, &tb) in (0..).zip(blocks) {
                    let op = make(self, tb, Some((position, blocks.len() as u32)));
                    self.push(rank, tb, op);
                }
            }
            Workers::Unsaid => return Err(wrong("a statement needs tb or tb_group: which thread blocks execute it")),
        }
        Ok(())
    }

    fn push(&mut self, rank: u32, tb: u32, op: Op) {
        match &mut self.open {
            Some(open) => open.ops.push((rank, tb, op)),
            None => self.block(rank, tb).ops.push(op),
        }
    }

    /// A thread block; using one makes those before it.
    fn block(&mut self, rank: u32, tb: u32) -> &mut Block {
        let blocks = &mut self.gpus[rank as usize].blocks;
        if blocks.len() <= tb as usize {
            blocks.resize_with(tb as usize + 1, Block::default);
        }
        &mut blocks[tb as usize]
    }

    fn uses(&mut self, rank: u32, tb: u32, kind: Kind, id: u32, place: u32) -> u32 {
        listed(&mut self.block(rank, tb).channels, kind, id, place)
    }

    fn uses_channel(&mut self, rank: u32, tb: u32, channel: Channel, place: u32) -> u32 {
        self.uses(rank, tb, channel.kind, channel.id, place)
    }

    fn uses_buffer(&mut self, rank: u32, tb: u32, chunk: Chunk, kind: Kind, place: u32) -> u32 {
        let entry = self.gpus[rank as usize].remote.entry((chunk.rank, chunk.space));
        let id = entry.index() as u32;
        let ways = entry.or_default();
        if !ways.contains(&kind) {
            ways.push(kind);
        }
        listed(&mut self.block(rank, tb).remote, kind, id, place)
    }
}
