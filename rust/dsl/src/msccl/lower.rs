//! From a recording to a plan.

use super::assign::{self, Block, Blocks, peers};
use super::channels::{self, Assigned};
use super::flows::Crowded;
use super::fuse::{Fused, Kept, Why, fuse};
use super::order::{Order, order};
use super::record::{NONE, Op, Place, Recording};
use super::refusal::{Kind, Refusal};
use super::replicate::Layout;
use super::waits::{self, Draft, Gathered};
use crate::{Faith, Statements};
use ahbm_findings::Diagnostic;
use ahbm_plan::blocks::{self, Action, Dep, Places, Plan, Rank, Slot, Step};
use ahbm_plan::{Budget, Goal, Limit, Protocol};
use ahbm_program::Origin;
use rustc_hash::{FxHashMap, FxHashSet};
use std::sync::Arc;

/// What a program says besides its statements.
#[derive(Debug, Clone)]
pub struct Options {
    /// Its name.
    pub name: String,
    /// What it computes.
    pub goal: Goal,
    /// Chunks per block of the collective.
    pub factor: u32,
    /// Input and output are one memory.
    pub in_place: bool,
    /// How messages travel.
    pub protocol: Protocol,
    /// Copies of the program that share the buffers; at least one.
    pub instances: u32,
    /// The copies alternate in input and output.
    pub interleaved: bool,
    /// Receives and sends become one step.
    pub fusion: bool,
    /// Thread blocks are those that the statements name.
    pub manual: bool,
    /// Sends and receives of two thread blocks have to come in one order.
    pub check_order: bool,
    /// What reductions wait for is waited for before the first of them.
    pub gathered: bool,
    /// Whose behaviour counts.
    pub faith: Faith,
    /// The names of buffers, by number.
    pub buffers: Vec<String>,
}

/// A plan, and where it differs from the one of the language's own compiler.
#[derive(Debug, Clone)]
pub struct Lowered {
    /// The plan.
    pub plan: Plan,
    /// One finding per reason, at the first statement.
    pub notes: Vec<Diagnostic>,
}

/// The plan of a program; `origins` are its statements.
///
/// # Errors
/// A [`Refusal`]: `AHBM-A207` for thread blocks and channels that cannot be, `AHBM-A208` for sends that are received in
/// another order, `AHBM-B204` for too many steps, and those of [`Plan::verify`].
pub fn lower(recording: &Recording, origins: &[Origin], options: &Options) -> Result<Lowered, Box<Refusal>> {
    let budget = Budget::default();
    let Options { instances, goal, faith, .. } = *options;
    budget.check(Limit::Steps, (recording.len() as u64).saturating_mul(instances.into()))?;
    let at = |op: &Op| match (origins.get(op.origin as usize), origins.get(op.also as usize)) {
        (Some(first), also) => Origin::fused(first.clone(), also.cloned()).to_string(),
        (None, _) => String::new(),
    };
    let (layout, apart) = Layout::new(recording, instances, options.interleaved, goal, options.factor, faith);
    let Arranged { fused, order, placed, misfit } = arrange(recording, &layout, options, &at)?;
    let mut notes = Vec::new();
    if faith == Faith::Meant {
        remarks(&mut notes, &fused.kept, &order, apart, recording, &at);
        if let Some(op) = misfit {
            let message = "has a thread block and a channel that fit: the compiler gives a queue two thread blocks, a \
                           thread block two peers, or the ends of a message two channels";
            notes.push(note("AHBM-A226", &format!("an operation {message}"), &at(&fused.ops[op as usize])));
        }
        if options.manual {
            shared_block(&mut notes, &fused.ops, &placed, &at);
        }
    }
    if options.check_order {
        check_order(&fused.ops, &placed, &at)?;
    }
    let ranks = recording.ranks();
    let gathered = if options.gathered { Gathered::All } else { Gathered::Nothing };
    let (statements, turns) = (Statements::new(origins.len()), order.turns(fused.ops.len()));
    let mut writer = Writer {
        recording,
        layout,
        fused: &fused,
        placed: &placed,
        faith,
        turns: &turns,
        gathered,
        statements,
        moved: None,
        due: None,
    };
    let mut listed = (0..ranks).map(|rank| writer.rank(rank, &at)).collect::<Result<Vec<_>, _>>()?;
    if faith == Faith::Meant && gathered == Gathered::All && waits::circular(&listed) {
        writer.gathered = Gathered::Earlier;
        listed = (0..ranks).map(|rank| writer.rank(rank, &at)).collect::<Result<Vec<_>, _>>()?;
    }
    if let Some([op, before]) = writer.due {
        let message = "a reduction waits where it is due: the compiler lets the first one of its thread block wait for the \
                       same, which never comes";
        let finding = Diagnostic::new("AHBM-A227", message).site("reduction", at(&fused.ops[op as usize]));
        notes.push(finding.site("waits for", at(&fused.ops[before as usize])));
    }
    if let Some(op) = writer.moved {
        notes.push(note(
            "AHBM-A223",
            "a chunk is reduced from slots of other numbers: the compiler adds what is in the slots of those numbers here",
            &at(&fused.ops[op as usize]),
        ));
    }
    let used = listed.iter().map(|rank| rank.declared[0].max(rank.declared[1])).max().unwrap_or(0);
    let whole = options.factor.saturating_mul(instances).saturating_mul(ranks);
    let chunks = match faith {
        // A block per rank: with other chunks it would be elsewhere.
        Faith::Meant if goal.in_blocks() && used < whole => {
            complete(&mut listed, goal, whole);
            let message = format!(
                "the statements use {used} of the {whole} chunks of {}: the compiler divides the buffers by {used}",
                goal.name()
            );
            notes.push(note("AHBM-A225", &message, &origins.first().map(Origin::to_string).unwrap_or_default()));
            whole
        }
        _ => used,
    };
    let channels = listed.iter().flat_map(|rank| &rank.blocks).map(|block| block.channel + 1).max().unwrap_or(0);
    let plan = Plan {
        name: options.name.clone(),
        file: origins.first().map_or_else(|| Arc::from(""), |origin| Arc::clone(&origin.file)),
        places: Places::Listed(writer.statements.places(origins)),
        goal,
        in_place: options.in_place,
        out_of_place: !options.in_place,
        protocol: options.protocol,
        channels,
        chunks: chunks.max(1),
        min_bytes: Some(0),
        max_bytes: Some(0),
        ranks: listed,
        relays: 0,
        warnings: Vec::new(),
    };
    plan.verify(&budget).map_err(|mut findings| {
        for finding in findings.iter_mut().filter(|finding| finding.code == "AHBM-F119") {
            finding.hint = Some("as is, a plan has the chunks that are used; as meant, those of its collective".into());
        }
        Box::new(Refusal { kind: Kind::Runtime, findings })
    })?;
    Ok(Lowered { plan, notes })
}

/// Buffers that are used are as long as those of a collective whose larger one has `whole` chunks.
fn complete(listed: &mut [Rank], goal: Goal, whole: u32) {
    let Some(relation) = goal.relation() else { return };
    let own = whole / listed.len().max(1) as u32;
    let lengths = [relation.operand, relation.result].map(|extent| extent.of(whole, own));
    for rank in listed {
        for (used, length) in rank.declared.iter_mut().zip(lengths).filter(|(used, _)| **used > 0) {
            *used = length.max(*used);
        }
    }
}

/// What is done where and when.
struct Arranged {
    fused: Fused,
    order: Order,
    placed: Blocks,
    /// An operation that the language's own compiler places where it cannot be.
    misfit: Option<u32>,
}

/// Fuses, orders and places the operations. What finds no channel is fused less.
fn arrange(
    recording: &Recording,
    layout: &Layout<'_>,
    options: &Options,
    at: &impl Fn(&Op) -> String,
) -> Result<Arranged, Box<Refusal>> {
    let Options { manual, faith, .. } = *options;
    let ranks = recording.ranks();
    let mut fusion = options.fusion;
    let mut by_statement = false;
    let mut misfit = None;
    let mut crowded = FxHashSet::default();
    loop {
        let mut fused = fuse(recording, layout, fusion, faith, &crowded);
        let mut order = order(&fused, faith);
        if manual {
            let placed = assign::manual(&fused.ops, &order, ranks, |op, first, block| {
                conflict(recording, &fused.ops, [op, first], block, at)
            })?;
            return Ok(Arranged { fused, order, placed, misfit: None });
        }
        if by_statement {
            order = order.by_statement();
        }
        let assigned = channels::assign(&mut fused.ops, &order, faith, at)?;
        match assigned {
            Assigned::Own => {}
            Assigned::Other(op) => misfit = misfit.or(Some(op)),
            Assigned::Crowded(op, why) => {
                misfit = misfit.or(Some(op));
                match why {
                    Crowded::Flows(flows) => crowded.extend(flows.iter().flat_map(|flow| &flow[1..flow.len() - 1])),
                    // Messages that are received right after they are sent fit in any queue.
                    Crowded::Message => (fusion, by_statement) = (false, true),
                }
                continue;
            }
        }
        let placed = assign::automatic(&mut fused.ops, &order, ranks, faith, |ops, op, first, block| {
            impossible(ops, [op, first], block, &options.buffers, at)
        })?;
        let misfit = misfit.or(placed.joined);
        return Ok(Arranged { fused, order, placed, misfit });
    }
}

struct Writer<'a> {
    recording: &'a Recording,
    layout: Layout<'a>,
    fused: &'a Fused,
    placed: &'a Blocks,
    faith: Faith,
    /// Of every operation, its turn in the order.
    turns: &'a [u32],
    gathered: Gathered,
    statements: Statements,
    /// The first operation that adds to slots of other numbers than it was sent from.
    moved: Option<u32>,
    /// The first reduction that waits for what the first one of its thread block must not wait for, and that.
    due: Option<[u32; 2]>,
}

impl Writer<'_> {
    fn rank(&mut self, rank: u32, at: &impl Fn(&Op) -> String) -> Result<Rank, Box<Refusal>> {
        let list = &self.placed.ranks[rank as usize];
        let instances = self.layout.instances();
        // The first step of every operation of a block.
        let starts: Vec<Vec<u32>> = list.iter().map(|block| self.starts(block)).collect();
        let mut sorted: Vec<(u32, u32)> =
            (0..instances).flat_map(|i| (0..list.len() as u32).map(move |block| (i, block))).collect();
        let channel =
            |&(i, block): &(u32, u32)| self.placed.channels * i64::from(i) + list[block as usize].channel.max(0);
        sorted.sort_by_key(|key| {
            let Block { send, recv, .. } = list[key.1 as usize];
            (send, recv, channel(key))
        });
        let mut numbers = vec![0; sorted.len()];
        for (number, &(i, block)) in (0u32..).zip(&sorted) {
            numbers[i as usize * list.len() + block as usize] = number;
        }
        let mut declared = [0; 3];
        let mut blocks = Vec::with_capacity(sorted.len());
        let mut places = Vec::with_capacity(sorted.len());
        for key in &sorted {
            let (instance, index) = *key;
            let block = &list[index as usize];
            let channel = u32::try_from(channel(key)).map_err(|_| too_much("channels"))?;
            let mut drafts = Vec::with_capacity(block.ops.len());
            let reduces = |&op: &u32| self.fused.ops[op as usize].action == Some(Action::Reduce);
            let first = block.ops.iter().copied().find(reduces).unwrap_or(NONE);
            for &op in &block.ops {
                let (mut waits, mut due) = (Vec::new(), FxHashSet::default());
                for (other, step, before) in self.waits(op, index, &starts, at)? {
                    let wait = Dep { block: numbers[instance as usize * list.len() + other as usize], step };
                    waits.push(wait);
                    if self.gathered == Gathered::Earlier && reduces(&op) && self.follows(before, first) {
                        self.due.get_or_insert([op, before]);
                        due.insert(wait);
                    }
                }
                waits.sort_unstable_by_key(|wait| (wait.block, wait.step));
                let (pieces, _) = self.layout.pieces(self.fused.ops[op as usize].src.size);
                for piece in 0..pieces {
                    let step = self.step(op, instance, piece, &mut declared)?;
                    let (waits, due) = (std::mem::take(&mut waits), std::mem::take(&mut due));
                    drafts.push(Draft { step, waits, due });
                }
            }
            let line = block.ops.first().map_or(0, |&op| self.line(&self.fused.ops[op as usize]));
            let written = waits::write(drafts, self.gathered != Gathered::Nothing);
            blocks.push(blocks::Block { send: block.send, recv: block.recv, channel, steps: written.steps, line });
            places.push(written.places);
        }
        for block in 0..blocks.len() {
            for step in 0..blocks[block].steps.len() {
                let Some(wait) = blocks[block].steps[step].wait else { continue };
                let there = places[wait.block as usize][wait.step as usize];
                blocks[block].steps[step].wait = Some(Dep { block: wait.block, step: there });
                blocks[wait.block as usize].steps[there as usize].posts = true;
            }
        }
        Ok(Rank { declared, before: Vec::new(), after: Vec::new(), blocks })
    }

    /// The number of an operation's statements.
    fn line(&mut self, op: &Op) -> u32 {
        match op.also {
            NONE => op.origin,
            also => self.statements.number(op.origin, &[also]),
        }
    }

    fn starts(&self, block: &Block) -> Vec<u32> {
        let mut next = 0;
        let start = |&op: &u32| {
            let start = next;
            next += self.layout.pieces(self.fused.ops[op as usize].src.size).0;
            start
        };
        block.ops.iter().map(start).collect()
    }

    /// True when an operation has its turn after another.
    fn follows(&self, op: u32, other: u32) -> bool {
        self.turns[op as usize] > self.turns[other as usize]
    }

    /// Of every other thread block, the last step that comes before `op`, and its operation.
    fn waits(
        &self,
        op: u32,
        own: u32,
        starts: &[Vec<u32>],
        at: &impl Fn(&Op) -> String,
    ) -> Result<Vec<(u32, u32, u32)>, Box<Refusal>> {
        let mut waits: Vec<(u32, u32, u32)> = Vec::new();
        for &before in self.fused.prev.of(op) {
            let earlier = &self.fused.ops[before as usize];
            if earlier.action.is_none() {
                continue;
            }
            let Some((block, step)) = self.placed.places[before as usize] else {
                let finding = Diagnostic::new("AHBM-A222", "an operation waits for one that the compiler leaves out")
                    .site("operation", at(&self.fused.ops[op as usize]))
                    .site("left out", at(earlier));
                return Err(Refusal::new(Kind::Key, finding));
            };
            if block == own {
                continue;
            }
            let last = starts[block as usize][step as usize] + self.layout.pieces(earlier.src.size).0 - 1;
            waits.push((block, last, before));
        }
        waits.sort_unstable_by(|a, b| a.0.cmp(&b.0).then(b.1.cmp(&a.1)));
        waits.dedup_by_key(|wait| wait.0);
        Ok(waits)
    }

    fn step(&mut self, id: u32, instance: u32, piece: u32, declared: &mut [u32; 3]) -> Result<Step, Box<Refusal>> {
        let op = &self.fused.ops[id as usize];
        let line = self.line(op);
        let own = self.recording.ops[id as usize].dst;
        let action = op.action.unwrap_or(Action::Nop);
        let count = self.layout.pieces(op.src.size).1;
        let meant = self.faith == Faith::Meant;
        let slot = |place: Place| -> Result<Slot, Box<Refusal>> {
            let chunk = self.layout.locate(place, instance, piece);
            let end = chunk + u64::from(count);
            u32::try_from(end).map_err(|_| too_much("chunks"))?;
            Ok(Slot { space: Layout::space(place.buffer), chunk: chunk as u32 })
        };
        let mut src = slot(op.src)?;
        let dst = slot(op.dst)?;
        let mut touched = [None, None];
        // A receive that reduces adds to what is here; the compiler writes where it was sent from.
        if meant && action.receives() && action.reads() {
            let here = slot(own)?;
            if here != src {
                self.moved = Some(self.moved.map_or(id, |first| first.min(id)));
            }
            src = here;
            touched[0] = Some(src);
        }
        if matches!(action, Action::Send | Action::Copy | Action::Reduce) {
            touched[0] = Some(src);
        }
        if action.writes() || (action == Action::RecvReduceSend && !meant) {
            touched[1] = Some(dst);
        }
        for slot in touched.into_iter().flatten() {
            let declared = &mut declared[slot.space as usize];
            *declared = (slot.chunk + count).max(*declared);
        }
        Ok(Step { action, src, dst, count, wait: None, posts: false, line })
    }
}

/// Sends of a thread block to another are received there in their order.
fn check_order(ops: &[Op], placed: &Blocks, at: &impl Fn(&Op) -> String) -> Result<(), Box<Refusal>> {
    for block in placed.ranks.iter().flatten() {
        let mut last: FxHashMap<u32, (u32, u32)> = FxHashMap::default();
        for &id in &block.ops {
            let op = &ops[id as usize];
            if peers(op).0.is_none() {
                continue;
            }
            let Some((other, step)) = placed.places[op.to as usize] else { continue };
            if let Some(&(before, first)) = last.get(&other)
                && step <= before
            {
                let (rank, to) = (op.rank, op.dst.rank);
                let message = format!("Rank {rank} sends op1 then op2 but {to} receives op2 then op1");
                let finding = Diagnostic::new("AHBM-A208", message)
                    .site("op1", at(&ops[first as usize]))
                    .site("op2", at(op))
                    .hint("use another channel or other thread blocks for one of them");
                return Err(Refusal::new(Kind::Assertion, finding));
            }
            last.insert(other, (step, id));
        }
    }
    Ok(())
}

fn too_much(what: &str) -> Box<Refusal> {
    Refusal::new(Kind::Value, Diagnostic::new("AHBM-A210", format!("the instances need more {what} than a plan has")))
}

fn note(code: &'static str, message: &str, at: &str) -> Diagnostic {
    Diagnostic::new(code, message).site("statement", at)
}

fn remarks(
    notes: &mut Vec<Diagnostic>,
    kept: &[Kept],
    order: &Order,
    apart: Option<[u32; 2]>,
    recording: &Recording,
    at: &impl Fn(&Op) -> String,
) {
    let place = |op: u32| at(&recording.ops[op as usize]);
    if let Some([first, second]) = apart {
        let message = "operations of different counts share slots: instances alternate slot by slot here, and the \
                       compiler gives them places that collide";
        notes.push(Diagnostic::new("AHBM-A220", message).site("one", place(first)).site("other", place(second)));
    }
    for (why, message) in [
        (
            Why::Offsets,
            "is stored and sent on in two steps: the compiler stores it where it is in the other rank's scratch",
        ),
        (Why::Newer, "is stored and sent on in two steps: the compiler sends what was received and not what is there"),
        (
            Why::Channels,
            "is stored and sent on in two steps: the compiler fuses them, whatever channels they are given",
        ),
        (Why::Crowded, "is stored and sent on in two steps: fused, it fits on no channel that it may have"),
        (Why::Needed, "keeps the sum: the compiler drops all of it where only a part is overwritten"),
    ] {
        if let Some(kept) = kept.iter().find(|kept| kept.why == why) {
            notes.push(
                Diagnostic::new("AHBM-A221", format!("what is received {message}"))
                    .site("receive", place(kept.recv))
                    .site("send", place(kept.send)),
            );
        }
    }
    if let Some(&lost) = order.lost.first() {
        let message = "two chunks of the input are reduced before anything else: the compiler leaves this out";
        notes.push(note("AHBM-A222", message, &place(lost)));
    }
}

/// Manual thread blocks, but statements without a number: one block does all of them.
fn shared_block(notes: &mut Vec<Diagnostic>, ops: &[Op], placed: &Blocks, at: &impl Fn(&Op) -> String) {
    let all = placed.ranks.iter().flatten();
    let unnamed = all.filter(|block| block.ops.len() > 1).flat_map(|block| &block.ops);
    if let Some(&op) = unnamed.filter(|&&op| ops[op as usize].tb == -1).min() {
        let message =
            "thread blocks are manual, and statements name none: one thread block does all of those of a rank";
        notes.push(note("AHBM-A224", message, &at(&ops[op as usize])));
    }
}

fn conflict(
    recording: &Recording,
    ops: &[Op],
    [op, first]: [u32; 2],
    block: &Block,
    at: &impl Fn(&Op) -> String,
) -> Diagnostic {
    let node = &ops[op as usize];
    let (send, recv) = peers(node);
    let who = |peer: Option<u32>| peer.map_or(-1, i64::from);
    let said = recording.ops[op as usize].tb;
    let message = format!(
        "Illegal threadblock assignment. Threadblock {said} of rank {} has send:{} recv:{} channel:{}, and an operation \
         needs send:{} recv:{} channel:{}",
        node.rank,
        who(block.send),
        who(block.recv),
        block.channel,
        who(send),
        who(recv),
        node.channel
    );
    Diagnostic::new("AHBM-A207", message).site("operation", at(node)).site("thread block", at(&ops[first as usize]))
}

fn impossible(
    ops: &[Op],
    [op, first]: [u32; 2],
    block: &Block,
    names: &[String],
    at: &impl Fn(&Op) -> String,
) -> Diagnostic {
    let node = &ops[op as usize];
    let (send, recv) = peers(node);
    let who = |peer: Option<u32>| peer.map_or(-1, i64::from);
    let place = |place: Place| {
        let Place { rank, index, size, .. } = place;
        let name = names.get(place.buffer as usize).map_or("?", String::as_str);
        format!("Ref(Buffer:{name}, Index:{index}, Size:{size}, Rank:{rank})")
    };
    let message = format!(
        "Failing: Operations uses channel {}, send:{} recv:{} Op({}, {}, {}, {}, step:-1, tb:-1); threadblock uses send:{} \
         recv:{} channel:{}",
        node.channel,
        who(send),
        who(recv),
        node.action.map_or("st", Action::name),
        node.rank,
        place(node.src),
        place(node.dst),
        who(block.send),
        who(block.recv),
        block.channel
    );
    Diagnostic::new("AHBM-A207", message)
        .site("operation", at(node))
        .site("thread block", at(&ops[first as usize]))
        .hint("give the statements channels with ch=, or name thread blocks with ThreadblockPolicy.manual")
}
