//! Operations as written to operations on ranks, buffers and channel ends.

use super::ends::Ends;
use super::schema::{self, Gpu, Kind, Ref, ThreadBlock};
use ahbm_findings::Diagnostic;
use ahbm_plan::execution::{Action, Form, Operand, Places, Share, Words};
use ahbm_plan::{Extents, Space};
use ahbm_program::{BinaryFn, Origin};
use std::sync::Arc;

/// Every operation that runs here.
const NAMES: [&str; 31] = [
    "nop",
    "barrier",
    "sem_acquire",
    "sem_release",
    "signal",
    "wait",
    "rlxsignal",
    "rlxwait",
    "flush",
    "copy",
    "cpkt",
    "upkt",
    "get",
    "put",
    "ppkt",
    "rppkt",
    "pws",
    "pwsf",
    "re",
    "res",
    "rre",
    "rres",
    "repkt",
    "respkt",
    "recpkt",
    "recspkt",
    "glre",
    "glres",
    "gstore",
    "gstorepkt",
    "pipeline",
];

/// The place a finding is about.
pub(super) struct At {
    file: Arc<str>,
    places: Places,
    /// Where the matter is written, an index into `places`.
    place: Option<u32>,
    rank: Option<usize>,
    block: Option<usize>,
    op: Option<usize>,
    inner: Option<Option<usize>>,
}

impl At {
    pub(super) fn new(file: &str) -> Self {
        let (file, places) = (Arc::from(file), Places::Positions);
        Self { file, places, place: None, rank: None, block: None, op: None, inner: None }
    }

    /// Of a plan whose operations are written in `places`, and the plan itself at `whole`.
    pub(super) fn listed(whole: Origin, places: Arc<[Origin]>) -> Self {
        Self { places: Places::Listed { whole: whole.clone(), places }, ..Self::new(&whole.file) }
    }

    pub(super) fn places(&self) -> &Places {
        &self.places
    }

    pub(super) fn file(&self) -> Arc<str> {
        Arc::clone(&self.file)
    }

    pub(super) fn whole(&mut self) {
        (self.rank, self.block, self.op, self.inner, self.place) = (None, None, None, None, None);
    }

    pub(super) fn rank(&mut self, rank: usize) {
        self.whole();
        self.rank = Some(rank);
    }

    pub(super) fn thread_block(&mut self, rank: usize, block: usize) {
        self.rank(rank);
        self.block = Some(block);
    }

    /// The statement that is the matter, where statements are known.
    pub(super) fn statement(&mut self, place: Option<u32>) {
        self.place = place;
    }

    pub(super) fn op(&mut self, index: usize, place: u32) {
        self.place = Some(place);
        match &mut self.inner {
            Some(inner) => *inner = Some(index),
            None => self.op = Some(index),
        }
    }

    pub(super) fn in_loop(&self) -> bool {
        self.inner.is_some()
    }

    pub(super) fn enter(&mut self) {
        self.inner = Some(None);
    }

    pub(super) fn leave(&mut self) {
        self.inner = None;
    }

    /// The JSON pointer.
    pub(super) fn pointer(&self) -> String {
        let mut text = String::new();
        let parts = [
            ("/gpus/", self.rank),
            ("/threadblocks/", self.block),
            ("/ops/", self.op),
            ("/ops/", self.inner.flatten()),
        ];
        for (name, index) in parts {
            if let Some(index) = index {
                text += name;
                text += &index.to_string();
            }
        }
        text
    }

    pub(super) fn site(&self, error: Diagnostic) -> Diagnostic {
        let label = self.rank.map_or_else(|| "plan".to_owned(), |rank| format!("rank {rank}"));
        let origin = match (&self.places, self.place) {
            (Places::Listed { places, .. }, Some(place)) => places[place as usize].to_string(),
            (Places::Listed { whole, .. }, None) => whole.to_string(),
            (Places::Positions, _) => format!("{}#{}", self.file, self.pointer()),
        };
        error.site(label, origin)
    }

    pub(super) fn malformed(&self, code: &'static str, message: impl Into<String>) -> Diagnostic {
        self.site(Diagnostic::new(code, message))
    }

    pub(super) fn share(&self, op: &schema::Op<'_>) -> Result<Option<Share>, Diagnostic> {
        match op.tbg_info {
            None => Ok(None),
            Some(group) if group.tb_id < group.tbg_size => Ok(Some(Share { index: group.tb_id, of: group.tbg_size })),
            Some(group) => {
                Err(self
                    .malformed("AHBM-F143", format!("thread block {} of a group of {}", group.tb_id, group.tbg_size)))
            }
        }
    }
}

/// A thread block with its lists of channels and remote buffers.
pub(super) struct Block<'a> {
    rank: u32,
    ends: &'a Ends,
    extents: &'a [Extents],
    semaphores: u32,
    /// Own channel ends of memory and port channels.
    channels: [Vec<u32>; 2],
    /// Remote buffers by access.
    remote: [Vec<(u32, Space)>; 2],
    switches: Vec<(Space, &'a [u32])>,
}

impl<'a> Block<'a> {
    pub(super) fn new(
        rank: u32,
        gpu: &'a Gpu<'a>,
        written: &ThreadBlock<'_>,
        ends: &'a Ends,
        extents: &'a [Extents],
        at: &At,
    ) -> Result<Self, Diagnostic> {
        let mut declared: Vec<(Option<Space>, &'a [u32])> = Vec::new();
        for channel in gpu.channels.iter().filter(|channel| channel.channel_type == Kind::Switch) {
            let space = channel.buffer_type.map(Space::from);
            declared.extend(channel.rank_groups.iter().map(|group| (space, &*group.ranks)));
        }
        let semaphores = gpu.semaphores.len() as u32;
        let mut block = Self {
            rank,
            ends,
            extents,
            semaphores,
            channels: Default::default(),
            remote: Default::default(),
            switches: Vec::new(),
        };
        let missing =
            |what: &str, id: u32| at.malformed("AHBM-F144", format!("{what} {id} is not declared by the rank"));
        for list in &written.channels {
            for &id in &list.channel_ids {
                match list.channel_type.way() {
                    Some(kind) => {
                        let end = ends.own(rank, list.channel_type, id).ok_or_else(|| missing("channel", id))?;
                        block.channels[kind].push(end);
                    }
                    None => {
                        let (space, ranks) = *declared.get(id as usize).ok_or_else(|| missing("switch channel", id))?;
                        let Some(space) = space else {
                            let message = format!("switch channel {id} has no buffer_type");
                            return Err(at.malformed("AHBM-F144", message));
                        };
                        block.switches.push((space, ranks));
                    }
                }
            }
        }
        for list in &written.remote_buffer_refs {
            let Some(kind) = list.access_channel_type.way() else { continue };
            for &id in &list.remote_buffer_ids {
                let buffer = gpu.remote_buffers.get(id as usize).ok_or_else(|| missing("remote buffer", id))?;
                block.remote[kind].push((buffer.rank, buffer.space.into()));
            }
        }
        Ok(block)
    }

    /// The most channels and the most remote buffers of one kind.
    pub(super) fn lists(&self) -> (usize, usize) {
        let longest = |lists: &[usize]| lists.iter().copied().max().unwrap_or(0);
        (
            longest(&[self.channels[0].len(), self.channels[1].len(), self.switches.len()]),
            longest(&[self.remote[0].len(), self.remote[1].len()]),
        )
    }

    /// Operands that an operation will have; a switch reference stands for its whole group.
    pub(super) fn operands(&self, op: &schema::Op<'_>) -> u64 {
        let one = |r: &Ref| match r.switch_channel_id.and_then(|id| self.switches.get(id as usize)) {
            Some((_, ranks)) => ranks.len() as u64,
            None => 1,
        };
        let alone = op.channel_ids.first().filter(|_| op.name == "glre").and_then(|&id| self.switches.get(id as usize));
        let alone = alone.map_or(0, |(_, ranks)| ranks.len() as u64);
        1 + alone + op.src_buff.iter().chain(&op.dst_buff).map(one).sum::<u64>()
    }

    /// The words of an operation; those of an unknown one are nobody's business.
    pub(super) fn words(&self, op: &schema::Op<'_>, at: &At) -> Result<Words, Diagnostic> {
        let name = NAMES.into_iter().find(|name| *name == op.name).unwrap_or("nop");
        let kind = op.channel_type.unwrap_or_default();
        let ends = if kind.way().is_some() { self.channel_ends(op, kind, at)?.into() } else { Box::default() };
        Ok(Words { name, kind, ends })
    }

    /// `None` for an operation that no executor knows.
    pub(super) fn action(&self, op: &schema::Op<'_>, at: &At, quirks: bool) -> Result<Option<Action>, Diagnostic> {
        use Form::{Packets, Plain};
        let kind = op.channel_type.unwrap_or_default();
        let port = kind == Kind::Port;
        let pairs = |from, to| self.pairs(op, kind, [from, to], at);
        let moved = |pairs, waits| Action::Move { pairs, waits, signals: Box::default() };
        Ok(Some(match &*op.name {
            "nop" => Action::Sync,
            "flush" => {
                self.channel_ends(op, kind, at)?;
                Action::Flush
            }
            "signal" | "rlxsignal" => Action::Signal(self.signals(op, kind, at)?),
            "wait" | "rlxwait" => Action::Wait(self.channel_ends(op, kind, at)?.into()),
            "sem_acquire" => Action::Acquire(self.semaphores(op, at)?),
            "sem_release" => Action::Release(self.semaphores(op, at)?),
            "copy" | "get" | "put" | "gstore" if !quirks || port => moved(pairs(Plain, Plain)?, false),
            "copy" | "gstore" => moved(pairs(Plain, Plain)?, false),
            "get" => {
                let mut pairs = pairs(Plain, Plain)?;
                pairs.iter_mut().for_each(|(src, dst)| std::mem::swap(&mut src.chunk, &mut dst.chunk));
                pairs.iter().try_for_each(|(src, dst)| self.inside(src, at).and(self.inside(dst, at)))?;
                moved(pairs, false)
            }
            "put" => {
                let mut pairs = pairs(Plain, Plain)?;
                let space = pairs.first().map(|(src, _)| src.space);
                pairs.iter_mut().for_each(|(src, _)| src.space = space.unwrap_or(src.space));
                pairs.iter().try_for_each(|(src, _)| self.inside(src, at))?;
                moved(pairs, false)
            }
            "pws" | "pwsf" => {
                let (pairs, signals) = (pairs(Plain, Plain)?, self.signals(op, kind, at)?);
                if signals.len() != pairs.len() {
                    let message = format!("{} transfers on {} channels", pairs.len(), signals.len());
                    return Err(at.malformed("AHBM-F145", message));
                }
                Action::Move { pairs, waits: false, signals }
            }
            "cpkt" => moved(pairs(Plain, Packets)?, false),
            "upkt" => moved(pairs(Packets, Plain)?, true),
            // The proxy sends bytes as they are: only packets arrive as packets.
            "ppkt" if port && !op.src_buff.iter().all(Ref::in_scratch) => moved(pairs(Plain, Plain)?, false),
            "ppkt" if port => moved(pairs(Packets, Packets)?, false),
            "ppkt" => moved(pairs(Plain, Packets)?, false),
            "rppkt" | "gstorepkt" => moved(pairs(Packets, Packets)?, true),
            "re" | "res" | "rre" | "rres" | "glres" => self.reduce(op, kind, Plain, quirks, at)?,
            // No executor loads it.
            "glre" if !quirks => self.switch_reduce(op, kind, at)?,
            "repkt" | "respkt" | "recpkt" | "recspkt" => self.reduce(op, kind, Packets, quirks, at)?,
            _ => return Ok(None),
        }))
    }

    /// Each source with its destination; a single source serves all.
    fn pairs(
        &self,
        op: &schema::Op<'_>,
        kind: Kind,
        [from, to]: [Form; 2],
        at: &At,
    ) -> Result<Box<[(Operand, Operand)]>, Diagnostic> {
        let src = self.operands_of(&op.src_buff, kind, |_| from, at)?;
        let dst = self.operands_of(&op.dst_buff, kind, |_| to, at)?;
        if src.is_empty() || (src.len() != dst.len() && src.len() != 1) {
            let message = format!("{} has {} sources and {} destinations", op.name, src.len(), dst.len());
            return Err(at.malformed("AHBM-F145", message));
        }
        let source = |index: usize| if src.len() == 1 { src[0] } else { src[index] };
        let pairs: Box<[_]> = dst.iter().enumerate().map(|(index, dst)| (source(index), *dst)).collect();
        self.same_size(op, pairs.iter().flat_map(|(src, dst)| [src, dst]), at)?;
        Ok(pairs)
    }

    /// `form` is that of every operand and result but the first ones, which are plain.
    fn reduce(&self, op: &schema::Op<'_>, kind: Kind, form: Form, quirks: bool, at: &At) -> Result<Action, Diagnostic> {
        let form_at = |index| if index == 0 { Form::Plain } else { form };
        let mut operands = self.operands_of(&op.src_buff, kind, form_at, at)?;
        let results = self.operands_of(&op.dst_buff, kind, form_at, at)?;
        if operands.is_empty() || results.is_empty() {
            return Err(at.malformed("AHBM-F145", format!("{} needs sources and destinations", op.name)));
        }
        self.same_size(op, operands.iter().chain(&results), at)?;
        if form == Form::Packets {
            // Packets are added up as they arrive, the rank's own data last.
            operands.rotate_left(1);
        }
        let function = match op.reduce_op {
            Some(function) if !quirks => function.into(),
            _ => BinaryFn::Add,
        };
        Ok(Action::Reduce { function, operands: operands.into(), results: results.into() })
    }

    /// A reduction by a switch alone, which names its chunks in fields of its own.
    fn switch_reduce(&self, op: &schema::Op<'_>, kind: Kind, at: &At) -> Result<Action, Diagnostic> {
        let (Some(index), Some(size), Some(dst), [id]) = (op.buffer_offset, op.size, op.dst_chunk, &op.channel_ids[..])
        else {
            let message = "glre needs one of channel_ids, buffer_offset, size and dst_chunk";
            return Err(at.malformed("AHBM-F145", message));
        };
        if let Some(rank) = dst.rank.filter(|rank| *rank != self.rank) {
            let message = format!("glre of rank {} with a destination at rank {rank}", self.rank);
            return Err(at.malformed("AHBM-F145", message));
        }
        let src = Ref { rank: None, space: None, buffer_id: None, switch_channel_id: Some(*id), index, size };
        let written = schema::Op { name: op.name.clone(), reduce_op: op.reduce_op, ..schema::Op::default() };
        self.reduce(&schema::Op { src_buff: vec![src], dst_buff: vec![dst], ..written }, kind, Form::Plain, false, at)
    }

    fn operands_of(
        &self,
        refs: &[Ref],
        kind: Kind,
        form: impl Fn(usize) -> Form,
        at: &At,
    ) -> Result<Vec<Operand>, Diagnostic> {
        let mut operands = Vec::with_capacity(refs.len());
        for (index, r) in refs.iter().enumerate() {
            let undeclared = |what: &str, id: u32| {
                at.malformed("AHBM-F144", format!("{what} {id} is not in the thread block's list"))
            };
            let mut push = |rank: u32, space: Space| {
                let operand = Operand { rank, space, chunk: r.index, count: r.size, form: form(index) };
                operands.push(operand);
                self.inside(&operand, at)
            };
            if let Some(id) = r.switch_channel_id {
                let (space, ranks) = *self.switches.get(id as usize).ok_or_else(|| undeclared("switch channel", id))?;
                ranks.iter().try_for_each(|&rank| push(rank, space))?;
            } else if let Some(id) = r.buffer_id {
                let known = kind.way().and_then(|kind| self.remote[kind].get(id as usize));
                let (rank, space) = *known.ok_or_else(|| undeclared("remote buffer", id))?;
                push(rank, space)?;
            } else if let Some(space) = r.space {
                push(self.rank, space.into())?;
            } else {
                return Err(at.malformed("AHBM-F145", "an operand without type, buffer_id or switch_channel_id"));
            }
        }
        Ok(operands)
    }

    fn inside(&self, operand: &Operand, at: &At) -> Result<(), Diagnostic> {
        if operand.form == Form::Packets && operand.space != Space::Scratch {
            return Err(at.malformed("AHBM-F145", "packets outside scratch"));
        }
        let end = u64::from(operand.chunk) + u64::from(operand.count);
        let chunks = self.extents[operand.rank as usize].of(operand.space);
        if end <= u64::from(chunks) {
            return Ok(());
        }
        let Operand { rank, space, chunk, .. } = operand;
        let message =
            format!("chunks {chunk} to {end} of the {chunks} chunks of rank {rank}'s {space:?}").to_lowercase();
        Err(at.malformed("AHBM-F146", message))
    }

    fn same_size<'o>(
        &self,
        op: &schema::Op<'_>,
        mut operands: impl Iterator<Item = &'o Operand>,
        at: &At,
    ) -> Result<(), Diagnostic> {
        let Some(first) = operands.next() else { return Ok(()) };
        match operands.find(|operand| operand.count != first.count) {
            None => Ok(()),
            Some(other) => {
                let message = format!("{} with operands of {} and of {} chunks", op.name, first.count, other.count);
                Err(at.malformed("AHBM-F145", message))
            }
        }
    }

    fn channel_ends(&self, op: &schema::Op<'_>, kind: Kind, at: &At) -> Result<Vec<u32>, Diagnostic> {
        let list = kind.way().map_or(&[][..], |kind| &self.channels[kind]);
        let end = |&id: &u32| {
            let message = || format!("channel {id} is not in the thread block's list");
            list.get(id as usize).copied().ok_or_else(|| at.malformed("AHBM-F144", message()))
        };
        op.channel_ids.iter().map(end).collect()
    }

    fn signals(&self, op: &schema::Op<'_>, kind: Kind, at: &At) -> Result<Box<[Option<u32>]>, Diagnostic> {
        Ok(self.channel_ends(op, kind, at)?.into_iter().map(|end| self.ends.other(end)).collect())
    }

    fn semaphores(&self, op: &schema::Op<'_>, at: &At) -> Result<Box<[u32]>, Diagnostic> {
        match op.semaphore_ids.iter().find(|id| **id >= self.semaphores) {
            None => Ok(op.semaphore_ids.as_slice().into()),
            Some(id) => Err(at.malformed("AHBM-F144", format!("semaphore {id} is not declared by the rank"))),
        }
    }
}
