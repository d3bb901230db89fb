//! Plans made of transfers: what a step waits for, where it writes, and what cannot be stated.

use ahbm_plan::blocks::{Transfer, Transfers};
use ahbm_plan::{Budget, Collective, Goal, Plan};

fn transfer(from: u32, to: u32, piece: u32, adds: bool, at: u64) -> Transfer {
    Transfer { from, to, channel: 0, source: piece, target: piece, adds, at }
}

fn plan(goal: impl Into<Goal>, ranks: u32, pieces: &[u32], list: &[Transfer]) -> Plan {
    let plan = Plan::from_transfers(&Transfers {
        name: "test".into(),
        goal: goal.into(),
        ranks,
        relays: 0,
        one_port: false,
        pieces,
        parcels: &[],
        list,
    })
    .expect("a plan");
    plan.verify(&Budget::default()).expect("a valid plan");
    plan
}

#[test]
fn a_relayed_piece_waits_for_its_arrival() {
    // 0 - 1 - 2: rank 1 passes on what it has received.
    let list = [transfer(0, 1, 0, false, 1), transfer(1, 2, 0, false, 2)];
    let plan = plan(Goal::new(Collective::Broadcast, 0), 3, &[1], &list);
    let [send, recv] = [Some(2), Some(0)];
    let blocks = &plan.ranks[1].blocks;
    let place = |peer: (Option<u32>, Option<u32>)| blocks.iter().position(|b| (b.send, b.recv) == peer).unwrap();
    let (sends, receives) = (place((send, None)), place((None, recv)));
    let wait = blocks[sends].steps[0].wait.expect("the arrival");
    assert_eq!((wait.block as usize, wait.step), (receives, 0));
    assert!(blocks[receives].steps[0].posts);
}

#[test]
fn additions_wait_for_each_other_in_the_order_of_arrival() {
    // Ranks 1, 2 and 3 add to rank 0; they arrive in the order 3, 1, 2.
    let list = [transfer(1, 0, 0, true, 20), transfer(2, 0, 0, true, 30), transfer(3, 0, 0, true, 10)];
    let plan = plan(Goal::new(Collective::Reduce, 0), 4, &[1], &list);
    let blocks = &plan.ranks[0].blocks;
    let after = |peer: u32| {
        let block = blocks.iter().find(|b| b.recv == Some(peer)).expect("a receiver");
        block.steps.last().and_then(|s| s.wait).and_then(|dep| blocks[dep.block as usize].recv)
    };
    assert_eq!([after(3), after(1), after(2)], [None, Some(3), Some(1)]);
}

#[test]
fn pieces_of_different_sizes_lie_one_behind_the_other() {
    let list = [transfer(0, 1, 0, false, 1), transfer(0, 1, 1, false, 2), transfer(0, 1, 2, false, 3)];
    let plan = plan(Goal::new(Collective::Broadcast, 0), 2, &[3, 1, 2], &list);
    assert_eq!(plan.chunks, 6);
    let places: Vec<(u32, u32)> = plan.ranks[1].blocks[0].steps.iter().map(|s| (s.dst.chunk, s.count)).collect();
    assert_eq!(places, [(0, 3), (3, 1), (4, 2)]);
}

#[test]
fn what_a_plan_cannot_number_is_refused() {
    let refused = |goal, pieces: &[u32]| {
        let given = Transfers {
            name: String::new(),
            goal,
            ranks: 4,
            relays: 0,
            one_port: false,
            pieces,
            parcels: &[],
            list: &[],
        };
        Plan::from_transfers(&given).expect_err("refused").code
    };
    assert_eq!(refused(Collective::AllGather.into(), &[u32::MAX / 2, 2]), "AHBM-U293");
    assert_eq!(refused(Goal::Custom, &[1]), "AHBM-U293");
}
