//! What plans mean: dependencies, slices, aliases, instances.

use crate::support::msccl;
use crate::support::ring;

use ahbm_check::Outcome;
use ahbm_formats::msccl_xml;
use ahbm_machine::Machine;
use ahbm_plan::{Budget, Limit, LowerOptions, Lowered, Plan, Protocol};
use ahbm_program::{Comm, Control, Dtype, Move, OpKind, WireFactor, lint};

fn read(text: &str) -> Plan {
    msccl_xml::read(text.as_bytes(), "plan.xml", &Budget::default()).expect("a plan")
}

fn machine(sips: u32) -> Machine {
    let overrides = [("system.sips.count".to_string(), sips.to_string())];
    Machine::from_yaml(
        include_str!("../../../../python/ahbm/data/topologies/npu_ring_8.yaml"),
        "npu_ring_8.yaml",
        &overrides,
    )
    .expect("valid")
}

fn lower(plan: &Plan, options: &LowerOptions) -> Lowered {
    let machine = machine(plan.ranks.len() as u32);
    let lowered = plan.lower(&machine, options).expect("it fits");
    assert_eq!(lint(&lowered.program, &machine), []);
    lowered
}

/// Operations of every agent.
fn ops(lowered: &Lowered, pick: impl Fn(&OpKind) -> bool) -> usize {
    lowered.program.bodies.iter().flat_map(|b| &b.ops).filter(|op| pick(&op.kind)).count()
}

fn sends(lowered: &Lowered) -> usize {
    ops(lowered, |kind| matches!(kind, OpKind::Comm(Comm::Send { .. })))
}

fn step(kind: &str, src: (&str, u32), dst: (&str, u32), rest: &str) -> String {
    let ((a, i), (b, j)) = (src, dst);
    format!("<step type=\"{kind}\" srcbuf=\"{a}\" srcoff=\"{i}\" dstbuf=\"{b}\" dstoff=\"{j}\" {rest}/>\n")
}

fn block(id: u32, send: i32, recv: i32, steps: &str) -> String {
    format!("<tb id=\"{id}\" send=\"{send}\" recv=\"{recv}\" chan=\"0\">\n{steps}</tb>\n")
}

/// A plan of two ranks that do the same, each seeing the other as its peer.
fn twins(coll: &str, inplace: u8, chunks: [u32; 4], body: impl Fn(u32) -> String) -> String {
    let [per_loop, i, o, s] = chunks;
    let gpus: String = (0..2)
        .map(|r| format!("<gpu id=\"{r}\" i_chunks=\"{i}\" o_chunks=\"{o}\" s_chunks=\"{s}\">\n{}</gpu>\n", body(r)))
        .collect();
    format!(
        "<algo name=\"twins\" proto=\"Simple\" nchannels=\"1\" nchunksperloop=\"{per_loop}\" ngpus=\"2\" coll=\"{coll}\" inplace=\"{inplace}\">\n{gpus}</algo>"
    )
}

/// An exchange through scratch, added up by a second thread block that waits for the first.
fn exchange(hasdep: u8, wait: &str) -> String {
    twins("allreduce", 1, [1, 1, 1, 1], |rank| {
        let peer = 1 - rank as i32;
        let receive =
            step("s", ("i", 0), ("s", 0), "") + &step("r", ("i", 0), ("s", 0), &format!("hasdep=\"{hasdep}\""));
        block(0, peer, peer, &receive) + &block(1, -1, -1, &step("re", ("s", 0), ("i", 0), wait))
    })
}

#[test]
fn dependencies_order_thread_blocks() {
    assert_eq!(msccl::verdict(&read(&exchange(1, "depid=\"0\" deps=\"1\"")), 1).outcome, Outcome::Correct);
    let unordered = msccl::verdict(&read(&exchange(1, "")), 1).outcome;
    assert!(matches!(unordered, Outcome::Race | Outcome::Wrong), "{unordered:?}");
}

#[test]
fn a_step_that_does_not_report_is_waited_for_in_vain() {
    let verdict = msccl::verdict(&read(&exchange(0, "depid=\"0\" deps=\"1\"")), 1);
    assert_eq!(verdict.outcome, Outcome::Deadlock);
    assert!(verdict.findings[0].sites.iter().any(|s| s.origin.starts_with("plan.xml:")));
    // Waiting for the silent send is satisfied by the receive after it, which reports.
    assert_eq!(msccl::verdict(&read(&exchange(1, "depid=\"0\" deps=\"0\"")), 1).outcome, Outcome::Correct);
}

#[test]
fn the_ring_needs_two_slots() {
    let plan = read(&ring::ring_xml(5));
    let outcomes = [1, 2, u32::MAX].map(|slots| msccl::verdict(&plan, slots).outcome);
    assert_eq!(outcomes, [Outcome::Deadlock, Outcome::Correct, Outcome::Correct]);
}

#[test]
fn in_place_blocks_are_where_the_collective_says() {
    let gather = |inplace: u8| {
        twins("allgather", inplace, [2, 1, 2, 0], |rank| {
            let peer = 1 - rank as i32;
            let steps = step("s", ("i", 0), ("o", rank), "") + &step("r", ("i", 0), ("o", 1 - rank), "");
            block(0, peer, peer, &steps)
        })
    };
    assert_eq!(msccl::verdict(&read(&gather(1)), 1).outcome, Outcome::Correct);
    assert_eq!(msccl::verdict(&read(&gather(0)), 1).outcome, Outcome::Wrong);
    let scatter = twins("reducescatter", 1, [2, 2, 1, 0], |rank| {
        let peer = 1 - rank as i32;
        let steps = step("s", ("i", 1 - rank), ("i", 1 - rank), "") + &step("rrc", ("i", rank), ("o", 0), "");
        block(0, peer, peer, &steps)
    });
    assert_eq!(msccl::verdict(&read(&scatter), 1).outcome, Outcome::Correct);
}

#[test]
fn copies_around_thread_blocks_run_out_of_place() {
    let gather = |inplace: u8| {
        twins("allgather", inplace, [2, 1, 2, 1], |rank| {
            let peer = 1 - rank as i32;
            let steps = step("s", ("o", rank), ("o", rank), "") + &step("r", ("i", 0), ("o", 1 - rank), "");
            format!("<copy i_off=\"0\" o_off=\"{rank}\"/>\n{}", block(0, peer, peer, &steps))
        })
    };
    for inplace in [0, 1] {
        let verdict = msccl::verdict(&read(&gather(inplace)), 1);
        assert_eq!(verdict.outcome, Outcome::Correct, "{:?}", verdict.findings);
    }
    let after = twins("broadcast", 0, [1, 1, 1, 0], |rank| {
        let steps = if rank == 0 { step("s", ("i", 0), ("i", 0), "") } else { step("r", ("i", 0), ("i", 0), "") };
        let (send, recv) = if rank == 0 { (1, -1) } else { (-1, 0) };
        block(0, send, recv, &steps) + "<copy i_off=\"0\" o_off=\"0\"/>\n"
    });
    let verdict = msccl::verdict(&read(&after), 1);
    assert_eq!(verdict.outcome, Outcome::Correct, "{:?}", verdict.findings);
}

#[test]
fn steps_repeat_per_slice() {
    let plan = read(&ring::ring_xml(2));
    let chunks = |slices: u64| LowerOptions { slice_bytes: Some(64), ..LowerOptions::new(2 * 64 * slices, Dtype::F16) };
    for slices in [1, 3] {
        assert_eq!(sends(&lower(&plan, &chunks(slices))) as u64, 4 * slices);
    }
    let ragged = lower(&plan, &LowerOptions { bytes: 2 * 150, ..chunks(1) });
    let mut sizes: Vec<u64> = ragged.program.bodies[0].tiles.iter().map(|t| t.bytes()).collect();
    sizes.sort_unstable();
    assert_eq!(sizes, [22, 64]);
}

#[test]
fn dependencies_hold_in_every_slice() {
    let plan = read(&exchange(1, "depid=\"0\" deps=\"1\""));
    let lowered = lower(&plan, &LowerOptions { slice_bytes: Some(8), ..LowerOptions::new(32, Dtype::I64) });
    let mut goals: Vec<u32> = lowered.program.bodies[1]
        .ops
        .iter()
        .filter_map(|op| {
            if let OpKind::Control(Control::WaitCounter { at_least, .. }) = op.kind { Some(at_least) } else { None }
        })
        .collect();
    goals.dedup();
    assert_eq!(goals, [1, 2, 3, 4]);
}

#[test]
fn consecutive_chunks_travel_together_while_they_fit() {
    let text = twins("allreduce", 1, [4, 4, 4, 4], |rank| {
        let peer = 1 - rank as i32;
        let steps = step("s", ("i", 0), ("s", 0), "cnt=\"4\"")
            + &step("r", ("i", 0), ("s", 0), "cnt=\"4\"")
            + &step("re", ("s", 0), ("i", 0), "cnt=\"4\"");
        block(0, peer, peer, &steps)
    });
    let plan = read(&text);
    assert_eq!(msccl::verdict(&plan, 1).outcome, Outcome::Correct);
    for (slice, messages) in [(64, 1), (32, 2), (16, 4), (8, 8)] {
        let options = LowerOptions { slice_bytes: Some(slice), ..LowerOptions::new(64, Dtype::F16) };
        assert_eq!(sends(&lower(&plan, &options)), 2 * messages, "{slice}");
    }
}

#[test]
fn reductions_into_one_place_are_one_pass() {
    let text = twins("allreduce", 1, [1, 1, 1, 3], |rank| {
        let peer = 1 - rank as i32;
        let reduce = |k| step("re", ("s", k), ("i", 0), "");
        let steps = step("s", ("i", 0), ("s", 0), "")
            + &step("r", ("i", 0), ("s", 0), "")
            + &reduce(0)
            + &reduce(1)
            + &reduce(2);
        block(0, peer, peer, &steps)
    });
    let lowered = lower(&read(&text), &LowerOptions::new(2, Dtype::F16));
    // Received and reduced.
    assert_eq!(ops(&lowered, |kind| matches!(kind, OpKind::Move(Move::Store { .. }))), 2 * 2);
}

#[test]
fn instances_share_every_chunk() {
    let plan = read(&ring::ring_xml(3));
    let options = LowerOptions { instances: 2, ..LowerOptions::new(3 * 5 * 2, Dtype::F16) };
    let lowered = lower(&plan, &options);
    assert_eq!((lowered.program.agents.len(), lowered.program.channels.len()), (6, 6));
    let sizes = [0, 1].map(|b| lowered.program.bodies[b].tiles[0].elements());
    assert_eq!(sizes, [2, 3]);
    let refused = plan.lower(&machine(3), &LowerOptions { instances: 6, ..options }).unwrap_err();
    assert_eq!(refused[0].code, "AHBM-F127");
}

#[test]
fn protocols_cost_on_the_wire() {
    let plan = read(&ring::ring_xml(2));
    for (protocol, payload, wire) in
        [(Protocol::Simple, 120, 120), (Protocol::Ll, 120, 240), (Protocol::Ll128, 121, 130)]
    {
        let options = LowerOptions { protocol: Some(protocol), ..LowerOptions::new(4096, Dtype::F16) };
        let lowered = lower(&plan, &options);
        assert_eq!(lowered.program.channels[0].wire.bytes(payload), wire);
    }
    assert_eq!(WireFactor::new(0, 0).bytes(7), 7);
}

#[test]
fn what_does_not_fit_is_refused() {
    let plan = read(&ring::ring_xml(4));
    let code = |ranks, options: LowerOptions| plan.lower(&machine(ranks), &options).unwrap_err()[0].code;
    let placed = |have, sips: &[u32]| {
        let options = LowerOptions { sips: sips.to_vec(), ..LowerOptions::new(64, Dtype::F16) };
        plan.lower(&machine(have), &options).unwrap_err().swap_remove(0)
    };
    for (have, sips, why) in [
        (3, &[][..], "the machine has 3 SIPs"),
        (3, &[0; 4], "the machine has 3 SIPs"),
        (4, &[0, 1, 2], "and 3 SIPs are named for them"),
        (4, &[0, 1, 2, 4], "and rank 3 is put on SIP 4 of 4"),
        (4, &[0, 1, 2, 1], "and ranks 1 and 3 are put on SIP 1"),
    ] {
        let finding = placed(have, sips);
        assert_eq!(finding.code, "AHBM-U204");
        assert!(finding.message.ends_with(&format!("has 4 ranks, one per SIP, {why}")), "{}", finding.message);
    }
    assert_eq!(code(4, LowerOptions::new(66, Dtype::F16)), "AHBM-F127");
    assert_eq!(code(4, LowerOptions::new(0, Dtype::F16)), "AHBM-F127");
    let huge = LowerOptions { slice_bytes: Some(1), ..LowerOptions::new(1 << 40, Dtype::I8) };
    assert_eq!(code(4, huge), "AHBM-B209");
    let cells = plan.lower_for_check(1, &Budget::default().with(Limit::Cells, 10)).unwrap_err();
    assert_eq!(cells[0].code, "AHBM-B211");
    let deaf = twins("custom", 0, [1, 1, 1, 0], |rank| {
        if rank == 0 { block(0, 1, -1, &step("s", ("i", 0), ("o", 0), "")) } else { String::new() }
    });
    let unmatched = read(&deaf).lower_for_check(1, &Budget::default()).unwrap_err().remove(0);
    assert_eq!(unmatched.code, "AHBM-F128");
    assert_eq!(unmatched.sites[0].origin, "plan.xml:4");
    assert_eq!(unmatched.sites[1].label, "rank 1: no thread block receives from rank 0");
}
