//! Verdicts that depend on the size of the arrays, on the protocol and on the kind of call.

use ahbm_check::{Outcome, PlanCheck, Verdict, check_plan};
use ahbm_formats::msccl_xml;
use ahbm_plan::{Algorithm, BY_PROTOCOL, Budget, Protocol};

/// Two ranks gather `chunks` chunks each: both send their own, `count` chunks per step, before they receive.
fn exchange(protocol: &str, chunks: u32, count: u32, most: u64) -> String {
    let step = |kind: &str, [src, dst]: [u32; 2], count: u32| {
        format!(
            "<step s=\"0\" type=\"{kind}\" srcbuf=\"i\" srcoff=\"{src}\" dstbuf=\"o\" dstoff=\"{dst}\" cnt=\"{count}\" \
             depid=\"-1\" deps=\"-1\" hasdep=\"0\"/>\n"
        )
    };
    let rank = |id: u32| {
        let (own, other) = (id * chunks, (1 - id) * chunks);
        let parts = || (0..chunks).step_by(count as usize);
        let sends: String = parts().map(|k| step("s", [k, own + k], count)).collect();
        let takes: String = parts().map(|k| step("r", [k, other + k], count)).collect();
        format!(
            "<gpu id=\"{id}\" i_chunks=\"{chunks}\" o_chunks=\"{}\" s_chunks=\"0\">\n<tb id=\"0\" send=\"{}\" recv=\"{}\" chan=\"0\">\n\
             {sends}{takes}{}</tb></gpu>",
            2 * chunks,
            1 - id,
            1 - id,
            step("cpy", [0, own], chunks),
        )
    };
    format!(
        "<algo name=\"x\" proto=\"{protocol}\" nchannels=\"1\" nchunksperloop=\"{}\" ngpus=\"2\" coll=\"allgather\" \
         inplace=\"0\" outofplace=\"1\" minBytes=\"0\" maxBytes=\"{most}\">{}{}</algo>",
        2 * chunks,
        rank(0),
        rank(1),
    )
}

fn check(text: &str, slots: u32) -> Verdict {
    let plan = msccl_xml::read(text.as_bytes(), "plan.xml", &Budget::default()).expect("a plan");
    check_plan(&Algorithm::Blocks(plan), &PlanCheck { slots, ..PlanCheck::default() })
}

/// The size above which a plan hangs, as its finding says.
fn bound(verdict: &Verdict) -> Option<u64> {
    let finding = verdict.findings.iter().find(|finding| finding.code == "AHBM-V416")?;
    assert_eq!(finding.sites.len(), 2, "{finding}");
    finding.message.split(' ').nth(2).and_then(|bytes| bytes.parse().ok())
}

#[test]
fn a_plan_that_hangs_where_its_chunks_are_long_says_from_which_size() {
    // 4 chunks are more than 2 messages as soon as 2 chunks do not fit one.
    let four = check(&exchange("Simple", 4, 4, 0), BY_PROTOCOL);
    assert_eq!((four.outcome, four.min_slots, bound(&four)), (Outcome::Correct, Some(1), Some(8 << 20)));
    assert!(four.findings[0].hint.as_deref().is_some_and(|hint| hint.ends_with("queues of 4 messages would do")));
    // One message holds 1 chunk of 3, or 2: both are too few for a queue of 1.
    assert_eq!(bound(&check(&exchange("Simple", 3, 3, 0), 1)), Some(6 * ((2 << 20) / 3)));
    assert_eq!(bound(&check(&exchange("Simple", 4, 4, 0), 4)), None);
    assert_eq!(bound(&check(&exchange("Simple", 4, 4, 0), u32::MAX)), None);
    assert_eq!(bound(&check(&exchange("Simple", 2, 2, 0), BY_PROTOCOL)), None);
}

#[test]
fn sizes_that_the_plan_is_not_for_do_not_count() {
    assert_eq!(bound(&check(&exchange("Simple", 4, 4, 8 << 20), BY_PROTOCOL)), None);
    assert_eq!(bound(&check(&exchange("Simple", 4, 4, (8 << 20) + 1), BY_PROTOCOL)), Some(8 << 20));
}

#[test]
fn what_never_fits_a_message_is_a_deadlock() {
    // 71 chunks travel together, so 143 are three messages at any size.
    let verdict = check(&exchange("Simple", 143, 143, 0), BY_PROTOCOL);
    assert_eq!((verdict.outcome, verdict.findings[0].code), (Outcome::Deadlock, "AHBM-D201"));
    assert_eq!(verdict.findings.len(), 1);
    assert_eq!(check(&exchange("Simple", 142, 142, 0), BY_PROTOCOL).outcome, Outcome::Correct);
}

#[test]
fn queues_are_as_deep_as_the_runtime_has_them_for_the_protocol() {
    for (protocol, depth) in [("Simple", 2), ("LL", 8), ("LL128", 8)] {
        assert_eq!(Protocol::parse(protocol).unwrap().depth(BY_PROTOCOL), depth);
        let outcome = |chunks| check(&exchange(protocol, chunks, 1, 0), BY_PROTOCOL).outcome;
        assert_eq!((outcome(depth), outcome(depth + 1)), (Outcome::Correct, Outcome::Deadlock), "{protocol}");
        assert_eq!(check(&exchange(protocol, 2, 1, 0), 1).outcome, Outcome::Deadlock, "{protocol}");
    }
}

/// Two ranks sum one chunk. What rank 1 gets it adds in `buffer`, and sends it back.
fn sum(buffer: char) -> String {
    let step = |s: u32, kind: &str, src: char, dst: char| {
        format!(
            "<step s=\"{s}\" type=\"{kind}\" srcbuf=\"{src}\" srcoff=\"0\" dstbuf=\"{dst}\" dstoff=\"0\" cnt=\"1\" \
             depid=\"-1\" deps=\"-1\" hasdep=\"0\"/>\n"
        )
    };
    let rank = |id: u32, steps: String| {
        let peer = 1 - id;
        format!(
            "<gpu id=\"{id}\" i_chunks=\"1\" o_chunks=\"1\" s_chunks=\"0\">\
             <tb id=\"0\" send=\"{peer}\" recv=\"{peer}\" chan=\"0\">{steps}</tb></gpu>"
        )
    };
    format!(
        "<algo name=\"sum\" proto=\"Simple\" nchannels=\"1\" nchunksperloop=\"1\" ngpus=\"2\" coll=\"allreduce\" \
         inplace=\"1\" outofplace=\"1\" minBytes=\"0\" maxBytes=\"0\">{}{}</algo>",
        rank(0, step(0, "s", 'i', 'i') + &step(1, "r", 'i', 'o')),
        rank(1, step(0, "rrcs", 'i', buffer)),
    )
}

#[test]
fn a_plan_for_both_kinds_of_calls_is_checked_as_both() {
    assert_eq!(check(&sum('o'), BY_PROTOCOL).outcome, Outcome::Correct);
    let verdict = check(&sum('i'), BY_PROTOCOL);
    assert_eq!(verdict.outcome, Outcome::Wrong);
    assert!(verdict.findings[0].message.starts_with("called out of place: "), "{}", verdict.findings[0]);
    let alone = check(&sum('i').replace("outofplace=\"1\"", "outofplace=\"0\""), BY_PROTOCOL);
    assert_eq!(alone.outcome, Outcome::Correct);
}
