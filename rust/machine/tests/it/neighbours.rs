//! Neighbour tables: every direction leads back to where it came from.

use ahbm_machine::{Coord, Direction, Heading, Sfr, SipNetwork};
use proptest::prelude::*;

const HEADINGS: [Heading; 6] = [Heading::N, Heading::S, Heading::E, Heading::W, Heading::U, Heading::D];

fn networks() -> impl Strategy<Value = (SipNetwork, u32)> {
    let grid = (1u32..5, 1u32..5, 1u32..4, any::<bool>())
        .prop_map(|(w, h, d, wrap)| (SipNetwork::Grid { w, h, d, wrap }, w * h * d));
    prop_oneof![
        (1u32..9).prop_map(|n| (SipNetwork::Ring, n)),
        grid,
        (0u32..5).prop_map(|dims| (SipNetwork::Hypercube { dims }, 1 << dims)),
        (1u32..9).prop_map(|n| (SipNetwork::FullyConnected, n)),
        (1u32..9).prop_map(|n| (SipNetwork::Switch, n)),
        (1u32..9).prop_map(|n| (SipNetwork::Custom, n)),
    ]
}

fn shapes() -> impl Strategy<Value = Sfr> {
    (networks(), 1u32..5, 1u32..5, 1u32..5).prop_map(|((network, sips), cube_w, cube_h, pes)| Sfr {
        network,
        sips,
        cube_w,
        cube_h,
        pes,
    })
}

fn everywhere(sfr: &Sfr) -> Vec<Coord> {
    let mut all = Vec::new();
    for sip in 0..sfr.sips {
        for cube in 0..sfr.cubes() {
            all.extend((0..sfr.pes).map(|pe| Coord { sip, cube, pe }));
        }
    }
    all
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn every_direction_leads_back(sfr in shapes(), sip in 0u32..10, cube in 0u32..10, pe in 0u32..5, mask in 0u8..8) {
        prop_assert_eq!(sfr.validate(), Ok(()));
        let peer = Direction::Peer {
            sip: (mask & 1 != 0).then_some(sip),
            cube: (mask & 2 != 0).then_some(cube),
            pe: (mask & 4 != 0).then_some(pe),
        };
        let mut directions: Vec<_> = HEADINGS.into_iter().flat_map(|h| [Direction::Cube(h), Direction::Global(h)]).collect();
        directions.extend((0..34).map(Direction::Dim));
        directions.push(peer);
        for at in everywhere(&sfr) {
            for &direction in &directions {
                let Some((there, back)) = sfr.neighbor(at, direction) else { continue };
                prop_assert!(sfr.contains(there));
                prop_assert_eq!(sfr.neighbor(there, back), Some((at, sfr.canonical(at, direction))));
                prop_assert_eq!(sfr.canonical(there, back), back);
                prop_assert_eq!(Direction::parse(&back.to_string()), Some(back));
            }
            for direction in sfr.named_directions(at) {
                prop_assert!(sfr.neighbor(at, direction).is_some());
            }
        }
    }

    /// Two directions of one PE never stand for the same queue: (peer, reciprocal) differ.
    #[test]
    fn queues_are_distinct(sfr in shapes()) {
        for at in everywhere(&sfr) {
            let mut queues: Vec<_> = sfr.named_directions(at).into_iter().map(|d| sfr.neighbor(at, d)).collect();
            let all = queues.len();
            queues.sort();
            queues.dedup();
            prop_assert_eq!(queues.len(), all);
        }
    }

    /// Whatever numbers someone puts into the public fields: an answer or none, never a panic.
    #[test]
    fn absurd_shapes_are_answered(w in any::<u32>(), h in any::<u32>(), d in any::<u32>(), sips in any::<u32>(),
                                  cube_w in any::<u32>(), cube_h in any::<u32>(), wrap in any::<bool>(), dims in any::<u32>()) {
        let grid = SipNetwork::Grid { w, h, d, wrap };
        for network in [grid, SipNetwork::Ring, SipNetwork::Hypercube { dims }] {
            let sfr = Sfr { network, sips, cube_w, cube_h, pes: 3 };
            let _ = sfr.validate();
            for at in [Coord { sip: 0, cube: 0, pe: 0 }, Coord { sip: sips.saturating_sub(1), cube: cube_w / 2, pe: 1 }] {
                let _ = sfr.named_directions(at);
            }
        }
    }
}

fn at(sip: u32, cube: u32, pe: u32) -> Coord {
    Coord { sip, cube, pe }
}

#[test]
fn two_ranks_in_a_ring_keep_two_queues() {
    let ring = Sfr::ring(2);
    let (east, west) = (Direction::Global(Heading::E), Direction::Global(Heading::W));
    assert_eq!(ring.neighbor(at(0, 0, 0), east), Some((at(1, 0, 0), west)));
    assert_eq!(ring.neighbor(at(0, 0, 0), west), Some((at(1, 0, 0), east)));
    assert_eq!(Sfr::ring(1).neighbor(at(0, 0, 0), east), None);
}

#[test]
fn headings_mean_what_the_design_says() {
    let grid = SipNetwork::Grid { w: 3, h: 2, d: 1, wrap: true };
    let sfr = Sfr { sips: 6, cube_w: 4, cube_h: 4, pes: 8, ..Sfr::ring(6) }.with_network(grid);
    let go = |from: Coord, name: &str| sfr.neighbor(from, Direction::parse(name).unwrap()).map(|(to, _)| to);
    assert_eq!(go(at(0, 5, 2), "E"), Some(at(0, 6, 2)));
    assert_eq!(go(at(0, 5, 2), "N"), Some(at(0, 1, 2)));
    assert_eq!(go(at(0, 3, 0), "E"), None);
    assert_eq!(go(at(2, 0, 0), "global_E"), Some(at(0, 0, 0)));
    assert_eq!(go(at(2, 0, 0), "global_S"), Some(at(5, 0, 0)));
    assert_eq!(go(at(2, 0, 0), "global_U"), None);
    assert_eq!(go(at(2, 1, 0), "sip2.cube1.pe0"), None, "oneself");
    assert_eq!(go(at(2, 1, 0), "sip6"), None);
    let spelt = Direction::parse("sip2.cube3").unwrap();
    assert_eq!(sfr.canonical(at(2, 1, 0), spelt), Direction::parse("cube3").unwrap());
}

#[test]
fn shapes_that_do_not_fit_their_network_are_refused() {
    let grid = SipNetwork::Grid { w: 4, h: 2, d: 1, wrap: true };
    for sfr in
        [Sfr::ring(6).with_network(grid), Sfr::ring(6).with_network(SipNetwork::Hypercube { dims: 3 }), Sfr::ring(0)]
    {
        assert_eq!(sfr.validate().unwrap_err().code, "AHBM-T014");
    }
}
