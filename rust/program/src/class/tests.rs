//! Members and others, by formulas.

use super::*;
use crate::Shared;
use crate::formula::{Axis, Function};
use crate::{Comm, Mem, Move, Op, OpKind, Tile, ValueId};
use ahbm_machine::Coord;

const N: u32 = 200;

fn coord(agent: u32) -> Coord {
    Coord { sip: agent, cube: 0, pe: 0 }
}

fn split(formulas: &Formulas, class: &Class, bytes: u64, known: usize) -> Split {
    let agents: Vec<u32> = (0..N).collect();
    let views = [View { address: 1000, bytes }];
    class.split(formulas, &Surroundings { views: &views, sips: N, sfr: &Sfr::ring(N), coord: &coord }, &agents, known)
}

/// Loads of two places and a send to a peer.
fn class(places: [Term; 2], peer: Term) -> Class {
    let tile = Tile::new(crate::Dtype::F16, &[1]);
    let load = |mem| OpKind::Move(Move::Load { dst: ValueId(0), mem, tile: 0 });
    let kinds = [load(0), load(1), OpKind::Comm(Comm::Send { dir: 0, src: ValueId(0), tile: 0 })];
    Class {
        body: Body {
            ops: kinds.into_iter().map(|kind| Op { kind, calls: 1 }).collect(),
            tiles: [tile].into(),
            values: 1,
            ..Body::default()
        },
        conditions: Vec::new(),
        accesses: places.into_iter().map(|address| Access { address, bytes: 2 }).collect(),
        mems: vec![0, 1],
        groups: Vec::new(),
        ways: vec![Way::Peer([Some(peer), None, None])],
    }
}

#[test]
fn every_member_has_its_own_operands() {
    let mut f = Formulas::default();
    let (rank, n, two, base) = (f.axis(Axis::Sip), f.constant(N.into()), f.constant(2), f.constant(1000));
    let one = f.constant(1);
    let next = f.apply(Function::Add, rank, one);
    let next = f.apply(Function::Remainder, next, n);
    let at = |f: &mut Formulas, index| {
        let offset = f.apply(Function::Mul, index, two);
        f.apply(Function::Add, base, offset)
    };
    let places = [at(&mut f, rank), at(&mut f, next)];
    let class = class(places, next);
    let found = split(&f, &class, u64::from(N) * 2, 0);
    assert_eq!((found.members.len(), found.rest.len()), (N as usize, 0));
    for (agent, body) in &found.members {
        let (mine, next) = (u64::from(*agent), u64::from((agent + 1) % N));
        let mem = |index: u64| Mem { buffer: 0, offset: 2 * index };
        assert_eq!(body.mems, [mem(mine), mem(next)][..].into());
        assert_eq!(*body.directions, [Direction::Peer { sip: Some(next as u32), cube: None, pe: None }]);
        assert!(std::ptr::eq(&*body.ops, &*class.body.ops));
    }
    // One byte less: the two that touch the last element are no members.
    let found = split(&f, &class, u64::from(N) * 2 - 1, 0);
    assert_eq!(found.rest, [Rest { fulfil: 0, agents: vec![N - 2, N - 1] }]);
}

#[test]
fn operands_that_are_equal_for_some_members_have_one_number_there() {
    let mut f = Formulas::default();
    let (rank, base, mask) = (f.axis(Axis::Sip), f.constant(1000), f.constant(1));
    let odd = f.apply(Function::And, rank, mask);
    let place = f.apply(Function::Add, base, odd);
    let peer = f.apply(Function::Xor, rank, mask);
    let found = split(&f, &class([base, place], peer), 8, 0);
    for (agent, body) in &found.members {
        let second = OpKind::Move(Move::Load { dst: ValueId(0), mem: agent % 2, tile: 0 });
        assert_eq!((body.ops[1].kind, body.mems.len()), (second, 1 + *agent as usize % 2));
    }
    assert_eq!(found.members.len(), N as usize);
    assert!(std::ptr::eq(&*found.members[0].1.ops, &*found.members[2].1.ops));
}

#[test]
fn those_who_differ_are_told_apart_by_where_and_how() {
    let mut f = Formulas::default();
    let (rank, three, hundred, base) = (f.axis(Axis::Sip), f.constant(3), f.constant(100), f.constant(1000));
    let third = f.apply(Function::Remainder, rank, three);
    let low = f.apply(Function::Lt, rank, hundred);
    // Zero for rank 100 alone, which cannot divide by it.
    let distance = f.apply(Function::Sub, rank, hundred);
    let share = f.apply(Function::Quotient, rank, distance);
    let unequal = f.apply(Function::Eq, share, share);
    let mut class = class([base, base], rank);
    class.accesses.truncate(1);
    class.mems = vec![0];
    class.body.ops = Shared::from(vec![class.body.ops[0]]);
    class.ways = vec![];
    class.conditions = [(third, 1), (low, 0), (unequal, 1)].map(|(term, value)| Condition { term, value }).into();
    let found = split(&f, &class, 8, 0);
    let who = |test: &dyn Fn(u32) -> bool| (0..N).filter(|&rank| test(rank)).collect::<Vec<_>>();
    let rest = [
        Rest { fulfil: 0, agents: who(&|rank| rank % 3 == 0) },
        Rest { fulfil: 0, agents: who(&|rank| rank % 3 == 2) },
        Rest { fulfil: 1, agents: who(&|rank| rank % 3 == 1 && rank < 100) },
        Rest { fulfil: 2, agents: vec![100] },
    ];
    assert_eq!(found.rest, rest);
    assert_eq!(
        found.members.iter().map(|member| member.0).collect::<Vec<_>>(),
        who(&|rank| rank % 3 == 1 && rank > 100)
    );
    // Conditions that are known are not asked for again.
    assert_eq!(split(&f, &class, 8, 3).rest, []);
}

#[test]
fn a_message_to_oneself_is_no_member() {
    let mut f = Formulas::default();
    let (base, seven) = (f.constant(1000), f.constant(7));
    let found = split(&f, &class([base, base], seven), 8, 0);
    assert_eq!(found.rest, [Rest { fulfil: 0, agents: vec![7] }]);
    // Nor one to a PE that no number names.
    let minus = f.constant(-1);
    assert_eq!(split(&f, &class([base, base], minus), 8, 0).members.len(), 0);
}
