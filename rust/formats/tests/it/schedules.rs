//! Schedules of synthesizers become plans that are right, and say where they are not.

use ahbm_check::{Outcome, PlanCheck, check_plan};
use ahbm_formats::schedules::Producer;
use ahbm_plan::{Algorithm, Budget, Limit, Plan};

/// The plan of a schedule.
fn read(producer: Producer, text: &str) -> Plan {
    let read = producer.read(text.as_bytes(), "given", &Budget::default());
    read.unwrap_or_else(|finding| panic!("{}", finding.message))
}

fn refused(producer: Producer, text: &str) -> (&'static str, String) {
    let finding = producer.read(text.as_bytes(), "given", &Budget::default()).expect_err("a finding");
    let site = finding.sites.first().map_or(String::new(), |site| site.origin.to_string());
    (finding.code, site)
}

fn checked(producer: Producer, text: &str) -> (&'static str, Outcome) {
    let algorithm = Algorithm::Blocks(read(producer, text));
    let verdict = check_plan(&algorithm, &PlanCheck::default());
    (algorithm.goal().name(), verdict.outcome)
}

const RING: &str = "NPUs Count,3\nLinks Count,3\nChunks Count,3\nChunk Size,1024,B\n\
                    SrcID,DestID,Latency (ns),Bandwidth (GB/s),Chunks\n\
                    0,1,500,50,0,2\n1,2,500,50,1,0\n2,0,500,50,2,1\n";

#[test]
fn a_tacos_ring_is_an_all_gather_in_the_order_of_its_links() {
    assert_eq!(checked(Producer::Tacos, RING), ("all_gather", Outcome::Correct));
    let plan = read(Producer::Tacos, RING);
    let first = &plan.ranks[0].blocks[0];
    assert_eq!((first.send, plan.origin(0, first.steps[0].line).to_string()), (Some(1), "given:6".into()));
    let sent: Vec<u32> = first.steps.iter().filter(|step| step.action.sends()).map(|step| step.src.chunk).collect();
    assert_eq!(sent, [0, 2]);
}

#[test]
fn a_tacos_file_without_the_lines_about_the_whole_is_read_too() {
    let short = "SrcID,DestID,Latency (ns),Bandwidth (GB/s),Chunks\n0,1,500,50,0,2\n1,0,500,50,3,1\n";
    assert_eq!(checked(Producer::Tacos, short), ("all_gather", Outcome::Correct));
    let idle = format!("{}0,2,1,1,None\n", RING.replace("Links Count,3", "Links Count,4"));
    assert_eq!(checked(Producer::Tacos, &idle), ("all_gather", Outcome::Correct));
}

#[test]
fn a_tacos_schedule_that_forgets_a_chunk_is_wrong() {
    assert_eq!(
        checked(Producer::Tacos, &RING.replace("0,1,500,50,0,2", "0,1,500,50,0")),
        ("all_gather", Outcome::Wrong)
    );
}

#[test]
fn a_link_that_waits_for_what_never_comes_is_told_with_its_line() {
    let acausal = RING.replace(",0,2\n", ",2,0\n").replace(",1,0\n", ",0,1\n").replace(",2,1\n", ",1,2\n");
    assert_eq!(refused(Producer::Tacos, &acausal), ("AHBM-F181", "given:6".into()));
}

#[test]
fn tacos_files_that_are_none() {
    for (text, line) in [
        ("", ""),
        ("0,1\n", ":1"),
        ("0,1,a,b,0\n", ":1"),
        ("0,1,1,1,x\n", ":1"),
        ("NPUs Count,x\n", ":1"),
        ("Chunk Size,0,B\n", ":1"),
        ("NPUs Count,2\n0,5,1,1,0\n", ""),
        ("Chunks Count,3\n0,1,1,1,0\n", ""),
        ("Links Count,x\n", ":1"),
        ("Links Count,1\n0,1,1,1,0\n1,0,1,1,1\n", ""),
        ("0,4294967295,1,1,0\n", ":1"),
        ("0,1,1,1,4294967294\n", ""),
    ] {
        assert_eq!(refused(Producer::Tacos, text), ("AHBM-F180", format!("given{line}")), "{text:?}");
    }
    let many = Producer::Tacos.read(b"0,4000000,1,1,0\n", "given", &Budget::default().with(Limit::Ranks, 64));
    assert_eq!(many.expect_err("a finding").code, "AHBM-B206");
}

#[test]
fn a_tacos_file_that_states_more_links_may_be_cut_off() {
    let codes = |text: &str| read(Producer::Tacos, text).warnings.iter().map(|w| w.code).collect::<Vec<_>>();
    assert_eq!(codes(RING), [""; 0]);
    let cut = RING.replace("Links Count,3", "Links Count,5");
    assert_eq!(codes(&cut), ["AHBM-F175"]);
    assert_eq!(checked(Producer::Tacos, &cut), ("all_gather", Outcome::Correct));
}

/// Three GPUs, 1, 2 and 4, around switch 0.
const FLOWS: &str = r#"{"1-Epoch_Duration": 1e-9, "6-Demand_Met": {}, "8-Chunk paths": {
  "Demand at 2 for chunk 0 from 1 met by epoch 3": ["1->2 in epoch 0 via switches 0"],
  "Demand at 4 for chunk 0 from 1 met by epoch 7": ["1->2 in epoch 0 via switches 0", "2->4 in epoch 4"],
  "Demand at 1 for chunk 0 from 2 met by epoch 3": ["2->1 in epoch 0"],
  "Demand at 4 for chunk 0 from 2 met by epoch 3": ["2->4 in epoch 1"],
  "Demand at 1 for chunk 0 from 4 met by epoch 3": [[[0, "4->1 with volume 1.0 in epoch 0 via switches 0"]]],
  "Demand at 2 for chunk 0 from 4 met by epoch 3": [[0, "4->2 with volume 1.0 in epoch 2 via switches 0"]]}}"#;

#[test]
fn te_ccl_flows_are_an_all_gather_among_the_gpus() {
    assert_eq!(checked(Producer::Teccl, FLOWS), ("all_gather", Outcome::Correct));
    assert_eq!(Producer::of_json(FLOWS.as_bytes()), Some(Producer::Teccl));
    assert_eq!(read(Producer::Teccl, FLOWS).ranks.len(), 3);
}

#[test]
fn a_schedule_is_known_by_a_key_of_its_top_level_wherever_it_stands() {
    let name = "x".repeat(4000);
    let long = format!(r#""name": "{name}", "note": ["{name}", "{name}"]"#);
    for (keys, producer) in [
        (r#""8-Chunk paths": {}"#, Some(Producer::Teccl)),
        (r#""1-Epoch_Duration": 1"#, Some(Producer::Teccl)),
        (r#""collective": {"nodes": 2}, "msccl_type": "algorithm""#, Some(Producer::Sccl)),
        (r#""collective": {"nodes": 2}, "sccl_type": "algorithm""#, Some(Producer::Sccl)),
        (r#""collective": {"sccl_type": "collective"}, "steps": []"#, Some(Producer::Sccl)),
        (r#""collective": "allreduce", "gpus": [{"msccl_type": 1}]"#, None),
        (r#""collective": "msccl_type""#, None),
    ] {
        for text in [format!("{{{keys}}}"), format!("{{{long}, {keys}}}"), format!("{{\n{keys}, {long}}}")] {
            assert_eq!(Producer::of_json(text.as_bytes()), producer, "{keys}");
        }
    }
}

#[test]
fn te_ccl_demands_of_one_destination_each_are_an_all_to_all() {
    let pairs = (0..3).flat_map(|from| (0..3).filter(move |&to| to != from).map(move |to| (from, to)));
    let demands: Vec<String> = pairs
        .map(|(from, to)| {
            let key = format!("Demand at {to} for chunk {to} from {from} met by epoch 1");
            format!(r#""{key}": ["{from}->{to} in epoch 0"]"#)
        })
        .collect();
    let text = format!(r#"{{"0-Collective": "alltoall", "8-Chunk paths": {{{}}}}}"#, demands.join(", "));
    assert_eq!(checked(Producer::Teccl, &text), ("all_to_all", Outcome::Correct));
}

#[test]
fn te_ccl_files_that_cannot_be_followed() {
    let early = FLOWS.replace("2->4 in epoch 4", "2->4 in epoch 0").replace("1->2 in epoch 0", "1->2 in epoch 9");
    assert_eq!(refused(Producer::Teccl, &early).0, "AHBM-F181");
    assert_eq!(refused(Producer::Teccl, &FLOWS.replace("volume 1.0", "volume 0.5")).0, "AHBM-U295");
    assert_eq!(refused(Producer::Teccl, &FLOWS.replace("2->1 in", "2-1 in")).0, "AHBM-F180");
    assert_eq!(refused(Producer::Teccl, &FLOWS.replace("Demand at 2 for", "Demand of 2 for")).0, "AHBM-F180");
    assert_eq!(refused(Producer::Teccl, r#"{"1-Epoch_Duration": 1}"#).0, "AHBM-F180");
    assert_eq!(refused(Producer::Teccl, r#"{"8-Chunk paths": {}}"#).0, "AHBM-U295");
}

/// An SCCL algorithm; chunks are (owner, takers, address).
fn sccl(nodes: u32, chunks: &[(u32, Vec<u32>, u32)], steps: &[&[[u32; 3]]]) -> String {
    let chunks: Vec<String> = chunks
        .iter()
        .map(|(pre, post, addr)| {
            format!(r#"{{"msccl_type": "chunk", "pre": [{pre}], "post": {post:?}, "addr": {addr}}}"#)
        })
        .collect();
    let steps: Vec<String> =
        steps.iter().map(|sends| format!(r#"{{"msccl_type": "step", "rounds": 1, "sends": {sends:?}}}"#)).collect();
    format!(
        r#"{{"msccl_type": "algorithm", "name": "a", "instance": {{"pipeline": null}}, "collective":
           {{"msccl_type": "collective", "name": "c", "nodes": {nodes}, "chunks": [{}]}}, "steps": [{}]}}"#,
        chunks.join(", "),
        steps.join(", ")
    )
}

#[test]
fn sccl_algorithms_are_told_apart_by_their_conditions() {
    let all = || vec![0, 1];
    let gather: Vec<_> = (0..2).map(|r| (r, all(), r)).collect();
    let both: &[[u32; 3]] = &[[0, 0, 1], [1, 1, 0]];
    assert_eq!(checked(Producer::Sccl, &sccl(2, &gather, &[both])), ("all_gather", Outcome::Correct));
    assert_eq!(Producer::of_json(sccl(2, &gather, &[both]).as_bytes()), Some(Producer::Sccl));

    let reduce: Vec<_> = (0..2).flat_map(|addr| (0..2).map(move |r| (r, vec![0, 1], addr))).collect();
    // Each rank sums one address, then both give their sums away.
    let halves: &[[u32; 3]] = &[[0, 1, 0], [1, 0, 1]];
    let back: &[[u32; 3]] = &[[0, 0, 1], [1, 1, 0]];
    assert_eq!(checked(Producer::Sccl, &sccl(2, &reduce, &[halves, back])), ("all_reduce", Outcome::Correct));
    assert_eq!(checked(Producer::Sccl, &sccl(2, &reduce, &[halves])), ("all_reduce", Outcome::Wrong));

    let scatter: Vec<_> = (0..2).flat_map(|addr| (0..2).map(move |r| (r, vec![addr], addr))).collect();
    assert_eq!(checked(Producer::Sccl, &sccl(2, &scatter, &[halves])), ("reduce_scatter", Outcome::Correct));

    let transpose: Vec<_> = (0..2).flat_map(|s| (0..2).map(move |d| (s, vec![d], 2 * s + d))).collect();
    let swap: &[[u32; 3]] = &[[1, 0, 1], [2, 1, 0]];
    assert_eq!(checked(Producer::Sccl, &sccl(2, &transpose, &[swap])), ("all_to_all", Outcome::Correct));

    let from_one = [(1, all(), 0)];
    assert_eq!(checked(Producer::Sccl, &sccl(2, &from_one, &[&[[0, 1, 0]]])), ("broadcast", Outcome::Correct));
    let to_one: Vec<_> = (0..2).map(|r| (r, vec![1], 0)).collect();
    assert_eq!(checked(Producer::Sccl, &sccl(2, &to_one, &[&[[0, 0, 1]]])), ("reduce", Outcome::Correct));
    let gathered: Vec<_> = (0..3).map(|r| (r, vec![2], r)).collect();
    let up: &[[u32; 3]] = &[[0, 0, 2], [1, 1, 2]];
    assert_eq!(checked(Producer::Sccl, &sccl(3, &gathered, &[up])), ("gather", Outcome::Correct));
    let spread: Vec<_> = (0..3).map(|r| (2, vec![r], r)).collect();
    let down: &[[u32; 3]] = &[[0, 2, 0], [1, 2, 1]];
    assert_eq!(checked(Producer::Sccl, &sccl(3, &spread, &[down])), ("scatter", Outcome::Correct));
}

#[test]
fn one_rank_that_has_nothing_to_do_is_proven_too() {
    let algorithm = Algorithm::Blocks(read(Producer::Sccl, &sccl(1, &[(0, vec![0], 0)], &[])));
    let verdict = check_plan(&algorithm, &PlanCheck::default());
    assert_eq!((verdict.outcome, verdict.findings.len()), (Outcome::Correct, 0));
    assert_eq!(verdict.proof.map(|proof| (proof.elements, proof.time_ps)), Some((1, 0)));
}

#[test]
fn sends_of_a_step_read_what_was_there_before_it() {
    // Rank 1 passes its own on while it gets another's: the sum of the step before is what travels.
    let one: Vec<_> = (0..3).map(|r| (r, vec![2], 0)).collect();
    let good: &[&[[u32; 3]]] = &[&[[0, 0, 1]], &[[0, 1, 2]]];
    assert_eq!(checked(Producer::Sccl, &sccl(3, &one, good)), ("reduce", Outcome::Correct));
    let early: &[&[[u32; 3]]] = &[&[[0, 0, 1], [0, 1, 2]]];
    assert_eq!(checked(Producer::Sccl, &sccl(3, &one, early)), ("reduce", Outcome::Wrong));
}

#[test]
fn ranks_exchange_one_address_in_a_step() {
    let sum = |n: u32| -> Vec<_> { (0..n).map(|r| (r, (0..n).collect(), 0)).collect() };
    let pair: &[[u32; 3]] = &[[0, 0, 1], [0, 1, 0]];
    assert_eq!(checked(Producer::Sccl, &sccl(2, &sum(2), &[pair])), ("all_reduce", Outcome::Correct));
    // Recursive doubling; every rank reads what it had before the step that adds to it.
    let near: &[[u32; 3]] = &[[0, 0, 1], [0, 1, 0], [0, 2, 3], [0, 3, 2]];
    let far: &[[u32; 3]] = &[[0, 0, 2], [0, 1, 3], [0, 2, 0], [0, 3, 1]];
    assert_eq!(checked(Producer::Sccl, &sccl(4, &sum(4), &[near, far])), ("all_reduce", Outcome::Correct));
    let everybody: &[[u32; 3]] = &[[0, 0, 1], [0, 0, 2], [0, 1, 0], [0, 1, 2], [0, 2, 0], [0, 2, 1]];
    let algorithm = Algorithm::Blocks(read(Producer::Sccl, &sccl(3, &sum(3), &[everybody])));
    // No send waits for a receive, so that a message of any size passes through one slot.
    let verdict = check_plan(&algorithm, &PlanCheck::default());
    assert_eq!((verdict.outcome, verdict.min_slots), (Outcome::Correct, Some(1)));
    assert_eq!(verdict.findings.iter().map(|finding| finding.code).collect::<Vec<_>>(), [""; 0]);
}

#[test]
fn taccl_sends_have_a_time_and_a_path_too() {
    let text = sccl(2, &[(0, vec![0, 1], 0), (1, vec![0, 1], 1)], &[]).replace("msccl_type", "sccl_type").replace(
        r#""steps": []"#,
        r#""steps": [{"rounds": 2.5, "sends": [[0, 0, 1, 0.5, 1], [1, 1, 0, 0.5, 1, "x"]]}]"#,
    );
    assert_eq!(checked(Producer::Sccl, &text), ("all_gather", Outcome::Correct));
}

#[test]
fn sccl_files_that_cannot_be_followed() {
    let gather = [(0, vec![0, 1], 0), (1, vec![0, 1], 1)];
    let at = |steps: &[&[[u32; 3]]]| refused(Producer::Sccl, &sccl(2, &gather, steps));
    assert_eq!(at(&[&[[0, 1, 0]]]), ("AHBM-F181", "given#/steps/0/sends/0".into()));
    assert_eq!(at(&[&[[0, 0, 5]]]), ("AHBM-F180", "given#/steps/0/sends/0".into()));
    assert_eq!(at(&[&[[7, 0, 1]]]).0, "AHBM-F180");
    let three: Vec<_> = (0..3).map(|r| (r, vec![0, 1, 2], 0)).collect();
    let doubled: &[&[[u32; 3]]] = &[&[[0, 0, 1]], &[[0, 0, 2]], &[[0, 1, 2]]];
    assert_eq!(refused(Producer::Sccl, &sccl(3, &three, doubled)), ("AHBM-F181", "given#/steps/2/sends/0".into()));
    let prefix: Vec<_> = (0..2).map(|r| (r, (r..2).collect::<Vec<u32>>(), 0)).collect();
    assert_eq!(refused(Producer::Sccl, &sccl(2, &prefix, &[])).0, "AHBM-U295");
    assert_eq!(refused(Producer::Sccl, r#"{"msccl_type": "algorithm"}"#).0, "AHBM-F180");
}

/// Bytes of a file with some of them changed, cut out or doubled.
fn mutated(text: &str, changes: &[(usize, u8)]) -> Vec<u8> {
    let mut bytes = text.as_bytes().to_vec();
    for &(at, byte) in changes {
        let at = at % bytes.len().max(1);
        match byte % 4 {
            0 if !bytes.is_empty() => drop(bytes.remove(at)),
            1 => bytes.insert(at, b"0123456789,:[]{}\"->"[usize::from(byte) % 19]),
            2 if !bytes.is_empty() => bytes[at] = byte,
            _ => bytes.extend_from_within(at..bytes.len().min(at + 16)),
        }
    }
    bytes
}

proptest::proptest! {
    #[test]
    fn whatever_the_bytes_a_reader_ends_with_a_plan_or_a_finding(
        which in 0..3usize,
        changes in proptest::collection::vec((0..4096usize, proptest::num::u8::ANY), 0..12),
    ) {
        let chunks: Vec<_> = (0..2).flat_map(|addr| (0..2).map(move |r| (r, vec![0, 1], addr))).collect();
        let steps: &[&[[u32; 3]]] = &[&[[0, 1, 0], [1, 0, 1]], &[[0, 0, 1], [1, 1, 0]]];
        let text = &[RING.to_owned(), FLOWS.to_owned(), sccl(2, &chunks, steps)][which];
        let producer = [Producer::Tacos, Producer::Teccl, Producer::Sccl][which];
        let budget = Budget::default().with(Limit::Ranks, 64).with(Limit::Steps, 4096);
        match producer.read(&mutated(text, &changes), "given", &budget) {
            Ok(plan) => drop(check_plan(&Algorithm::Blocks(plan), &PlanCheck { orders: 1, calls: 1, ..PlanCheck::default() })),
            Err(finding) => proptest::prop_assert!(!finding.code.is_empty()),
        }
    }
}
