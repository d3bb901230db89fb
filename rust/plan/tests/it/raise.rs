//! Plans from programs of kernels: thread blocks, homes of values, and what is refused.

use ahbm_machine::{Coord, Direction, Heading, Node, PeId, Sfr};
use ahbm_plan::blocks::{Action, Step};
use ahbm_plan::{Budget, Captured, Collective, Limit, Plan, Space};
use ahbm_program::{
    BinaryFn, BodyBuilder, ChannelSettings, Comm, Dtype, Locus, Math, Mem, Move, OpKind, Origin, OriginId, Program,
    ProgramBuilder, Tile, ValueId,
};

const E: Direction = Direction::Global(Heading::E);
const W: Direction = Direction::Global(Heading::W);
/// Bytes of an array, of 8-byte elements.
const BYTES: u64 = 32;

/// Writes the operations of a kernel, each on a line of its own.
struct Kernel {
    body: BodyBuilder,
    line: u32,
}

impl Kernel {
    fn tile(&mut self, elements: u64) -> u32 {
        self.body.tile(Tile::new(Dtype::I64, &[elements]))
    }

    fn mem(&mut self, first: u64) -> u32 {
        self.body.mem(Mem { buffer: 0, offset: 8 * first })
    }

    fn push(&mut self, kind: OpKind) {
        self.body.push(kind, 1, OriginId(self.line));
        self.line += 1;
    }

    fn load(&mut self, first: u64, elements: u64) -> ValueId {
        let (dst, mem, tile) = (self.body.value(), self.mem(first), self.tile(elements));
        self.push(OpKind::Move(Move::Load { dst, mem, tile }));
        dst
    }

    fn store(&mut self, src: ValueId, first: u64, elements: u64) {
        let (mem, tile) = (self.mem(first), self.tile(elements));
        self.push(OpKind::Move(Move::Store { src, mem, tile, posted: false }));
    }

    fn send(&mut self, way: Direction, src: ValueId, elements: u64) {
        let (dir, tile) = (self.body.direction(way), self.tile(elements));
        self.push(OpKind::Comm(Comm::Send { dir, src, tile }));
    }

    fn recv(&mut self, way: Direction, elements: u64) -> ValueId {
        let (dst, dir, tile) = (self.body.value(), self.body.direction(way), self.tile(elements));
        self.push(OpKind::Comm(Comm::Recv { dir, dst, tile }));
        dst
    }

    fn post(&mut self, way: Direction, elements: u64) -> ValueId {
        let (dst, dir, tile) = (self.body.value(), self.body.direction(way), self.tile(elements));
        self.push(OpKind::Comm(Comm::PostRecv { dir, dst, tile }));
        dst
    }

    fn add(&mut self, a: ValueId, b: ValueId, elements: u64) -> ValueId {
        let (dst, tile) = (self.body.value(), self.tile(elements));
        self.push(OpKind::Math(Math::Binary { f: BinaryFn::Add, dst, a, b, tile }));
        dst
    }
}

/// The same kernel on every rank of a ring; `each` PEs of every rank run it.
fn program(ranks: u32, each: u32, write: impl Fn(&mut Kernel)) -> Program {
    let mut builder = ProgramBuilder::new("test");
    for line in 0..64 {
        builder.origins.intern(Origin { file: "kernel.py".into(), locus: Locus::Line(line) });
    }
    let mut kernel = Kernel { body: BodyBuilder::new(), line: 0 };
    write(&mut kernel);
    let body = builder.body(kernel.body.finish());
    for pe in 0..each {
        let group = builder.group(Sfr::ring(ranks));
        for sip in 0..ranks {
            let place = PeId(sip * each + pe);
            let buffer = builder.buffer(Node::Hbm(place), BYTES);
            builder.agent(group, Coord { sip, cube: 0, pe: 0 }, place, body, &[buffer]).unwrap();
        }
    }
    builder.finish(ChannelSettings { slots: 4, slot_bytes: None, tier: 0, credit_bytes: 16 }).expect("a program")
}

fn raised(program: &Program, ranks: u32, budget: &Budget) -> Result<Plan, Vec<ahbm_findings::Diagnostic>> {
    let collective = (Collective::AllReduce, 0);
    let given = Captured { program, name: "test", collective, ranks, bytes: BYTES, dtype: Dtype::I64 };
    Plan::from_program(&given, budget)
}

fn plan(ranks: u32, write: impl Fn(&mut Kernel)) -> Plan {
    raised(&program(ranks, 1, write), ranks, &Budget::default()).expect("a plan")
}

fn at(step: &Step) -> (Action, Space, u32, Space, u32, u32) {
    (step.action, step.src.space, step.src.chunk, step.dst.space, step.dst.chunk, step.count)
}

#[test]
fn a_sum_is_taken_where_it_will_be_stored() {
    let plan = plan(3, |k| {
        let own = k.load(0, 2);
        k.send(E, own, 2);
        let arrived = k.recv(W, 2);
        let sum = k.add(own, arrived, 2);
        k.store(sum, 0, 2);
    });
    assert_eq!((plan.chunks, plan.ranks[0].declared), (2, [2, 2, 0]));
    let [block] = &plan.ranks[0].blocks[..] else {
        panic!("one thread block sends on one side and receives on the other")
    };
    assert_eq!((block.send, block.recv), (Some(1), Some(2)));
    let [send, add] = &block.steps[..] else { panic!("two steps") };
    assert_eq!(at(send), (Action::Send, Space::Input, 0, Space::Input, 0, 1));
    assert_eq!(at(add), (Action::RecvReduceCopy, Space::Input, 0, Space::Input, 0, 1));
    assert_eq!(plan.origin(0, add.line).to_string(), "kernel.py:2, fused with kernel.py:3");
}

#[test]
fn what_is_overwritten_and_read_later_moves_away() {
    let plan = plan(2, |k| {
        let [low, high] = [0, 2].map(|first| k.load(first, 2));
        k.store(high, 0, 2);
        k.store(low, 2, 2);
    });
    let steps: Vec<_> = plan.ranks[1].blocks[0].steps.iter().map(at).collect();
    assert_eq!(
        steps,
        [
            (Action::Copy, Space::Input, 0, Space::Scratch, 0, 1),
            (Action::Copy, Space::Input, 1, Space::Input, 0, 1),
            (Action::Copy, Space::Scratch, 0, Space::Input, 1, 1),
        ]
    );
}

#[test]
fn a_value_added_to_itself_is_read_before_it_is_written() {
    let plan = plan(2, |k| {
        let own = k.load(0, 4);
        let twice = k.add(own, own, 4);
        k.store(twice, 0, 4);
    });
    let steps: Vec<_> = plan.ranks[0].blocks[0].steps.iter().map(at).collect();
    let copy = (Action::Copy, Space::Input, 0, Space::Scratch, 0, 1);
    assert_eq!(steps, [copy, (Action::Reduce, Space::Scratch, 0, Space::Input, 0, 1)]);
}

#[test]
fn operations_of_several_thread_blocks_keep_their_order() {
    let plan = plan(3, |k| {
        let own = k.load(0, 4);
        k.send(E, own, 4);
        k.send(W, own, 4);
        let arrived = k.recv(W, 4);
        k.send(E, arrived, 4);
        k.recv(E, 4);
    });
    let blocks = &plan.ranks[0].blocks;
    assert_eq!(blocks.len(), 2);
    let waits: Vec<Vec<_>> = blocks
        .iter()
        .map(|block| block.steps.iter().map(|step| (step.action, step.wait.map(|dep| (dep.block, dep.step)))).collect())
        .collect();
    assert_eq!(waits[0], [(Action::Send, None), (Action::Recv, Some((1, 0))), (Action::Send, None)]);
    assert_eq!(waits[1], [(Action::Send, Some((0, 0))), (Action::Recv, Some((0, 2)))]);
}

#[test]
fn a_posted_receive_holds_nothing_up() {
    let plan = plan(3, |k| {
        let own = k.load(0, 4);
        let future = k.post(W, 4);
        k.send(E, own, 4);
        k.push(OpKind::Comm(Comm::Await { value: future }));
        k.store(future, 0, 4);
    });
    let [sends, receives] = &plan.ranks[0].blocks[..] else { panic!("a thread block of its own") };
    assert_eq!((receives.send, receives.recv, receives.steps.len()), (None, Some(2), 1));
    assert_eq!(receives.steps[0].wait, None);
    let waits: Vec<_> = sends.steps.iter().map(|step| (step.action, step.wait.map(|dep| dep.block))).collect();
    assert_eq!(waits, [(Action::Send, None), (Action::Copy, Some(1))]);
}

#[test]
fn refusals_name_the_operation_its_rank_and_its_line() {
    let exp = program(2, 1, |k| {
        let (a, tile) = (k.load(0, 4), k.tile(4));
        k.push(OpKind::Math(Math::Unary { f: ahbm_program::UnaryFn::Exp, dst: a, a, tile }));
    });
    let findings = raised(&exp, 2, &Budget::default()).expect_err("no plan");
    // Both ranks, told once.
    let [finding] = &findings[..] else { panic!("one finding: {findings:?}") };
    assert_eq!((finding.code, &*finding.sites[0].origin), ("AHBM-U294", "kernel.py:1"));
    assert_eq!(finding.sites[0].label, "rank 0: exp i64[4]");
    let many = program(2, 2, |k| {
        k.load(0, 4);
    });
    assert_eq!(raised(&many, 2, &Budget::default()).expect_err("several PEs")[0].code, "AHBM-U294");
    let [fine, few] = [Budget::default().with(Limit::Cells, 7), Budget::default().with(Limit::Steps, 1)];
    let single = program(2, 1, |k| {
        let one = k.load(1, 1);
        k.store(one, 2, 1);
        k.store(one, 3, 1);
    });
    assert_eq!(raised(&single, 2, &fine).expect_err("chunks")[0].code, "AHBM-B211");
    assert_eq!(raised(&single, 2, &few).expect_err("steps")[0].code, "AHBM-B204");
}
